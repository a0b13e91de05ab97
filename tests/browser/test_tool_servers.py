"""An administrator adds an MCP server without scripts, approves a tool, and a run calls it once a person lets it."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.adapters.mcp.serving import FAKE
from tests.browser.walking import approve, check_ended, check_page, sign_in
from tests.launching import think
from tests.stack import Site, wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.stack]


@pytest.mark.parametrize(("name", "width", "height"), [("wide", 1440, 900), ("narrow", 360, 740)])
def test_a_server_is_added_its_tool_approved_and_called(
    site: Site, browser: Browser, name: str, width: int, height: int
) -> None:
    size: ViewportSize = {"width": width, "height": height}
    plain = browser.new_context(base_url=site.url, viewport=size, java_script_enabled=False)
    page = plain.new_page()
    sign_in(page, site.fresh_link())
    page.goto("/servers/")
    page.get_by_role("link", name="Add server").first.click()
    page.locator("#name").fill(name)
    page.get_by_role("button", name="Save and look for tools").click()
    expect(page.get_by_text("Enter the program of the server.")).to_be_visible()
    page.locator("#command").fill(f"{sys.executable}\n{FAKE}\nstdio")
    page.get_by_role("button", name="Save and look for tools").click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    tool = page.locator("li.defined__tool", has=page.get_by_text(f"{name}.echo", exact=True))
    wait_for(lambda: listed(page))
    tool.get_by_role("button", name="Approve").click()
    expect(page.get_by_text(f"{name}.echo is on.")).to_be_visible()
    state, address = plain.storage_state(), page.url
    plain.close()

    page = browser.new_context(base_url=site.url, viewport=size, storage_state=state).new_page()
    for seen in (address, "/servers/", "/servers/add/"):
        page.goto(seen)
        check_page(page)
    launch(page, f"{name}.echo")
    run = page.url.rstrip("/").rpartition("/")[2]
    expect(page.get_by_role("heading", name=f"Run {name}.echo?")).to_be_visible()
    check_page(page)
    page.get_by_label("I have read this call").check()
    approve(page)
    exported = check_ended(site, page, run)
    (call,) = [one for one in exported["exchanges"] if one["kind"] == "tool_call"]
    assert call["answer"]["value"] == {"result": "high water"}
    page.context.close()


def listed(page: Page) -> bool:
    page.reload()
    return bool(page.locator("li.defined__tool").count())


def launch(page: Page, tool: str) -> None:
    """Launch a run that calls the tool once."""
    final = {"thought": "FINAL ANSWER: done", "action": None}
    script = {"replies": {"decision": [think(tool, text="high water"), final]}, "tools": {}}
    page.goto("/runs/new/")
    page.get_by_label("Goal").fill("Ask the server")
    page.get_by_label("Model", exact=True).select_option("script")
    page.get_by_role("textbox", name="Script").fill(json.dumps(script))
    page.locator(f'input[name="tools"][value="{tool}"]').check()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
