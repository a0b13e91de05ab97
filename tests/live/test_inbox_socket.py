"""The inbox's socket, on every page: how many decisions wait for this person, and whether the site is halted."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from runs import actions, live
from runs.consumers import socket
from runs.feeds import inbox
from runs.models import Interrupt, Run
from tests.cast import person
from tests.live.valkey import Valkey
from tests.live.watching import Watcher, in_database, new_run, signed_in, stranger

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    """Alice's."""
    return new_run(person("alice", "add_run"), 3)


@pytest.fixture
def bob() -> User:
    """May see all runs, and decide."""
    return person("bob", "view_run", "decide_interrupt")


def ask(run: Run, seq: int) -> Interrupt:
    """A question of the run."""
    return Interrupt.objects.create(run=run, seq=seq, kind="tool_call", title="May I?")


async def inbox_of(user: User) -> Watcher:
    """A page of theirs, its first count heard."""
    page = Watcher("/ws/inbox/", await in_database(signed_in, user))
    assert await page.connect() == (True, 0)
    return page


async def test_the_count_comes_at_once_and_again_when_it_changes(valkey: Valkey, run: Run, bob: User) -> None:
    page = await inbox_of(bob)
    assert await page.hear() == {"type": "inbox", "count": 0, "halt": ""}
    asked = await in_database(ask, run, 1)
    live.ring_inbox()
    assert await page.hear() == {"type": "inbox", "count": 1, "halt": ""}
    await in_database(Interrupt.objects.filter(pk=asked.pk).update, status="decided")
    live.ring_inbox()
    assert await page.hear() == {"type": "inbox", "count": 0, "halt": ""}
    await page.leave()


async def test_without_a_message_layer_the_inbox_looks_for_itself(
    monkeypatch: pytest.MonkeyPatch, no_message_layer: None, run: Run, bob: User
) -> None:
    monkeypatch.setattr(inbox, "INBOX_SECONDS_WITHOUT_RINGS", 0.05)
    page = await inbox_of(bob)
    assert (await page.hear())["count"] == 0
    await in_database(ask, run, 1)
    assert (await page.hear())["count"] == 1
    await page.leave()


async def test_whoever_may_not_decide_is_told_of_nothing(no_message_layer: None, run: Run) -> None:
    await in_database(ask, run, 1)
    charlie = await in_database(stranger, "charlie", "add_run")
    page = await inbox_of(charlie)
    assert (await page.hear())["count"] == 0
    await page.line.send_json_to({"type": "ping"})
    assert (await page.hear())["type"] == "pong"
    await page.leave()


async def test_nobody_has_an_inbox_without_signing_in(run: Run) -> None:
    page = Watcher("/ws/inbox/", "no-such-session")
    assert await page.connect() == (False, socket.NOT_ALLOWED)
    await page.leave()


async def test_signing_out_closes_it(
    monkeypatch: pytest.MonkeyPatch, no_message_layer: None, bob: User
) -> None:
    monkeypatch.setattr(socket, "RECHECK_SECONDS", 0.2)
    page = await inbox_of(bob)
    await page.hear()
    await in_database(Session.objects.all().delete)
    assert await page.closed_with() == socket.NOT_ALLOWED
    await page.leave()


async def test_ten_pages_of_one_person_ask_the_database_once(
    monkeypatch: pytest.MonkeyPatch, valkey: Valkey, run: Run, bob: User
) -> None:
    assert live.flush(), "of bob's new rights the pages are not told later, and do not ask again"
    pages = [await inbox_of(bob) for _ in range(10)]
    for page in pages:
        assert (await page.hear())["count"] == 0
    asked: list[Any] = []
    real = inbox.cards.pending_count

    def noted(user: User) -> int:
        asked.append(user)
        return real(user)

    monkeypatch.setattr(inbox.cards, "pending_count", noted)
    await in_database(ask, run, 1)
    live.ring_inbox()
    for page in pages:
        assert (await page.hear())["count"] == 1
        await page.leave()
    assert len(asked) <= 3


async def test_a_halt_its_reason_and_its_end_reach_every_page_at_once(valkey: Valkey, bob: User) -> None:
    page = await inbox_of(bob)
    assert (await page.hear())["halt"] == ""
    await in_database(actions.halt_site, by=None, reason="")
    said = (await page.hear())["halt"]
    assert "All runs are halted" in said and "the operator" in said
    await in_database(actions.halt_site, by=None, reason="<i>prices</i>")
    assert "&lt;i&gt;prices&lt;/i&gt;" in (await page.hear())["halt"]
    await in_database(actions.unhalt_site, by=None)
    assert (await page.hear())["halt"] == ""
    await page.leave()


async def test_without_a_message_layer_a_halt_is_seen_by_looking(
    monkeypatch: pytest.MonkeyPatch, no_message_layer: None, bob: User
) -> None:
    monkeypatch.setattr(inbox, "INBOX_SECONDS_WITHOUT_RINGS", 0.05)
    page = await inbox_of(bob)
    assert (await page.hear())["halt"] == ""
    await in_database(actions.halt_site, by=None, reason="prices")
    assert "prices" in (await page.hear())["halt"]
    await page.leave()


async def test_a_page_that_connects_is_told_what_is_so_now(no_message_layer: None, bob: User) -> None:
    """Nobody rings, and another page of the same person has been told before."""
    before = await inbox_of(bob)
    assert (await before.hear())["halt"] == ""
    await in_database(actions.halt_site, by=None, reason="prices")
    page = await inbox_of(bob)
    assert "prices" in (await page.hear())["halt"]
    for one in (before, page):
        await one.leave()


async def test_the_banner_is_the_one_that_the_page_was_painted_with(no_message_layer: None) -> None:
    """Each as they may see it: only who may halt is led to the way back."""
    await in_database(actions.halt_site, by=None, reason="prices")
    for name, rights, led in (("bob", ("view_run",), False), ("root", ("halt_site",), True)):
        user = await in_database(person, name, *rights)
        page = await inbox_of(user)
        banner = (await page.hear())["halt"]
        assert (reverse("halt") in banner) is led
        assert f">{banner}</div>" in await in_database(painted_for, user)
        await page.leave()


def painted_for(user: User) -> str:
    """The list of runs as the site paints it first."""
    client = Client()
    client.force_login(user)
    return client.get(reverse("runs")).content.decode()
