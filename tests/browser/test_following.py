"""Pages that follow: lists change as runs do, and an open question is in view or one press away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

LETTER = {"thought": "I write", "action": {"tool": "send", "args": {"to": "bob"}}}
SEND = {"params": {"to": "string"}, "effects": "send", "results": [{"output": "sent"}]}
SEARCH = {"params": {"q": "string"}, "effects": "read", "results": [{"output": "three results"}]}
LOOK = {"thought": "I look", "action": {"tool": "search", "args": {"q": "tides"}}}
FINAL = {"thought": "FINAL ANSWER: done", "action": None}
WAITS = 6


def launch(site: Site, tmp_path: Path, goal: str, *replies: object, code: int | None = WAITS) -> str:
    """Launch by a command, and wait until the run asks or ends; its number."""
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps({"replies": {"decision": replies}, "tools": {"send": SEND, "search": SEARCH}})
    )
    told = site.manage(
        *("launch", "--machine", "ruled", "--goal", goal, "--script", str(script), "--wait", "--json"),
        code=code,
    )
    return str(json.loads(told)["run"]["id"])


def test_the_lists_follow_what_happens(admin_page: Page, site: Site, tmp_path: Path) -> None:
    queue = admin_page.context.new_page()
    queue.goto("/needs-you/")
    admin_page.goto("/runs/")
    run = launch(site, tmp_path, "A letter that is followed", LETTER, FINAL)
    line = admin_page.locator(f".run[data-key='{run}']")
    expect(line).to_contain_text("Waiting")
    question = queue.locator(".ask", has_text="A letter that is followed")
    expect(question).to_be_visible()
    wait_for(lambda: queue.locator(".ask").count() == int(queue.locator("[data-inbox-count]").inner_text()))
    site.manage("decide", run, "--verdict", "approve", "--sure")
    expect(line).to_contain_text("Finished")
    expect(question).to_have_count(0)


def test_what_is_typed_beside_a_list_stays(admin_page: Page, site: Site, tmp_path: Path) -> None:
    admin_page.goto("/runs/")
    admin_page.get_by_placeholder("Goal text").fill("half a wo")
    run = launch(site, tmp_path, "Comes while somebody types", FINAL, code=0)
    expect(admin_page.locator(f".run[data-key='{run}']")).to_be_visible()
    expect(admin_page.get_by_placeholder("Goal text")).to_have_value("half a wo")


@pytest.mark.parametrize("size", [(360, 640), (1440, 600)])
def test_a_question_that_comes_out_of_sight_is_one_press_away(
    admin_page: Page, site: Site, tmp_path: Path, size: tuple[int, int]
) -> None:
    admin_page.set_viewport_size({"width": size[0], "height": size[1]})
    run = launch(site, tmp_path, "Many rows", *[LOOK] * 12, LETTER, FINAL)
    admin_page.goto(f"/runs/{run}/")
    summons = admin_page.get_by_role("link", name="A question is waiting")
    card = admin_page.locator("[data-card]")
    expect(card).to_be_in_viewport()
    expect(summons).to_be_hidden()
    admin_page.mouse.move(size[0] / 2, size[1] - 60)
    admin_page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(summons).to_be_in_viewport()
    summons.click()
    expect(card).to_be_in_viewport()
    expect(summons).to_be_hidden()
    site.manage("abort", run)
    expect(card).to_have_count(0)
    expect(summons).to_be_hidden()
