"""Everything dies in the middle of a run; it goes back past a letter that was sent, and is forked to another model."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.walking import approve, check_ended, rows_of, sign_in
from tests.stack import Site, running_site, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

GOAL = "Find out when the ferry to Groix sails, and tell the crew"
LETTER = {"to": "the crew", "text": "We sail at 06:40."}
SECOND_LETTER = {"to": "the harbour", "text": "Keep berth 4 for us."}
OTHER_LETTER = {"to": "the crew", "text": "We sail at 11:15, after the fog."}
OTHER_MODEL = "the cautious one"


def call(thought: str, tool: str, **args: str) -> dict[str, Any]:
    """A reply that calls a tool."""
    return {"thought": thought, "action": {"tool": tool, "args": args}}


def answer(text: str) -> dict[str, Any]:
    """The reply that ends the run."""
    return {"thought": f"FINAL ANSWER: {text}", "action": None}


TOOLS: dict[str, Any] = {
    "look_up": {
        "params": {"what": "string"},
        "required": ["what"],
        "effects": "read",
        "results": [{"output": f"page {number} of the almanac"} for number in range(1, 9)],
    },
    "send_letter": {
        "params": {"to": "string", "text": "string"},
        "required": ["to", "text"],
        "effects": "send",
        "results": [{"output": f"letter {number} is on its way"} for number in range(1, 5)],
    },
}
PACE = {"model_s": 1.0, "tool_s": 0.1}
USAGE = {"input_tokens": 400, "output_tokens": 50, "cost_usd": 0.003}
BEGINNING = call("First the timetable of the ferry.", "look_up", what="timetable")
SCRIPT: dict[str, Any] = {
    "replies": {
        "decision": [
            BEGINNING,
            call("Then the tide at the quay.", "look_up", what="tide"),
            call("The crew has to know it now.", "send_letter", **LETTER),
            call(
                "The berths of the harbour are in the almanac too; I look them up.", "look_up", what="berths"
            ),
            call("The harbour has to know it as well.", "send_letter", **SECOND_LETTER),
            # The thought about the first letter is remembered when the run goes back before it; then:
            answer("The ferry sails at 06:40; the crew knows."),
        ]
    },
    "tools": TOOLS,
    "pace": PACE,
    "usage": USAGE,
}
OTHER_SCRIPT: dict[str, Any] = {
    "replies": {
        "decision": [
            BEGINNING,  # what the fork has as a copy counts
            call("There is fog in the morning: a later one.", "send_letter", **OTHER_LETTER),
            answer("The ferry sails at 11:15; the crew knows."),
        ]
    },
    "tools": TOOLS,
    "usage": {**USAGE, "cost_usd": 0.009},
}


def launched(site: Site) -> str:
    """The run, begun by the operator; its number."""
    said = site.manage(
        *("launch", "--machine", "ruled", "--goal", GOAL),
        *("--settings", json.dumps({"tools": list(TOOLS)}), "--script", json.dumps(SCRIPT)),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


def add_other_model(site: Site) -> None:
    """A second model that says other things."""
    site.manage(
        *("shell", "-c"),
        "from runs.models import ModelProfile\n"
        f"ModelProfile.objects.create(name={OTHER_MODEL!r}, kind='script', "
        f"script_json={json.dumps(OTHER_SCRIPT)!r})",
    )


def pictures(page: Page, name: str) -> None:
    """The page on a desk and on a phone; nothing to scroll sideways for. Kept where somebody wants it."""
    where = os.environ.get("SCREENSHOTS")
    for width, height in ((360, 740), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("scrollTo(0, 0)")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        if where:
            page.screenshot(path=str(Path(where) / f"{name}-{width}.png"), full_page=True)


def check_rows(page: Page, export: dict[str, Any]) -> None:
    """The page has every row of the log, once, in order, as what it is, and dimmed where it was rolled back."""
    rows = page.eval_on_selector_all(
        "[data-timeline] > [data-seq]",
        "rows => rows.map(({dataset}) => [Number(dataset.seq), dataset.kind, dataset.live === 'true'])",
    )
    assert rows == [[step["seq"], step["kind"], step["live"]] for step in export["steps"]]


def waits_with(page: Page, letter: dict[str, str]) -> None:
    """The run waits for somebody to let this letter go."""
    card = page.locator("[data-card]")
    for name, value in letter.items():
        expect(card.locator(f'[name="arg.{name}"]')).to_have_value(value)


def let_go(page: Page, letter: dict[str, str]) -> None:
    """Approve this letter, as a call that can't be taken back is approved."""
    waits_with(page, letter)
    page.get_by_label("I have read this call").check()
    approve(page)


def row_of_result(page: Page, text: str) -> int:
    """The row in which a tool gave this."""
    row = page.locator("[data-timeline] > li", has_text=text)
    return int(row.get_attribute("data-seq") or 0)


def open_from_row(page: Page, seq: int, link: str) -> None:
    """From a row of the page to what can be done from there."""
    page.locator(f'[data-timeline] [data-step="{seq}"]').click()
    page.locator("[data-inspector]").get_by_role("link", name=link).click()


def die_and_rise(site: Site, page: Page, run: str) -> int:
    """Everything is killed while the model thinks on; the page that is open comes back by itself, with all of it.

    Gives the last row, with which the run waits for a person again.
    """
    live = page.locator("[data-live-state]")
    page.locator("[data-timeline] > li", has_text="letter 1 is on its way").wait_for()
    died = site.pids
    assert set(died) == {"broker", "worker", "scheduler", "web"}
    site.kill_all()
    expect(live).to_have_attribute("data-live-state", "reconnecting")
    # what is shown is not to be taken for current
    expect(page.locator(".top .state__head")).to_have_css("filter", "grayscale(1)")
    before = site.export(run)
    assert before["run"]["status"] == "running"
    pictures(page, "dead")
    site.stop()
    site.start()
    assert not set(died.values()) & set(site.pids.values())
    waits_with(page, SECOND_LETTER)
    expect(live).to_have_attribute("data-live-state", "live")
    after = site.export(run)
    wait_for(lambda: rows_of(page)[-1:] == [after["run"]["head"]])
    check_rows(page, after)
    assert after["steps"][: before["run"]["head"]] == before["steps"]
    assert calls_of(after) == ["look_up", "look_up", "send_letter", "look_up"]
    assert page.evaluate("window.notReloaded") is True
    return int(after["run"]["head"])


def calls_of(export: dict[str, Any]) -> list[str]:
    """The tools that were called, in order; all of them once."""
    return [one["name"] for one in export["exchanges"] if one["kind"] == "tool_call"]


def roll_back(site: Site, page: Page, run: str, head: int) -> None:
    """Back before the letter: the page says what stays done and what comes again; the question is asked again."""
    to = row_of_result(page, "page 2 of")
    open_from_row(page, to, "Roll back to here…")
    stays = page.locator(".note--warn")
    expect(stays).to_contain_text("stay, and may be repeated")
    expect(stays.locator("li")).to_have_count(1)
    expect(stays.locator("li")).to_contain_text("sends")
    expect(stays.locator("code")).to_have_text('send_letter(text="We sail at 06:40.", to="the crew")')
    expect(page.locator(".sheet")).to_contain_text("Estimated to add: $0.009 (3 model calls")
    expect(page.get_by_label("Keep the answers")).to_be_enabled()
    expect(page.get_by_label("Ask again")).to_be_checked()
    pictures(page, "rewind")
    page.get_by_label("Why").fill("The time is wrong.")
    page.get_by_role("button", name=f"Roll back to step {to}").click()
    waits_with(page, LETTER)
    gone = page.locator('[data-timeline] > [data-live="false"]')
    assert gone.evaluate_all("rows => rows.map(row => Number(row.dataset.seq))") == [*range(to + 1, head + 1)]
    check_rows(page, site.export(run))
    pictures(page, "rolled-back")


def fork(page: Page, run: str, at: int) -> str:
    """From the first look-up on with another model; the number of the fork."""
    open_from_row(page, at, "Fork from here…")
    warned = page.locator(".note--warn")
    expect(warned).to_contain_text("stay, and may be repeated")
    expect(warned.locator("li")).to_have_count(2)
    page.get_by_label("Model").select_option(OTHER_MODEL)
    pictures(page, "fork")
    page.get_by_role("button", name=re.compile("^Fork from step")).click()
    page.wait_for_url(re.compile(rf"/runs/(?!{run}\b)\d+/"))
    let_go(page, OTHER_LETTER)
    found = re.search(r"/runs/(\d+)/", page.url)
    assert found is not None
    return found[1]


def compare(page: Page, run: str, forked: str, at: int) -> None:
    """The fork says where it comes from; beside its source it says in words where they part."""
    about = page.locator(".top__about")
    expect(about).to_contain_text(f"#{run} at step {at}")
    expect(about).to_contain_text(OTHER_MODEL)
    pictures(page, "forked")
    about.get_by_role("link", name="compare").click()
    page.wait_for_url(f"**/runs/{run}/compare/{forked}/")
    told = page.locator(".told__line")
    expect(told.first).to_have_text("The same for 2 steps, then they differ.")
    expect(told.nth(1)).to_have_text(f'Then only in #{run}: look_up(what="tide").')
    letters = page.locator(".place", has_text=OTHER_LETTER["text"])
    expect(letters.first).to_contain_text(LETTER["text"])
    terms = page.locator('[aria-labelledby="terms-title"] .values__name')
    expect(terms).to_have_text(["model", "script"])
    pictures(page, "compare")


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Site]:
    """A site of the test's own, on which a worker counts as lost sooner than is usual."""
    with running_site(tmp_path, {"LEASE_SECONDS": "8"}) as site:
        yield site


def test_a_run_outlives_everything_goes_back_and_goes_another_way(mortal: Site, browser: Browser) -> None:
    page = browser.new_context(base_url=mortal.url, viewport={"width": 1440, "height": 900}).new_page()
    sign_in(page, mortal.link)
    run = launched(mortal)
    page.goto(f"/runs/{run}/")
    page.evaluate("window.notReloaded = true")
    let_go(page, LETTER)
    head = die_and_rise(mortal, page, run)

    roll_back(mortal, page, run, head)
    let_go(page, LETTER)
    export = check_ended(mortal, page, run)
    assert calls_of(export) == ["look_up", "look_up", "send_letter", "look_up", "send_letter"]

    add_other_model(mortal)
    at = row_of_result(page, "page 1 of")
    forked = fork(page, run, at)
    check_ended(mortal, page, forked)
    compare(page, run, forked, at)
    assert mortal.manage("verify", "--all") == "2 runs verify.\n"
    page.context.close()
