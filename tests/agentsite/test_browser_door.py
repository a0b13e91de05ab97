"""The way in, in a real browser."""

from typing import TYPE_CHECKING

import pytest

from tests.browser.walking import sign_in
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def test_the_link_leads_to_the_runs_and_nothing_is_refused_by_the_policy(site: Site, page: "Page") -> None:
    sign_in(page, site.fresh_link())
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    answer = page.reload()
    assert answer is not None and answer.status == 200
    page.wait_for_load_state("networkidle")
    assert said == []
