"""A run whose model writes a script: launched from the form, its inner call approved on the page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import DESK, PHONE, approve, check_ended, check_page, sign_in
from tests.launching import think
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytest.importorskip("pydantic_monty")
pytestmark = [pytest.mark.browser, pytest.mark.stack]

CODE = """\
rows = [(day, 1.2 + 0.1 * day) for day in range(1, 8)]
total = calculator(expression=" + ".join(f"{height:.1f}" for _, height in rows))
print(f"{len(rows)} days, {total} m in all")
made = write_file(name="tides.csv", content="\\n".join(f"{day},{height:.1f}" for day, height in rows))
made["bytes"]
"""


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["wide", "narrow"])
def test_a_call_out_of_a_script_is_approved_on_the_page(
    site: Site, browser: Browser, size: ViewportSize
) -> None:
    page = browser.new_context(base_url=site.url, viewport=size).new_page()
    sign_in(page, site.fresh_link())
    launch(page)
    run = page.url.rstrip("/").rpartition("/")[2]
    expect(page.get_by_role("heading", name="Run write_file?")).to_be_visible()
    check_page(page)
    approve(page)
    exported = check_ended(site, page, run)
    asked = [one["name"] for one in exported["exchanges"] if one["kind"] == "tool_call"]
    assert asked == ["python", "calculator", "python", "write_file", "python"]
    expect(page.get_by_text("in a script").first).to_be_visible()
    check_page(page)
    page.context.close()


def launch(page: Page) -> None:
    """Launch a run that calls `python` once."""
    final = {"thought": "FINAL ANSWER: The tides are in tides.csv.", "action": None}
    script = {"replies": {"decision": [think("python", code=CODE), final]}, "tools": {}}
    page.goto("/runs/new/")
    page.get_by_label("Goal").fill("Write the tides of a week to a file.")
    page.get_by_label("Model", exact=True).select_option("script")
    page.get_by_role("textbox", name="Script").fill(json.dumps(script))
    for tool in ("python", "calculator", "write_file"):
        page.locator(f'input[name="tools"][value="{tool}"]').check()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
