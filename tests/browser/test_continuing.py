"""A conversation of four runs in a browser: each is continued from the foot of the page of the one before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import approve, check_ended, check_looks, launch_demonstration, sign_in
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

GOALS = ("Now with apples.", "Now with pears.", "Now with both.")


def test_a_run_is_continued_three_times_and_each_page_leads_to_the_others(site: Site, page: Page) -> None:
    sign_in(page, site.fresh_link())
    runs = [launch_demonstration(page, site.url)]
    box = page.get_by_label("Follow-up goal", exact=True)
    for goal in (*GOALS, ""):
        expect(page.locator("[data-card]")).to_be_visible()
        expect(box).to_be_hidden()
        approve(page)
        export = check_ended(site, page, runs[-1])
        earlier = [fact for fact in export["steps"][0]["facts"] if fact["kind"] == "conv.run"]
        assert [str(turn["run"]) for turn in earlier] == runs[:-1]
        expect(box).to_be_visible()
        if goal:
            box.fill(goal)
            page.get_by_role("button", name="Continue", exact=True).click()
            page.wait_for_url(lambda url, last=runs[-1]: re.search(r"/runs/(\d+)/$", url)[1] != last)  # type: ignore[index,misc]
            runs.append(page.url.rstrip("/").rpartition("/")[2])
    check_looks(page)
    chain = page.get_by_role("navigation", name="Runs of the conversation")
    expect(chain).to_contain_text("Run 4 of 4 of this conversation")
    chain.get_by_role("link", name=re.compile(rf"#{runs[1]} Now with apples")).click()
    expect(chain).to_contain_text("Run 2 of 4 of this conversation")
    expect(chain.get_by_role("link")).to_have_count(3)
    box.fill(" ")
    page.get_by_role("button", name="Continue", exact=True).click()
    expect(page.get_by_text("Enter a goal.")).to_be_visible()
    check_looks(page)
    page.goto(f"{site.url}/runs/")
    expect(page.get_by_text(f"continues run #{runs[0]}", exact=True)).to_be_visible()
