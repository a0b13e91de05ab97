"""A page that watches a run: every row once and in order, whatever happens to the rings."""

import asyncio
import random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from runs import actions, live
from runs.consumers import run as run_socket
from runs.consumers import socket
from runs.consumers.admission import admission
from runs.engine.effects import ToolReturned
from runs.feeds import feed as run_feed
from runs.feeds import feed_of, read, reads
from runs.live.listening import hub
from runs.models import Budget, Run, RunStatus, Step
from runs.store import backups
from tests.cast import person
from tests.launching import ALLOW, FINAL, launch, think
from tests.live.valkey import Valkey
from tests.live.watching import Watcher, go_back, grow, in_database, new_run, signed_in, stranger
from tests.workers import die_in, kill

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice() -> User:
    """Owns the run."""
    return person("alice", "add_run")


@pytest.fixture
def bob() -> User:
    """May see all runs, and decide."""
    return person("bob", "view_run", "decide_interrupt")


@pytest.fixture
def charlie() -> User:
    """May see nothing of it, and owns another run."""
    return stranger("charlie", "add_run")


@pytest.fixture
def run(alice: User) -> Run:
    """A run of three rows."""
    return new_run(alice, 3)


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks come so often that a test need not wait for them."""
    monkeypatch.setattr(run_feed, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(run_feed, "LOOK_SECONDS_WITHOUT_RINGS", 0.05)


async def watching(run: Run, user: User, after: int = 0) -> Watcher:
    """A page of the run that is connected and has said hello."""
    page = Watcher(f"/ws/runs/{run.pk}/", await in_database(signed_in, user))
    assert await page.connect() == (True, 0)
    await page.hello(after)
    return page


async def test_hello_is_answered_with_the_head_and_what_is_missing(run: Run, alice: User) -> None:
    page = await watching(run, alice, after=1)
    assert (await page.hear()) == {"type": "hello", "head": 3, "status": "running"}
    await page.until_row(3)
    assert page.seqs == [1, 2, 3]
    await page.until("panels")
    assert "3 steps" in page.panels["header"]
    await page.leave()


async def test_a_ring_brings_the_row(valkey: Valkey, run: Run, alice: User) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    live.ring(run.pk, await in_database(grow, run.pk))
    await page.until_row(4)
    await page.until("panels")
    assert "4 steps" in page.panels["header"]
    await page.leave()


async def test_a_status_without_a_row_comes_with_the_panels(
    quick_looks: None, no_message_layer: None, run: Run, alice: User
) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    await in_database(Run.objects.filter(pk=run.pk).update, status=RunStatus.PAUSED)
    assert (await page.until("panels"))["status"] == "paused"
    assert "Paused" in page.panels["needs"]
    await page.leave()


async def test_how_a_call_ended_comes_after_the_last_row_of_a_run_that_was_stopped_in_it(
    quick_looks: None, no_message_layer: None, monkeypatch: pytest.MonkeyPatch, alice: User
) -> None:
    monkeypatch.setattr(run_feed, "LOOK_SECONDS_AFTER_THE_END", 0.1)
    run = await in_database(launch, think("send", to="bob"), FINAL, rules=ALLOW)
    journey = await in_database(die_in, run, before=kill, only="send")
    await in_database(actions.abort, run, by=None)
    await in_database(Run.objects.filter(pk=run.pk).update, owner=alice)
    page = await watching(run, alice)
    await page.until("panels")
    assert "the outcome is unknown" in page.panels["unheard"]
    await in_database(journey.keep, journey.at.asked, ToolReturned(value="sent 1"))
    await page.until("panels")
    assert "It was done: sent 1" in page.panels["unheard"]
    await page.leave()


async def test_a_call_that_is_counted_after_the_end_is_counted_on_open_pages(
    quick_looks: None, no_message_layer: None, monkeypatch: pytest.MonkeyPatch, run: Run, alice: User
) -> None:
    monkeypatch.setattr(run_feed, "LOOK_SECONDS_AFTER_THE_END", 0.1)
    await in_database(actions.abort, run, by=None)
    page = await watching(run, alice, after=3)
    await page.until("panels")
    before = page.panels["gauges"]
    await in_database(Run.objects.filter(pk=run.pk).update, tool_calls=41)
    await page.until("panels")
    assert "41" not in before
    assert "41" in page.panels["gauges"]
    await page.leave()


@pytest.mark.parametrize("status", [RunStatus.WAITING, RunStatus.QUEUED])
async def test_a_halt_and_its_end_reach_the_panels_of_those_who_watch_and_of_those_who_come(
    status: RunStatus, quick_looks: None, no_message_layer: None, run: Run, alice: User
) -> None:
    await in_database(Run.objects.filter(pk=run.pk).update, status=status)
    page = await watching(run, alice, after=3)
    await page.until("panels")
    assert "Halted" not in page.panels["needs"]
    await in_database(actions.halt_site, by=None, reason="smoke")
    await page.until("panels")
    assert "Halted" in page.panels["needs"]
    other = await watching(run, alice, after=3)
    await other.until("panels")
    assert "Halted" in other.panels["needs"]
    await in_database(actions.unhalt_site, by=None)
    for each in (page, other):
        await each.until("panels")
        assert "Halted" not in each.panels["needs"]
        await each.leave()


async def test_what_others_spend_of_a_shared_limit_is_told_where_a_run_waits(
    quick_looks: None, no_message_layer: None, run: Run, alice: User
) -> None:
    await in_database(Run.objects.filter(pk=run.pk).update, status=RunStatus.WAITING)
    await in_database(Budget.objects.create, run=run, scope="limits", name="cost_usd", used=0.0, limit=1.0)
    fork = await in_database(new_run, alice)
    await in_database(Run.objects.filter(pk=fork.pk).update, root=run)
    page = await watching(run, alice, after=3)
    await page.until("panels")
    assert "$0.25" not in page.panels["gauges"]
    await in_database(Run.objects.filter(pk=fork.pk).update, cost_usd=0.25)
    await page.until("panels")
    assert "$0.25" in page.panels["gauges"]
    await page.leave()


@pytest.mark.parametrize("head", [2, 3, 5])
async def test_a_page_of_before_a_restore_is_not_gone_on_with(head: int, run: Run, alice: User) -> None:
    """However far the run has come in its new life: the page's rows may be others of the same numbers."""
    page = await watching(run, alice, after=0)
    await page.until_row(3)
    await page.leave()
    await in_database(Run.objects.filter(pk=run.pk).update, head=head)
    await in_database(backups.mark_restored, "another")
    late = Watcher(f"/ws/runs/{run.pk}/", await in_database(signed_in, alice))
    assert await late.connect() == (True, 0)
    await late.hello(3, life="")
    assert await late.closed_with() == socket.ANOTHER_LIFE
    fresh = Watcher(f"/ws/runs/{run.pk}/", await in_database(signed_in, alice))
    assert await fresh.connect() == (True, 0)
    await fresh.hello(head, life="another")
    assert (await fresh.hear())["type"] == "hello"
    await late.leave()
    await fresh.leave()


async def test_a_ping_finds_what_no_ring_told(
    monkeypatch: pytest.MonkeyPatch, no_message_layer: None, run: Run, alice: User
) -> None:
    monkeypatch.setattr(run_feed, "LOOK_SECONDS_WITHOUT_RINGS", 3600)
    monkeypatch.setattr(run_socket, "FRESH_ENOUGH_FOR_A_PING_SECONDS", 0.0)
    page = await watching(run, alice, after=3)
    await page.until("panels")
    await in_database(grow, run.pk, 2)
    await page.line.send_json_to({"type": "ping"})
    assert (await page.until("pong"))["head"] == 5
    await page.until_row(5)
    assert page.seqs == [1, 2, 3, 4, 5]
    await page.leave()


async def test_a_long_history_comes_in_pages(run: Run, alice: User) -> None:
    await in_database(grow, run.pk, 997)
    page = await watching(run, alice, after=3)
    await page.until_row(1000)
    assert page.seqs == list(range(1, 1001))
    sizes = [len(message["rows"]) for message in page.messages if message["type"] == "rows"]
    assert max(sizes) <= reads.PAGE_ROWS
    await page.leave()


async def test_an_empty_page_gets_the_run_from_its_first_row(run: Run, alice: User) -> None:
    await in_database(grow, run.pk, 497)
    page = await watching(run, alice, after=0)
    await page.until_row(500)
    assert page.seqs == list(range(1, 501))
    await page.leave()


async def test_rows_that_a_rewind_left_behind_are_told_as_such_to_those_who_come_later(
    run: Run, alice: User
) -> None:
    first = await watching(run, alice, after=0)
    await first.until_row(3)
    assert first.dead == set()
    await in_database(go_back, run.pk, 1)
    await first.line.send_json_to({"type": "hello", "after": 3})
    await first.until_row(4)
    assert 'data-rewind-to="1"' in first.messages[-1]["rows"][-1]["html"]
    second = await watching(run, alice, after=0)
    await second.until_row(4)
    assert second.dead == {2, 3}
    await first.leave()
    await second.leave()


async def test_model_text_streams_and_the_row_follows(valkey: Valkey, run: Run, alice: User) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    live.delta(run.pk, "thought", "I should")
    assert await page.until("delta") == {"type": "delta", "node": "thought", "text": "I should"}
    live.ring(run.pk, await in_database(grow, run.pk))
    await page.until_row(4)
    await page.leave()


@pytest.mark.parametrize("seed", range(12))
async def test_lost_repeated_and_reordered_rings_cost_nothing_but_time(
    seed: int, quick_looks: None, valkey: Valkey, run: Run, alice: User
) -> None:
    """L21 on the server's side: rings are lost, repeated and late, pages come and go, and all end complete."""
    chance = random.Random(seed)
    pages = [await watching(run, alice) for _ in range(2)]
    late: list[int] = []
    head = 3
    for _ in range(40):
        head = await in_database(grow, run.pk, chance.choice([1, 1, 2, 7]))
        fate = chance.random()
        if fate < 0.5:
            late.append(head)
        if fate > 0.3:
            for seq in chance.choices([head, head, *late], k=chance.choice([1, 2])):
                live.ring(run.pk, seq)
        if chance.random() < 0.1:
            pages.append(await watching(run, alice, after=chance.randrange(head + 1)))
        if chance.random() < 0.1:
            await pages[-1].line.send_json_to({"type": "ping"})
    for page in pages:
        await page.until_row(head)
        assert page.seqs == list(range(1, head + 1))
        await page.leave()


@pytest.mark.parametrize("seed", range(4))
async def test_without_a_message_layer_every_row_comes_all_the_same(
    seed: int, quick_looks: None, no_message_layer: None, run: Run, alice: User
) -> None:
    chance = random.Random(seed)
    page = await watching(run, alice)
    head = 3
    for _ in range(30):
        head = await in_database(grow, run.pk, chance.choice([1, 2, 5]))
        live.ring(run.pk, head)
    await page.until_row(head)
    assert page.seqs == list(range(1, head + 1))
    await page.leave()


async def test_without_looks_a_lost_ring_would_lose_the_row(
    monkeypatch: pytest.MonkeyPatch, no_message_layer: None, run: Run, alice: User
) -> None:
    """The negative control of the tests above."""
    monkeypatch.setattr(run_feed, "LOOK_SECONDS_WITHOUT_RINGS", 3600)
    page = await watching(run, alice, after=3)
    await page.until("panels")
    await in_database(grow, run.pk)
    assert await page.line.receive_nothing(timeout=0.5)
    await page.leave()


async def test_killing_the_message_layer_loses_no_row(
    quick_looks: None, valkey: Valkey, run: Run, alice: User
) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    valkey.kill9()
    live.ring(run.pk, await in_database(grow, run.pk))
    await page.until_row(4)
    valkey.start()
    live.ring(run.pk, await in_database(grow, run.pk))
    await page.until_row(5)
    assert page.seqs == [1, 2, 3, 4, 5]
    await page.leave()


# Who may watch


async def test_charlie_who_may_not_see_the_run_is_not_let_in(run: Run, charlie: User) -> None:
    page = Watcher(f"/ws/runs/{run.pk}/", await in_database(signed_in, charlie))
    assert await page.connect() == (False, socket.NOT_ALLOWED)
    await page.leave()


async def test_nobody_is_let_in_without_a_session(run: Run) -> None:
    page = Watcher(f"/ws/runs/{run.pk}/", "no-such-session")
    assert await page.connect() == (False, socket.NOT_ALLOWED)
    await page.leave()


@pytest.mark.parametrize("path", ["/ws/runs/999999/", f"/ws/runs/{10**30}/", "/ws/inbox/nothing/"])
async def test_what_is_not_there_can_not_be_watched(path: str, run: Run, alice: User) -> None:
    page = Watcher(path, await in_database(signed_in, alice))
    assert (await page.connect())[0] is False
    await page.leave()


@pytest.mark.parametrize(
    "origin",
    [b"http://evil.example", b"http://testserver:81", b"http://testserver.evil.example", b"null", b""],
)
async def test_a_foreign_page_is_not_let_in(origin: bytes, run: Run, alice: User) -> None:
    page = Watcher(f"/ws/runs/{run.pk}/", await in_database(signed_in, alice), origin=origin)
    assert (await page.connect())[0] is False
    await page.leave()


async def test_bob_who_may_decide_sees_other_panels_than_alice(
    valkey: Valkey, run: Run, alice: User, bob: User
) -> None:
    admitted = [await read(admission, await in_database(signed_in, user), run.pk) for user in (alice, bob)]
    assert [one.audience for one in admitted if one] == [(False, True, False), (True, False, False)]


async def test_whoever_signs_out_is_sent_away(monkeypatch: pytest.MonkeyPatch, run: Run, alice: User) -> None:
    monkeypatch.setattr(socket, "RECHECK_SECONDS", 0.2)
    page = await watching(run, alice, after=3)
    await page.until("panels")
    await in_database(Session.objects.all().delete)
    assert await page.closed_with() == socket.NOT_ALLOWED
    await page.leave()


async def test_whoever_may_no_longer_see_the_run_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, run: Run, bob: User
) -> None:
    monkeypatch.setattr(socket, "RECHECK_SECONDS", 0.2)
    page = await watching(run, bob, after=3)
    await page.until("panels")
    await in_database(bob.user_permissions.clear)
    assert await page.closed_with() == socket.NOT_ALLOWED
    await page.leave()


async def test_a_run_that_is_removed_closes_its_pages(quick_looks: None, run: Run, alice: User) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    await in_database(run.delete)
    assert await page.closed_with() == socket.GONE
    await page.leave()


# What a page may say


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        '{"type": "shout"}',
        '{"type": "hello"}',
        '{"type": "hello", "after": -1}',
        '{"type": "hello", "after": true}',
        '{"type": "hello", "after": 1e400}',
        '{"type": "ack", "seq": "3"}',
        "[" * 3000,
        "x" * 5000,
    ],
)
async def test_what_is_not_understood_is_answered_with_a_sentence(text: str, run: Run, alice: User) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    await page.line.send_input({"type": "websocket.receive", "text": text})
    assert (await page.until("error"))["message"].endswith(".")
    await page.line.send_json_to({"type": "ping"})
    await page.until("pong")
    await page.leave()


async def test_a_page_that_never_stops_talking_is_closed(run: Run, alice: User) -> None:
    page = await watching(run, alice, after=3)
    for _ in range(socket.MESSAGES_AT_ONCE * 2):
        await page.line.send_json_to({"type": "ack", "seq": 3})
    assert await page.closed_with() == socket.TOO_MUCH
    await page.leave()


# Slow pages


async def test_a_page_that_acknowledges_nothing_is_sent_little_and_then_closed(
    monkeypatch: pytest.MonkeyPatch, quick_looks: None, run: Run, alice: User
) -> None:
    monkeypatch.setattr(run_socket, "STUCK_SECONDS", 60.0)  # while the quick page needs its time
    slow = await watching(run, alice)
    slow.acknowledges = False
    quick = await watching(run, alice)
    await in_database(grow, run.pk, 3000)
    await quick.until_row(3003)
    await quick.leave()
    monkeypatch.setattr(run_socket, "STUCK_SECONDS", 0.5)
    await slow.line.send_json_to({"type": "ping"})  # it looks again
    sent = 0
    while (message := await slow.line.receive_output(timeout=20))["type"] != "websocket.close":
        sent += len(message["text"])
    assert message["code"] == socket.TOO_SLOW
    assert sent <= run_socket.WINDOW_BYTES + 2 * run_feed.PAGE_BYTES
    await slow.leave()


async def test_a_page_that_was_slow_gets_the_rest_in_larger_pieces(
    quick_looks: None, run: Run, alice: User
) -> None:
    page = await watching(run, alice, after=3)
    await page.until("panels")
    page.acknowledges = False
    for _ in range(run_socket.WINDOW_MESSAGES + 8):
        await in_database(grow, run.pk)
        await page.line.send_json_to({"type": "ping"})
        await asyncio.wait_for(page.until("pong"), 10)
    page.acknowledges = True
    await page.line.send_json_to({"type": "ack", "seq": page.last})
    await page.until_row(3 + run_socket.WINDOW_MESSAGES + 8)
    assert page.seqs == list(range(1, page.last + 1))
    assert max(len(message["rows"]) for message in page.messages if message["type"] == "rows") > 1
    await page.leave()


async def test_many_pages_read_and_render_each_row_once(
    monkeypatch: pytest.MonkeyPatch, valkey: Valkey, run: Run, alice: User
) -> None:
    rendered: list[int] = []
    real = reads.render_row

    def noted(row: Any) -> str:
        rendered.append(row.seq)
        return real(row)

    monkeypatch.setattr(reads, "render_row", noted)
    pages = [await watching(run, alice, after=3) for _ in range(30)]
    for page in pages:
        await page.until("panels")
    for _ in range(5):
        live.ring(run.pk, await in_database(grow, run.pk))
    for page in pages:
        await page.until_row(8)
        await page.leave()
    assert sorted(rendered) == [4, 5, 6, 7, 8]


async def test_nothing_stays_when_the_last_page_is_closed(valkey: Valkey, run: Run, alice: User) -> None:
    pages: list[Any] = [await watching(run, alice) for _ in range(3)]
    feed = feed_of(run.pk)
    here = hub()
    for page in pages:
        await page.until_row(3)
        await page.leave()
    assert feed_of(run.pk) is not feed
    assert not here.connected
    assert await in_database(Step.objects.filter(run=run).count) == 3
