"""The three machines with parts of their own: launched from the form, watched live, approved, and read to the end."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.browser.walking import approve, check_ended, check_looks, launch_demonstration
from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def marks(page: Page) -> list[str]:
    """The marks of the plan at hand."""
    found: list[str] = page.eval_on_selector_all(
        '[data-panel="machine"] .machine-part__main > .plan > [data-status]',
        "rows => rows.map(row => row.dataset.status)",
    )
    return found


def launched_and_watched(site: Site, page: Page, machine: str) -> str:
    """The demonstration, as far as its question; the page is never loaded again."""
    run = launch_demonstration(page, site.url, machine)
    page.evaluate("window.notReloaded = true")
    expect(page.locator("[data-card]")).to_contain_text("write_file")
    check_looks(page)
    return run


def approved_to_the_end(site: Site, page: Page, run: str) -> None:
    """Approve, and see the end on the same page."""
    approve(page)
    check_ended(site, page, run)
    assert page.evaluate("window.notReloaded") is True
    check_looks(page)
    live = page.locator('[data-panel="machine"]').inner_text()
    page.reload()
    assert page.locator('[data-panel="machine"]').inner_text() == live


def test_a_contract_fills_up(site: Site, admin_page: Page) -> None:
    run = launched_and_watched(site, admin_page, "contract")
    part = admin_page.locator('[data-panel="machine"]')
    expect(part).to_contain_text("1 of 2 slots filled")
    expect(part.locator('[data-slot="litres"]')).to_contain_text("week_sum")
    expect(part.locator('[data-slot="plan"]')).to_contain_text("empty")
    approved_to_the_end(site, admin_page, run)
    expect(part).to_contain_text("2 of 2 slots filled")
    with admin_page.expect_download() as download:
        part.locator('[data-slot="plan"]').get_by_role("link", name="watering.md").click()
    assert "98 litres" in download.value.path().read_text()
    part.get_by_text("As the model is told").click()
    expect(part.locator("pre")).to_contain_text("BUDGET_STATE: global(decisions left 7/10")


def test_a_checklist_is_ticked_off(site: Site, admin_page: Page) -> None:
    run = launched_and_watched(site, admin_page, "checklist")
    wait_for(lambda: marks(admin_page) == ["done", "now", "later"])
    approved_to_the_end(site, admin_page, run)
    wait_for(lambda: marks(admin_page) == ["done", "done", "failed"])


def test_a_plan_is_followed_left_and_made_again(site: Site, admin_page: Page) -> None:
    run = launched_and_watched(site, admin_page, "planned")
    wait_for(lambda: marks(admin_page) == ["pending", "later"])
    old = admin_page.locator(".plan-old")
    old.locator("summary").click()
    expect(old).to_contain_text("skipped: duplicate action")
    approve(admin_page)
    check_ended(site, admin_page, run)
    assert admin_page.evaluate("window.notReloaded") is True
    wait_for(lambda: marks(admin_page) == ["done", "done"])
    expect(
        old.locator("[data-status]").first
    ).to_be_visible()  # what was opened stays open while panels change
    check_looks(admin_page)


def test_a_slot_is_added_and_what_is_wrong_is_shown_beside_it(site: Site, admin_page: Page) -> None:
    admin_page.goto("/runs/new/?demonstration=contract")
    admin_page.get_by_role("button", name="Add slot").click()
    admin_page.locator('[name="slots-3-description"]').fill("a fourth one")
    assert not admin_page.locator('[name="steps"]').is_visible()
    check_looks(admin_page)
    admin_page.get_by_role("button", name="Launch", exact=True).click()
    expect(admin_page.locator("#slots-wrong")).to_have_text("Row 3, id: This is missing.")
    expect(admin_page.locator('[name="slots-2-id"]')).to_have_attribute("aria-invalid", "true")
    expect(admin_page.locator('[name="slots-2-description"]')).to_have_value("a fourth one")
    check_looks(admin_page)
    for machine in ("checklist", "planned"):
        admin_page.get_by_role("radio", name=re.compile(machine)).check()
        check_looks(admin_page)


def test_a_childs_progress_is_seen_live_on_its_parents_page(site: Site, admin_page: Page) -> None:
    asks: dict[str, Any] = {"action": "call_tool", "strategy": "exploit", "notes": "→ [1] writing"}
    asks |= {"tool_call": {"tool_id": "write_file", "params": {"name": "a.txt", "content": "x"}}}
    done = {"action": "complete", "notes": "✓ [1]", "completion_summary": "High at noon."}
    script = {
        "replies": {
            "decision": [
                {"thought": "I ask.", "tool": "agent.helper", "args": {"goal": "Write it"}},
                {"thought": "I say it.", "tool": "final_answer", "args": {"answer": "High at noon."}},
            ]
        },
        "subgraphs": {"helper": {"replies": {"decision": [asks, done]}}},
        "pace": {"model_s": 1},
    }
    child = {"machine": "checklist", "settings": {"plan": ["write"], "tools": ["write_file"]}}
    settings = {"plan": [], "subgraphs": {"helper": child}}
    said = site.manage(
        *("launch", "--machine", "planned", "--goal", "Ask a helper"),
        *("--settings", json.dumps(settings), "--script", json.dumps(script)),
    )
    found = re.search(r"\d+", said)
    assert found is not None
    admin_page.goto(f"/runs/{found[0]}/")
    line = admin_page.locator(".row__child")
    expect(line).to_contain_text("Waiting")
    expect(line).to_contain_text("at tool execution")
    check_looks(admin_page)
    line.get_by_role("link").click()
    admin_page.wait_for_url(re.compile(rf"/runs/(?!{found[0]}/)\d+/"))
    check_looks(admin_page)
    approve(admin_page)
    expect(admin_page.locator('[data-panel="header"]')).to_contain_text("Finished")
    admin_page.get_by_role("link", name=f"#{found[0]}").click()
    expect(admin_page.locator('[data-panel="header"]')).to_contain_text("Finished")
    expect(admin_page.locator(".row__child")).to_contain_text("Finished")
    assert "steps verified" in site.manage("verify", found[0])
