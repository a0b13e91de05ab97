"""A long run is compacted live; a reviewer corrects the summary and takes it back: seen in the next prompts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.compaction_play import GOAL, RIGHT, SCRIPT, SETTINGS, WRONG
from tests.browser.walking import approve, check_ended, picture, sign_in
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

ORIGINAL = "Letter 1: the harbour paid 4 pounds"


def launched(site: Site) -> str:
    """The long run; its number."""
    said = site.manage(
        *("launch", "--machine", "checklist", "--goal", GOAL),
        *("--settings", json.dumps(SETTINGS), "--script", json.dumps(SCRIPT)),
    )
    found = re.search(r"\d+", said)
    assert found is not None
    return found[0]


def reviewers_page(site: Site, browser: Browser) -> Page:
    """Rita has signed in; she reviews, and may enter the admin."""
    site.manage(
        "shell",
        "-c",
        "from django.contrib.auth.models import Group, User\n"
        "rita, _ = User.objects.get_or_create(username='rita', defaults={'is_staff': True})\n"
        "rita.groups.add(Group.objects.get(name='reviewers'))",
    )
    page = browser.new_context(base_url=site.url).new_page()
    sign_in(page, site.fresh_link("rita"))
    return page


def let_pass(page: Page, run: str, posted: str) -> None:
    """Approve the call that is held, which posts this."""
    page.goto(f"/runs/{run}/")
    expect(page.locator("[data-card]")).to_contain_text(posted)
    approve(page)


def prompt_that_follows(site: Site, page: Page, run: str, posted: str) -> str:
    """The first prompt after this was posted, whole, which the inspector links to."""
    steps: list[dict[str, Any]] = site.export(run)["steps"]
    answered = next(
        step["seq"]
        for step in steps
        if any(fact["kind"] == "react.tool.result" and fact["value"] == posted for fact in step["facts"])
    )
    decided = next(
        step["seq"]
        for step in steps
        if step["seq"] > answered and any(fact["kind"] == "react.decision" for fact in step["facts"])
    )
    page.goto(f"/runs/{run}/?step={decided}")
    page.get_by_role("tab", name="Request & response").click()
    expect(page.locator(".prompt").first).to_be_visible()
    return page.request.get(f"/runs/{run}/steps/{decided}/prompt.txt").text()


def open_in_admin(page: Page, run: str) -> None:
    """From the compaction's row on the run's page to the admin."""
    page.goto(f"/runs/{run}/")
    page.locator('[data-kind="compaction"] .row__link').first.click()
    page.get_by_role("link", name="In the admin").click()
    page.wait_for_url("**/admin/runs/compaction/*/change/")


def check_sides(page: Page) -> None:
    """Beside each other on a desk, below each other on a phone; nothing to scroll sideways for."""
    originals, summary = page.locator(".compaction__side").all()
    left, right = originals.bounding_box(), summary.bounding_box()
    assert left and right and left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    page.emulate_media(color_scheme="dark")
    picture(page, "admin-dark")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="light")
    left, right = originals.bounding_box(), summary.bounding_box()
    assert left and right and left["y"] + left["height"] <= right["y"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, "admin-phone")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_a_reviewer_mends_what_a_compaction_did(site: Site, admin_page: Page, browser: Browser) -> None:
    run = launched(site)
    rita = reviewers_page(site, browser)
    admin_page.goto(f"/runs/{run}/")
    admin_page.evaluate("window.notReloaded = true")
    expect(admin_page.locator('[data-kind="compaction"]')).to_have_count(0)
    approve(admin_page)
    expect(admin_page.locator('[data-kind="compaction"]')).to_be_visible()
    expect(admin_page.locator("[data-card]")).to_contain_text("Half of it is counted.")
    picture(admin_page, "run-compacted")

    open_in_admin(rita, run)
    expect(rita.locator(".compaction__side").first).to_contain_text(ORIGINAL)
    expect(rita.locator("#standing")).to_contain_text(WRONG)
    check_sides(rita)
    text = rita.get_by_label("Text")
    text.fill(text.input_value().replace(WRONG, RIGHT))
    rita.get_by_role("button", name="Save new version").click()
    expect(rita.locator("#fault")).to_contain_text("Enter a reason")
    expect(text).to_have_value(re.compile(RIGHT))
    rita.get_by_label("Why (kept with the version)").fill("Letter 3 was left out of the sum.")
    rita.get_by_role("button", name="Save new version").click()
    expect(rita.locator(".messagelist")).to_contain_text("Saved as version 2")
    expect(rita.locator('[data-version="2"]')).to_contain_text("Letter 3 was left out of the sum.")
    expect(rita.locator('[data-version="2"] ins')).to_have_text("45")
    picture(rita, "admin-corrected")
    note = admin_page.locator('[data-kind="note"]', has_text="rita")
    expect(note.first).to_contain_text("Letter 3 was left out of the sum.")

    let_pass(rita, run, "Half of it is counted.")
    expect(rita.locator("[data-card]")).to_contain_text("All of it is counted.")
    prompt = prompt_that_follows(site, rita, run, "posted 1")
    assert RIGHT in prompt and WRONG not in prompt and ORIGINAL not in prompt
    picture(rita, "prompt-corrected")

    open_in_admin(rita, run)
    rita.get_by_label("Why", exact=True).fill("The letters are short enough.")
    rita.get_by_role("button", name="Revert summary").click()
    expect(rita.locator(".compaction")).to_have_attribute("data-state", "undone")
    picture(rita, "admin-undone")
    expect(note.last).to_contain_text("The letters are short enough.")
    let_pass(rita, run, "All of it is counted.")
    expect(rita.locator("[data-card]")).to_contain_text("It is written down.")
    prompt = prompt_that_follows(site, rita, run, "posted 2")
    assert ORIGINAL in prompt and RIGHT not in prompt

    assert admin_page.evaluate("window.notReloaded") is True
    approve(admin_page)
    check_ended(site, admin_page, run)
    picture(admin_page, "run-ended")
    rita.context.close()
