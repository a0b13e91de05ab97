"""The way in, in a real browser."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def test_the_link_leads_to_the_runs_and_nothing_is_refused_by_the_policy(admin_page: "Page") -> None:
    said: list[str] = []
    admin_page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    answer = admin_page.reload()
    assert answer is not None and answer.status == 200
    admin_page.wait_for_load_state("networkidle")
    assert said == []
