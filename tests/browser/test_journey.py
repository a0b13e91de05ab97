"""The whole path on real parts: launch in the browser, watch live, approve, finish; and the same while things die."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import approve, check_ended, launch_demonstration, sign_in
from tests.stack import Site, running_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def test_a_newcomer_launches_watches_approves_and_reads_the_answer(site: Site, page: "Page") -> None:
    sign_in(page, site.fresh_link())
    waited = int(page.locator("[data-inbox-count]").first.get_attribute("data-inbox-count") or 0)
    run = launch_demonstration(page, site.url)
    page.evaluate("window.notReloaded = true")
    expect(page.locator("[data-card]")).to_contain_text("write_file")
    expect(page.locator("[data-inbox-count]").first).to_have_text(str(waited + 1))
    name = page.locator('[data-card] [name="arg.name"]')
    name.fill("basket.txt")
    expect(page.locator("[data-approve]")).to_contain_text("1 change")
    approve(page)
    export = check_ended(site, page, run)
    assert page.evaluate("window.notReloaded") is True
    assert export["run"]["totals"]["tool_calls"] == 2
    assert {
        fact["tool"]
        for step in export["steps"]
        for fact in step["facts"]
        if fact["kind"] == "react.tool.call"
    } == {
        "calculator",
        "write_file",
    }
    page.locator('[data-panel="files"]').get_by_role("link", name="basket.txt").click()
    expect(page.get_by_label("Content")).to_contain_text("93")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert "93" in Path(download.value.path()).read_text()


def test_a_run_that_waits_survives_the_death_of_everything(own_site: Site, browser: "Browser") -> None:
    page = browser.new_context().new_page()
    sign_in(page, own_site.link)
    run = launch_demonstration(page, own_site.url)
    expect(page.locator("[data-card]")).to_be_visible()
    before = own_site.export(run)
    for name in ("worker", "web", "broker"):
        own_site.back(name, own_site.kill9(name))
    after = own_site.export(run)
    assert after["steps"] == before["steps"]
    page.reload()
    approve(page)
    check_ended(own_site, page, run)
    page.context.close()


def test_with_every_message_suppressed_the_page_still_shows_every_row_once(
    tmp_path: Path, browser: "Browser"
) -> None:
    with running_site(tmp_path, {"HINTS": "0"}) as silent:
        page = browser.new_context().new_page()
        sign_in(page, silent.link)
        run = launch_demonstration(page, silent.url)
        approve(page)
        check_ended(silent, page, run)
        page.context.close()
