"""What is larger than a message may be reaches an open page all the same, through the server as `up` starts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.live.browsing import call, launch, rows_are_complete
from tests.stack import Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]

FOLLOW = """([run, after]) => new Promise((done) => {
  const socket = new WebSocket(`ws://${location.host}/ws/runs/${run}/`);
  let seen = after, largest = 0;
  socket.onopen = () => socket.send(JSON.stringify({type: "hello", after}));
  socket.onclose = () => done({seen, largest, closed: true});
  socket.onmessage = (event) => {
    const message = JSON.parse(event.data);
    largest = Math.max(largest, event.data.length);
    if (message.type === "rows") {
      seen = message.rows.at(-1).seq;
      socket.send(JSON.stringify({type: "ack", seq: seen}));
      if (seen === message.head) done({seen, largest, closed: false});
    }
  };
})"""


@pytest.mark.parametrize("times", [7_000, 25_000])
def test_a_card_with_a_very_long_argument_arrives_in_an_open_page(
    site: Site, admin_page: Page, times: int
) -> None:
    long = "<b>ab</b> & " * times
    run = launch(site, call("send", to="ann", text="short"), call("send", to="ann", text=long))
    admin_page.goto(f"{site.url}/runs/{run}/")
    card = admin_page.locator("[data-card]")
    expect(card).to_contain_text("short")
    site.manage("decide", card.get_attribute("data-interrupt") or "", "--verdict", "approve")
    expect(card).to_contain_text("<b>ab</b> & <b>ab</b>")
    expect(admin_page.locator("[data-live-state]")).to_have_attribute("data-live-state", "live")
    rows_are_complete(site, admin_page, run)
    site.manage("decide", card.get_attribute("data-interrupt") or "", "--verdict", "approve")
    expect(admin_page.locator("[data-panel=answer]")).to_contain_text("done")


def test_a_page_that_is_hundreds_of_rows_behind_catches_up(site: Site, admin_page: Page) -> None:
    searches = [call("look_up", q=f"question {number} " * 20) for number in range(100)]
    run = launch(site, *searches, settings={"max_steps": 200, "ruleset": []})
    admin_page.goto(f"{site.url}/runs/{run}/")
    expect(admin_page.locator("[data-live-state]")).to_have_attribute("data-live-state", "ended")
    head = site.export(run)["run"]["head"]
    assert head > 500
    found = admin_page.evaluate(FOLLOW, [int(run), 5])
    assert found["seen"] == head
    assert not found["closed"]
    assert found["largest"] > 65_536, "no message was as large as it must be for this test"
