"""What the model reads, on the page: it grows live, a compaction can be read and mended, the next prompt shows it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

SEARCH: dict[str, Any] = {
    "params": {"q": "string"},
    "required": ["q"],
    "effects": "read",
    "results": [
        {"output": [{"url": f"https://tides.example/{n}", "title": f"Table {n}", "text": "high water " * 30}]}
        for n in range(24)
    ],
}
SUMMARY = {"goal": "Compare tides", "critical_context": "Brest: 3,400 cm"}


def launch(site: Site) -> str:
    """A run in a small window that stops to be looked at every eight steps; its number."""
    replies: list[Any] = [
        {"thought": f"I look up station {n}.", "action": {"tool": "search", "args": {"q": f"station {n}"}}}
        for n in range(24)
    ]
    answer = {"thought": "FINAL ANSWER: High at Brest [[S:1]].", "action": None}
    script = {
        "replies": {"decision": [*replies, answer], "summary": [SUMMARY] * 20},
        "tools": {"search": SEARCH},
    }
    settings = {"context": {"limit_tokens": 1400}, "interrupt_every": 8, "max_steps": 60, "ruleset": []}
    said = site.manage(
        *("launch", "--machine", "ruled", "--goal", "Compare the tides"),
        *("--settings", json.dumps(settings | {"tools": ["search"]}), "--script", json.dumps(script)),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


def go_on(page: Page) -> None:
    """Answer the question that the run waits with."""
    page.get_by_role("button", name="Continue", exact=True).click()


def call_after_mending(site: Site, run: str) -> int | None:
    """The step of the first model call after a summary was corrected; None as long as there is none."""
    exported = site.export(run)
    mended = next(
        step["seq"] for step in exported["steps"] if "conv.summary.edited" in json.dumps(step["facts"])
    )
    calls = (one["seq"] for one in exported["exchanges"] if one["kind"] == "model_call")
    return next((seq for seq in calls if seq > mended), None)


def check_page(page: Page) -> None:
    """No fault that axe knows, and nothing wider than a phone."""
    faults = Axe().run(page).response["violations"]
    assert not faults, [(fault["id"], [node["html"][:200] for node in fault["nodes"]]) for fault in faults]
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size({"width": 1440, "height": 900})


def test_a_summary_is_mended_and_the_next_prompt_shows_it(site: Site, admin_page: Page) -> None:
    page, run = admin_page, launch(site)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(f"/runs/{run}/")
    panel = page.locator('[data-panel="context"]')
    expect(page.locator('[data-panel="header"]')).to_contain_text("Waiting")
    expect(panel).to_contain_text("of 1,400 tokens")
    before = panel.locator(".filling__said").inner_text()
    go_on(page)
    row = page.locator('[data-rows] > [data-kind="compaction"]').first
    expect(row).to_contain_text("tokens, steps")
    begun = page.locator('[data-rows] > [data-kind="ask"]', has_text="Summarises").first
    expect(begun).to_contain_text("steps")
    expect(panel.locator(".filling__said")).not_to_have_text(before)
    wait_for(lambda: site.export(run)["run"]["status"] == "waiting")
    made = [step["seq"] for step in site.export(run)["steps"] if step["kind"] == "compaction"]
    row = page.locator(f'[data-rows] > [data-seq="{made[-1]}"]')
    row.locator("a").first.click()
    inspector = page.locator("[data-inspector]")
    expect(inspector.locator(".pair__text")).to_contain_text("Brest: 3,400 cm")
    expect(inspector.locator(".originals__item").nth(1)).to_be_visible()
    inspector.get_by_role("link", name="Correct or revert").click()
    page.wait_for_url("**/context/#summary-*")
    check_page(page)
    page.get_by_text("Correct…").click()
    text = page.get_by_label("Summary (at most")
    text.fill(text.input_value().replace("3,400", "340"))
    page.get_by_label("Why (kept").fill("A zero too much.")
    page.get_by_role("button", name="Save correction").click()
    expect(page.locator(".pair__text").first).to_contain_text("Brest: 340 cm")
    page.goto(f"/runs/{run}/")
    expect(page.locator("[data-rows]")).to_contain_text("A zero too much.")
    go_on(page)
    wait_for(lambda: call_after_mending(site, run))
    page.goto(f"/runs/{run}/context/?step={call_after_mending(site, run)}")
    said = page.locator(".news")
    expect(said).to_contain_text("tokens")
    expect(said.locator("ins", has_text="340").first).to_be_visible()
    check_page(page)
    site.manage("abort", str(run))  # nobody shall wait for it: the site is shared
