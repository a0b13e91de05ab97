"""An administrator adds a server of their own: a preset, its list of models, a test that shows itself when it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.walking import check_page, picture, sign_in
from tests.fake_model_server import FakeModelServer, Refuses, Says
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

pytestmark = [pytest.mark.browser, pytest.mark.stack]

FOUND = Says({"thought": "12 and 30 make 42", "number": 42})
COUNTED = Says("one, two, three, four", pieces=8)
SMALLER = Refuses(400, {"message": "This model's maximum context length is 2048 tokens."})


@pytest.mark.parametrize(("name", "width", "height"), [("wide", 1440, 900), ("narrow", 360, 740)])
def test_a_model_is_added_by_a_preset_chosen_and_tested(
    site: Site, browser: Browser, name: str, width: int, height: int
) -> None:
    size: ViewportSize = {"width": width, "height": height}
    page = browser.new_context(base_url=site.url, viewport=size).new_page()
    sign_in(page, site.fresh_link())
    with FakeModelServer([FOUND, COUNTED, FOUND, COUNTED, SMALLER]) as server:
        server.models_are("small-1", "large-1", max_model_len=4_096)
        page.goto("/models/add/")
        look(page, f"presets-{name}")
        page.get_by_role("link", name="vLLM").click()
        look(page, f"add-{name}")
        page.get_by_label("Name", exact=True).fill(name)
        page.get_by_label("Address").fill("nowhere at all")
        page.get_by_role("button", name="Save and test").click()
        expect(page.get_by_text("Not saved. Fix the marked fields.")).to_be_visible()
        expect(page.get_by_label("Name", exact=True)).to_have_value(name)
        look(page, f"refused-{name}")
        page.get_by_label("Address").fill(server.base_url)
        page.get_by_role("button", name="Save and test").click()
        expect(page.get_by_text("The server has 2 models. Choose one.")).to_be_visible()
        look(page, f"choose-{name}")
        page.get_by_label("Models of the server").select_option("large-1")
        page.get_by_role("button", name="Use this model").click()
        expect(page.get_by_text("Replies stream: 7 pieces")).to_be_visible()
        expect(page.get_by_label("Context tokens")).to_have_value("4096")
        page.get_by_label("Also send a prompt over the context").check()
        page.get_by_role("button", name="Test connection").click()
        expect(page.get_by_text("Set Context tokens to 2048.")).to_be_visible()
        look(page, f"tested-{name}")
    page.goto("/models/")
    expect(page.locator("li.model", has=page.get_by_role("link", name=name))).to_contain_text(
        "works, see notes"
    )
    look(page, f"list-{name}")
    page.context.close()


def look(page: Page, name: str) -> None:
    check_page(page)
    picture(page, f"models-{name}")
