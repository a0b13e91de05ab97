"""A form that is sent by somebody who has been signed out meanwhile: what was typed is not lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import launch_save, sign_in
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

REASON = "A reason of some length."


def sign_out(page: Page, site: Site) -> None:
    """By another tab."""
    other = page.context.new_page()
    other.goto(f"{site.url}/runs/")
    other.get_by_label("Your menu").click()
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url("**/sign-in/**")
    other.close()


def sign_in_elsewhere(page: Page, site: Site) -> None:
    other = page.context.new_page()
    sign_in(other, site.fresh_link())
    other.close()


@pytest.mark.parametrize("how", ["signed out", "without cookies"])
def test_a_form_says_that_its_writer_is_signed_out_and_keeps_what_was_typed(
    site: Site, page: Page, how: str
) -> None:
    sign_in(page, site.fresh_link())
    run = launch_save(site)
    address = f"{site.url}/runs/{run}/fork/?at=0&how=rerun"
    for form, field, button in (
        (f"{site.url}/runs/new/", "goal", "Launch"),
        (address, "message", "Run again from the beginning"),
        (f"{site.url}/halt/", "reason", "Halt all runs"),
    ):
        page.goto(form)
        page.locator(f"main [name={field}]").fill(REASON)
        if how == "signed out":
            sign_out(page, site)
        else:
            page.context.clear_cookies()
        page.locator("main").get_by_role("button", name=button).last.click()
        expect(page.get_by_text("You were signed out. Sign in in another tab")).to_be_visible()
        expect(page).to_have_url(form)
        expect(page.locator(f"main [name={field}]")).to_have_value(REASON)
        sign_in_elsewhere(page, site)
    page.goto(address)
    page.locator("[name=message]").fill(REASON)
    sign_out(page, site)
    sign_in_elsewhere(page, site)
    page.get_by_role("button", name="Run again from the beginning").click()
    expect(page.get_by_text("Run again, from step 0 of")).to_be_visible()


def test_without_scripts_the_way_back_leads_to_what_was_typed(site: Site, browser: Browser) -> None:
    context = browser.new_context(base_url=site.url, java_script_enabled=False)
    page = context.new_page()
    sign_in(page, site.fresh_link())
    run = launch_save(site)
    page.goto(f"/runs/{run}/fork/?at=0&how=rerun")
    page.locator("[name=message]").fill(REASON)
    sign_out(page, site)
    page.get_by_role("button", name="Run again from the beginning").click()
    expect(page.get_by_text("You were signed out, so nothing was sent.")).to_be_visible()
    sign_in_elsewhere(page, site)
    page.go_back()
    expect(page.locator("[name=message]")).to_have_value(REASON)
    page.get_by_role("button", name="Run again from the beginning").click()
    expect(page.get_by_text("Run again, from step 0 of")).to_be_visible()
    context.close()
