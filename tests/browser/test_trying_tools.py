"""A person finds a tool, tries it out, and its run asks and ends as any other; on a desk and on a phone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import DESK, PHONE, approve, check_ended, check_looks, check_page, sign_in
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.stack]


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_tool_is_found_tried_out_and_approved(site: Site, browser: Browser, size: ViewportSize) -> None:
    page = browser.new_context(base_url=site.url, viewport=size).new_page()
    sign_in(page, site.fresh_link())
    page.locator("summary.menu__button").first.click()
    page.get_by_role("link", name="Tools", exact=True).click()
    expect(page.get_by_role("heading", name="Tools", exact=True)).to_be_visible()
    check_looks(page)
    page.get_by_role("link", name="write_file").click()
    check_looks(page)
    page.set_viewport_size(size)
    page.get_by_label("content").fill("high water\n")
    page.get_by_role("button", name="Try out").click()
    expect(page.get_by_text("write_file needs the argument name.")).to_be_visible()
    expect(page.get_by_label("content")).to_have_value("high water\n")
    check_page(page)
    page.get_by_label("name").fill("tides.txt")
    page.get_by_role("button", name="Try out").click()
    page.wait_for_url(re.compile(r"/runs/\d+/$"))
    run = page.url.rstrip("/").rpartition("/")[2]
    approve(page)
    exported = check_ended(site, page, run)
    (call,) = [one for one in exported["exchanges"] if one["kind"] == "tool_call"]
    assert call["request"]["args"] == {"name": "tides.txt", "content": "high water\n"}
    page.context.close()
