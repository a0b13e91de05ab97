"""A phone: texts without a single space make no page wider than it, and a finger finds what it is to tap."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

LONG = "W" * 300
NAME = "long_" + "w" * 55
FILE = "w" * 120 + ".txt"

LETTER: dict[str, Any] = {
    "params": {"body": "string", "copies": "integer"},
    "required": ["body"],
    "effects": "send",
    "results": [{"output": LONG}] * 9,
}
RULES = [
    {"when": {"tool": "ask_first"}, "do": "ask"},
    {"when": {"tool": "*"}, "do": "allow"},
]


def says(tool: str, **args: Any) -> dict[str, Any]:
    """A decision of the machine `ruled` that calls a tool, with a long thought."""
    return {"thought": LONG, "action": {"tool": tool, "args": args}}


def launch(site: Site, *first: dict[str, Any]) -> str:
    """A run that does `first`, then asks whether it may send a long letter, and ends with a long answer."""
    said = site.manage(
        *("launch", "--machine", "ruled", "--goal", LONG),
        *("--settings", json.dumps({"tools": [NAME, "ask_first", "write_file"], "rules": RULES})),
        "--script",
        json.dumps(
            {
                "replies": {
                    "decision": [
                        *first,
                        says("ask_first", body=LONG),
                        {"thought": f"FINAL ANSWER: {LONG}", "action": None},
                    ]
                },
                "tools": {NAME: LETTER, "ask_first": LETTER},
            }
        ),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


def question_of(site: Site, run: str) -> str:
    """The id of the run's question, once it waits with one."""

    def asked() -> list[Any]:
        found: list[Any] = site.export(run)["interrupts"]
        return found

    wait_for(asked)
    return str(asked()[-1]["id"])


@pytest.fixture(scope="module")
def addresses(site: Site) -> list[str]:
    """What shows long texts: a run that ended, one that was stopped while it asked, a fork that waits."""
    send, keep = says(NAME, body=LONG), says("write_file", name=FILE, content=LONG)
    ended, stopped = launch(site, send, keep), launch(site, send)
    answered, withdrawn = question_of(site, ended), question_of(site, stopped)
    site.manage("decide", ended, "--verdict", "reject", "--message", LONG)
    site.manage("abort", stopped)
    wait_for(lambda: site.export(ended)["run"]["status"] == "succeeded")
    forked = site.manage("fork", ended, "--at", "3", "--sure", "--message", LONG).split()[-1]
    waiting = question_of(site, forked)
    return [
        "/runs/",
        "/needs-you/",
        *(f"/interrupts/{question}/" for question in (answered, withdrawn, waiting)),
        *(f"/runs/{run}/" for run in (ended, stopped, forked)),
        *(f"/runs/{ended}/{part}" for part in ("?step=5", "steps/4/", "steps/5/", "context/", "artifacts/")),
        f"/runs/{ended}/artifacts/{FILE}/",
        *(f"/runs/{forked}/rewind/?to={row}" for row in (3, 5)),
        *(f"/runs/{ended}/fork/?at=3{how}" for how in ("", "&how=rerun")),
        f"/runs/{ended}/compare/?other={LONG}",
        *(f"/runs/{ended}/compare/{other}/" for other in (stopped, forked)),
        f"/runs/new/?like={ended}",
        "/halt/",
        "/admin/runs/interrupt/",
        *(f"/admin/runs/interrupt/{question}/change/" for question in (answered, waiting)),
        f"/admin/runs/run/{ended}/change/",
    ]


def test_a_goal_that_is_too_long_is_not_cut_but_refused_and_kept(admin_page: Page, site: Site) -> None:
    admin_page.goto(f"{site.url}/runs/new/")
    goal = admin_page.get_by_label("Goal", exact=True)
    goal.focus()
    admin_page.keyboard.insert_text("g" * 20_001)  # as if it were pasted
    admin_page.locator("main").get_by_role("button", name="Launch").click()
    said = admin_page.get_by_text("A goal has at most 20000 characters; this one has 20001.")
    expect(said).to_be_visible()
    expect(goal).to_have_value("g" * 20_001)


TOO_WIDE = """() => {
  const root = document.scrollingElement
  if (root.scrollWidth <= innerWidth) return []
  const out = [...document.querySelectorAll("body *")].filter(one => one.getBoundingClientRect().right > innerWidth)
  return [`${root.scrollWidth} px wide`, ...out.slice(-2).map(one => `${one.tagName}.${one.className}`)]
}"""
"""How wide the page is, and the innermost that stand out; nothing where it fits."""

TORN = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), torn = [], range = new Range()
  for (let text; (text = walk.nextNode());) {
    if (text.parentElement.closest("svg, script, textarea, select, pre, code")) continue
    if (text.parentElement.getBoundingClientRect().width <= 1) continue // only for screen readers
    for (const word of text.data.matchAll(/(?<!\\S)[A-Za-z]{2,16}(?!\\S)/g)) {
      range.setStart(text, word.index)
      range.setEnd(text, word.index + word[0].length)
      if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) torn.push(word[0])
    }
  }
  return torn
}"""
"""Short words that stand on two lines: only what is longer than a line may be broken."""


MISSED = """() => {
  // drawings, what is for the keyboard, and the admin's arrows beside a heading that sorts as well
  const PASSED_OVER = "svg, .skip, .unseen, .skip-to-content-link, .sortoptions"
  const small = [], targets = "a[href], button, summary, input:not([type=hidden]), select"
  for (const one of document.querySelectorAll(targets)) {
    if (!one.checkVisibility({visibilityProperty: true}) || one.closest(PASSED_OVER)) continue
    one.scrollIntoView({block: "center", inline: "center"})
    const whole = one.closest("label") ?? one, boxes = whole.getClientRects()
    if (boxes.length > 1) continue // a link of several lines is high enough
    const x = boxes[0].left + boxes[0].width / 2, y = boxes[0].top + boxes[0].height / 2
    const hits = ([dx, dy]) => whole.contains(document.elementFromPoint(x + dx, y + dy))
    if (![[0, 0], [0, 11], [0, -11], [11, 0], [-11, 0]].every(hits)) small.push(`${one.outerHTML.slice(0, 90)}`)
  }
  return small
}"""
"""What a finger would miss that comes down eleven pixels beside the middle, above it or below it."""


@pytest.fixture
def phone(admin_page: Page) -> Page:
    """The administrator's tab, as narrow as a phone."""
    admin_page.set_viewport_size({"width": 360, "height": 740})
    return admin_page


def test_no_page_is_wider_than_a_phone_for_a_long_text(addresses: list[str], phone: Page) -> None:
    faults = []
    for address in addresses:
        phone.goto(address)
        faults += [(address, *found) for found in (phone.evaluate(TOO_WIDE), phone.evaluate(TORN)) if found]
    assert not faults, "\n".join(map(str, faults))


def test_what_is_wrong_with_a_long_number_fits_the_phone(site: Site, phone: Page) -> None:
    phone.goto("/runs/new/?demonstration")
    phone.get_by_label("Tokens").fill("9" * 60)
    phone.get_by_role("button", name="Launch", exact=True).click()
    expect(phone.locator("#tokens-wrong")).to_contain_text("This must be at most 1,000,000,000,000")
    assert not phone.evaluate(TOO_WIDE)


def test_two_runs_whose_questions_were_answered_otherwise_fit_the_phone(site: Site, phone: Page) -> None:
    left, right = (launch(site, says("ask_first", body=name, copies=len(name))) for name in ("a", "bb"))
    for run, answer in ((left, ["approve"]), (right, ["reject", "--message", "Not now."])):
        asked = question_of(site, run)
        site.manage("decide", run, "--verdict", *answer)
        wait_for(lambda run=run, asked=asked: question_of(site, run) != asked)  # type: ignore[misc]
    phone.goto(f"/runs/{left}/compare/{right}/")
    expect(
        phone.locator(".place__head").get_by_text(re.compile("and \\d+ more differ")).first
    ).to_be_visible()
    assert not phone.evaluate(TOO_WIDE)


def test_a_finger_finds_what_it_is_to_tap(addresses: list[str], phone: Page) -> None:
    places = re.compile(
        r"/runs/|/needs-you/|/runs/\d+/(\?step.*|artifacts/|context/|rewind.*|compare/\d+/)?|/admin/runs/interrupt/"
    )
    faults = []
    for address in (*filter(places.fullmatch, addresses), "/admin/auth/user/"):
        phone.goto(address)
        phone.evaluate("document.querySelectorAll('.fills, .same').forEach(one => { one.open = true })")
        faults += [(address, found) for found in phone.evaluate(MISSED)]
    assert not faults, "\n".join(map(str, faults))


def test_a_question_of_one_short_line_is_large_enough_for_a_finger(site: Site, phone: Page) -> None:
    said = site.manage(
        *("launch", "--machine", "checklist", "--goal", "Ask", "--settings", '{"plan": ["Ask"]}', "--script"),
        json.dumps({"replies": {"decision": [{"action": "clarify", "questions": ["Ok?"]}]}}),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    question = question_of(site, found[0])
    phone.goto("/needs-you/")
    to_tap = phone.locator(f".ask a[href='/interrupts/{question}/']")
    expect(to_tap).to_have_text(["Ok?", "Decide"])
    for box in (link.bounding_box() for link in to_tap.all()):
        assert box is not None
        assert min(box["width"], box["height"]) >= 44
