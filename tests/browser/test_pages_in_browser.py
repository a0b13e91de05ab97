"""The pages in a real browser: free of axe's complaints, as wide as the screen, and whole without scripts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from tests.browser.walking import FINAL_42, SAVE, check_page, launch_save, reload_until_it_asks
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, StorageState

pytestmark = [pytest.mark.browser, pytest.mark.stack]

CLEAR = "rgba(0, 0, 0, 0)"
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1440, "height": 900}


@pytest.fixture(scope="module")
def who(admin_cookies: StorageState, site: Site) -> dict[str, object]:
    """The administrator's browser, which has signed in."""
    return {"storage_state": admin_cookies, "base_url": site.url}


@pytest.fixture(params=["desk dark", "phone light"])
def looking(request: pytest.FixtureRequest, browser: Browser, who: dict[str, object]) -> Iterator[Page]:
    """A tab on a desk or a phone, light or dark."""
    size, scheme = request.param.split()
    colours: Literal["dark", "light"] = "dark" if scheme == "dark" else "light"
    context: BrowserContext = browser.new_context(
        **who,  # type: ignore[arg-type]
        viewport=PHONE if size == "phone" else DESK,  # type: ignore[arg-type]
        color_scheme=colours,
    )
    yield context.new_page()
    context.close()


def test_every_page_is_accessible_and_fits_the_screen(site: Site, looking: Page) -> None:
    run = launch_save(site)
    looking.goto(f"/runs/{run}/")
    expect(looking.locator("[data-card]")).to_be_visible()
    check_page(looking)
    card = looking.locator("[data-card]").get_attribute("data-interrupt")
    for address in (
        *(
            "/runs/",
            "/runs/?q=none+like+this",
            "/runs/new/?demonstration",
            f"/runs/new/?like={run}",
            "/needs-you/",
        ),
        *(
            f"/interrupts/{card}/",
            f"/runs/{run}/?step=2",
            f"/runs/{run}/steps/2/",
            f"/runs/{run}/rewind/?to=2",
        ),
        *("/nowhere/",),
    ):
        looking.goto(address)
        check_page(looking)
    looking.goto(f"/runs/{run}/steps/2/")
    for tab in ("State", "Request & response", "Usage", "Facts"):
        looking.get_by_role("tab", name=tab).click()
        expect(looking.get_by_role("tabpanel")).to_have_count(1)
        check_page(looking)


def test_the_arguments_stand_together_beside_a_long_thought(
    site: Site, browser: Browser, who: dict[str, object]
) -> None:
    run = launch_save(site, "I look at what was found, and think that it has to be kept somewhere. " * 20)
    context = browser.new_context(**who, viewport={"width": 1280, "height": 800})  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"/runs/{run}/")
    expect(page.locator("[data-card] .context")).to_be_visible()
    box, beside = page.locator(".arguments").bounding_box(), page.locator(".context").bounding_box()
    first, last = (page.locator(".arguments > .field").nth(place).bounding_box() for place in (0, -1))
    assert box and beside and first and last
    assert beside["x"] > box["x"] + box["width"]
    assert first["y"] - box["y"] < 60
    assert box["y"] + box["height"] - (last["y"] + last["height"]) < 40
    assert box["height"] < beside["height"]
    context.close()


def test_the_sign_in_page_is_accessible(site: Site, page: Page) -> None:
    page.goto("/sign-in/")
    check_page(page)
    page.goto(site.fresh_link())
    check_page(page)


def test_without_scripts_a_run_is_launched_decided_and_read(
    site: Site, browser: Browser, who: dict[str, object]
) -> None:
    context = browser.new_context(**who, java_script_enabled=False)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto("/runs/new/")
    page.get_by_label("Goal").fill("Keep the answer in a file")
    page.get_by_label("Model", exact=True).select_option("script")
    page.locator("#script").fill(json.dumps({"replies": {"decision": [SAVE, FINAL_42]}}))
    page.get_by_label("write_file").check()
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    reload_until_it_asks(page)
    page.locator("textarea[name='arg.content']").fill("43\n")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".note--success")).to_have_text("Recorded: approved with changes.")
    assert "43" in page.locator("[data-kind=decision]").inner_text()
    context.close()


def test_the_button_says_how_much_was_changed(site: Site, browser: Browser, who: dict[str, object]) -> None:
    run = launch_save(site)
    context = browser.new_context(**who)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"/runs/{run}/")
    content = page.locator("textarea[name='arg.content']")
    expect(content).to_be_visible()
    expect(page.locator(".row--ask")).not_to_have_css("background-color", CLEAR)
    content.fill("43\n")
    page.locator("input[name='arg.name']").fill("b.txt")
    expect(page.locator("[data-approve]")).to_have_text("Approve with 2 changes")
    content.fill("42\n")
    expect(page.locator("[data-approve]")).to_have_text("Approve with 1 change")
    page.locator("input[name='arg.name']").press("Enter")
    expect(page.locator("[data-card]")).to_be_visible()
    page.locator("[data-approve]").click()
    expect(page.locator(".answer__text")).to_have_text("42")
    expect(page.locator(".files__link", has_text="b.txt")).to_be_visible()
    expect(page.locator(".row--ask")).to_have_css("background-color", CLEAR)  # it asks no more
    context.close()


def test_colours_and_detail_are_kept_in_this_browser(
    site: Site, browser: Browser, who: dict[str, object]
) -> None:
    run = launch_save(site)
    context = browser.new_context(**who, color_scheme="light")  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"/runs/{run}/")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_label("Your menu").click()
    page.get_by_text("Dark", exact=True).click()
    assert page.evaluate(paper) != light
    page.keyboard.press("Escape")
    page.get_by_text("Everything", exact=True).click()
    page.reload()
    assert page.evaluate(paper) != light
    expect(page.locator("[data-rows]")).to_have_attribute("data-detail", "all")
    context.close()


def test_two_runs_are_compared_by_the_keyboard(site: Site, looking: Page) -> None:
    replies = [SAVE, FINAL_42]
    script = {"replies": {"decision": replies}}
    other = {"replies": {"decision": [{"thought": "FINAL ANSWER: 41, not 42", "action": None}]}}
    settings = {"tools": ["write_file"], "rules": [{"when": {"tool": "*"}, "do": "allow"}]}
    batch = [
        {"machine": "ruled", "goal": "Keep the answer", "settings": settings, "script": one}
        for one in (script, other)
    ]
    listed = site.data_dir / "two.json"
    listed.write_text(json.dumps(batch), encoding="utf-8")
    lines = site.manage("launch", "--batch", str(listed)).splitlines()
    left, right = (json.loads(line)["run"]["id"] for line in lines)
    looking.goto(f"/runs/{right}/compare/")
    check_page(looking)
    looking.get_by_label("Run number").fill(left)
    looking.get_by_role("button", name="Compare").click()
    looking.wait_for_url(f"**/runs/{left}/compare/{right}/")
    check_page(looking)
    expect(looking.locator(".told__line--first")).to_contain_text("They differ from the first step on")
    places = looking.locator("[data-difference]")
    count = places.count()
    assert count >= 2
    looking.keyboard.press("n")
    expect(places.nth(0)).to_be_focused()
    looking.keyboard.press("j")
    expect(places.nth(1)).to_be_focused()
    looking.keyboard.press("p")
    expect(places.nth(0)).to_be_focused()
    looking.keyboard.press("k")
    expect(places.nth(0)).to_be_focused()
    assert looking.url.endswith(f"/compare/{right}/")
