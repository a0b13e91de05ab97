"""A call that hides something, or is longer than its box: on a desk and a phone, with scripts and without."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.walking import reload_until_it_asks
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, StorageState, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.stack]

DEED = "; rm -rf /srv/data"
LINE = (
    "# note: nothing to see in this line of a hundred characters, nor in the next one, as it goes on and on\n"
)
LONG = (LINE * 60)[: 6_025 - len(DEED)] + DEED
BLANKS = "ls" + " " * 10_000 + DEED
PHONE: ViewportSize = {"width": 360, "height": 740}
DESK: ViewportSize = {"width": 1440, "height": 900}
TOOL = {
    "params": {"command": "string", "mode": "string"},
    "required": ["command"],
    "effects": "write",
    "results": [{"output": "done"}],
}


def launch(site: Site, command: str) -> str:
    """A run that asks whether it may run the command; its number."""
    call = {"thought": "I tidy up.", "action": {"tool": "run", "args": {"command": command, "mode": "quick"}}}
    done = {"thought": "FINAL ANSWER: done", "action": None}
    script = {"replies": {"decision": [call, done]}, "tools": {"run": TOOL}}
    said = site.manage("launch", "--machine", "ruled", "--goal", "Tidy up", "--script", json.dumps(script))
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


@pytest.fixture(params=[DESK, PHONE], ids=["desk", "phone"])
def looking(
    request: pytest.FixtureRequest, browser: Browser, site: Site, admin_cookies: StorageState
) -> Iterator[Page]:
    """A tab of that size in which the administrator has signed in."""
    context = browser.new_context(base_url=site.url, storage_state=admin_cookies, viewport=request.param)
    yield context.new_page()
    context.close()


def card_of(page: Page, run: str) -> None:
    """The run's page, with its card."""
    page.goto(f"/runs/{run}/")
    expect(page.locator("[data-card]")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert not Axe().run(page).response["violations"]


def test_ten_thousand_blanks_are_a_sign_and_want_a_tick(site: Site, looking: Page) -> None:
    run = launch(site, BLANKS)
    card_of(looking, run)
    card = looking.locator("[data-card]")
    sign = card.locator(".escapes__text")
    expect(sign).to_have_text(f"ls⟨␣ × 10,000⟩{DEED}")
    expect(card).to_contain_text("Holds long gaps: 10,000 blanks at 3.")
    assert sign.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    looking.get_by_role("button", name="Approve").click()
    expect(card).to_contain_text("tick the box to approve it")
    looking.get_by_role("checkbox", name=re.compile("I have read this call")).check()
    looking.get_by_role("button", name="Approve").click()
    expect(looking.locator("[data-panel=answer]")).to_contain_text("done")


def test_the_end_of_a_long_text_is_to_be_seen_before_it_is_approved(site: Site, looking: Page) -> None:
    card_of(looking, launch(site, LONG))
    card = looking.locator("[data-card]")
    expect(card).to_contain_text("6,025 characters, more than fits in the box. Scroll to its end to approve.")
    names = card.locator(".arguments .field__name").all_inner_texts()
    assert names == ["mode", "command"]
    tick = looking.get_by_role("checkbox", name="I have read all of it.")
    tick.click()
    expect(tick).not_to_be_checked()
    expect(card).to_contain_text("Scroll each long text to its end first.")
    box = card.locator("textarea[data-long]")
    expect(box).to_be_focused()
    looking.keyboard.press("Control+End")
    expect(card.get_by_text("Scroll to its end to approve.")).to_be_hidden()
    tick.check()
    looking.get_by_role("button", name="Approve").click()
    expect(looking.locator("[data-panel=answer]")).to_contain_text("done")


def test_the_site_refuses_what_was_not_read_and_shows_it_whole(site: Site, looking: Page) -> None:
    card_of(looking, launch(site, LONG))
    card = looking.locator("[data-card]")
    looking.get_by_role("button", name="Approve").click()
    expect(card).to_contain_text("Read all of it, then tick the box to approve it.")
    whole = card.locator(".escapes__text")
    expect(whole).to_contain_text(DEED)
    assert whole.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
    looking.get_by_role("checkbox", name="I have read all of it.").check()
    looking.get_by_role("button", name="Approve").click()
    expect(looking.locator("[data-panel=answer]")).to_contain_text("done")


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_text_that_is_not_long_is_seen_whole_in_its_box(
    site: Site, browser: Browser, admin_cookies: StorageState, size: ViewportSize
) -> None:
    run = launch(site, LINE * 14)
    for scripts in (True, False):
        context = browser.new_context(
            base_url=site.url, storage_state=admin_cookies, viewport=size, java_script_enabled=scripts
        )
        page = context.new_page()
        page.goto(f"/runs/{run}/")
        box = page.locator("[data-argument=command] textarea")
        expect(box).to_be_visible()
        assert box.bounding_box()["height"] > 14 * 18  # type: ignore[index]
        if scripts:
            assert box.evaluate("box => box.scrollHeight <= box.clientHeight + 1")
        context.close()


def test_without_scripts_the_site_asks_once_more_and_shows_all_of_it(
    site: Site, browser: Browser, admin_cookies: StorageState
) -> None:
    run = launch(site, LONG)
    context = browser.new_context(
        base_url=site.url, storage_state=admin_cookies, viewport=PHONE, java_script_enabled=False
    )
    page = context.new_page()
    page.goto(f"/runs/{run}/")
    reload_until_it_asks(page)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("[data-card]")).to_contain_text("Read all of it")
    expect(page.locator(".escapes__text")).to_contain_text(DEED)
    page.get_by_role("checkbox", name="I have read all of it.").check()
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url(f"**/runs/{run}/")
    assert site.export(run)["interrupts"][0]["decisions"][0]["verdict"] == "approve"
    context.close()
