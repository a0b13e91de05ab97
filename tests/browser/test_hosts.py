"""A run that has read a file asks before it contacts a host; a tick lets the host pass for the run, and no other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import check_page, sign_in
from tests.launching import think
from tests.outward import VISIT
from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.stack]

SCRIPT = {
    "replies": {
        "decision": [
            think("write_file", name="plan.txt", content="The plan is secret."),
            think("read_file", name="plan.txt"),
            think("visit", url="https://api.example.com/?plan=secret"),
            think("visit", url="https://api.example.com/more"),
            think("visit", url="https://other.example.net/"),
            {"thought": "FINAL ANSWER: done", "action": None},
        ]
    },
    "tools": {"visit": VISIT},
}


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (360, 740)])
def test_a_host_is_asked_about_allowed_with_a_tick_and_another_one_asks(
    site: Site, browser: Browser, tmp_path: Path, width: int, height: int
) -> None:
    context = browser.new_context(base_url=site.url, viewport={"width": width, "height": height})
    page = context.new_page()
    sign_in(page, site.fresh_link())
    page.goto("/runs/new/")
    page.get_by_label("Goal").fill("Look at the plan, and at what is known of it")
    page.get_by_label("Model", exact=True).select_option("script")
    page.get_by_role("textbox", name="Script").fill(json.dumps(SCRIPT))
    for tool in ("read_file", "write_file"):
        page.locator(f'input[name="tools"][value="{tool}"]').check()
    page.get_by_text("Nothing", exact=True).click()
    page.get_by_label("Allowed hosts").fill("https://api.example.com/")
    page.get_by_role("button", name="Launch", exact=True).click()
    wrong = page.locator("#hosts-wrong")
    expect(wrong).to_contain_text("is not a host. Write a host like example.com")
    check_page(page)
    wrong.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / f"launch-{width}.png", full_page=True)
    page.get_by_label("Allowed hosts").fill("docs.example.org")
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*/")

    card = page.locator("[data-card]")
    expect(card).to_contain_text("contacts api.example.com")
    expect(card).to_contain_text("This run has read private data (read_file, step")
    tick = card.get_by_label("allow api.example.com for the rest of this run")
    expect(tick).not_to_be_checked()
    check_page(page)
    tick.scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / f"card-{width}.png", full_page=True)
    tick.check()
    card.locator("[data-approve]").click()

    expect(page.locator("[data-card]")).to_contain_text("contacts other.example.net")
    run = page.url.rstrip("/").rpartition("/")[2]
    check_page(page)
    page.screenshot(path=tmp_path / f"other-{width}.png", full_page=True)
    page.locator("[data-card]").locator("summary", has_text="Reject").click()
    page.locator("[data-card]").get_by_role("button", name="Reject", exact=True).click()
    wait_for(lambda: site.export(run)["run"]["status"] == "succeeded")
    export = site.export(run)
    asked = [exchange for exchange in export["exchanges"] if exchange["kind"] == "tool_call"]
    visited = [one["request"]["args"]["url"] for one in asked if one["name"] == "visit"]
    assert visited == ["https://api.example.com/?plan=secret", "https://api.example.com/more"]
    assert "steps verified" in site.manage("verify", run)
    context.close()
