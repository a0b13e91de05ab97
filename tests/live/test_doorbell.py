"""Rings reach every process that listens; whoever rings is never kept waiting."""

import asyncio
import os
import sys
import threading
import time
from typing import Any

import pytest
import redis.exceptions
from redis.asyncio.client import PubSub

from agentsite.environment import ROOT
from runs import live
from runs.live import INBOX, doorbell, listening, messages
from runs.live.doorbell import Doorbell
from runs.live.listening import Hub, hub
from runs.live.messages import channel_name
from runs.live.publishing import Publisher
from tests.live.valkey import Valkey

PATIENCE = 10.0


class Ear:
    """A listener that remembers, and that can be waited for."""

    def __init__(self) -> None:
        self.rings: list[int] = []
        self.texts: list[tuple[str, str]] = []
        self.misses = 0
        self.changed = asyncio.Event()

    def rung(self, seq: int) -> None:
        self.rings.append(seq)
        self.changed.set()

    def heard(self, node: str, text: str) -> None:
        self.texts.append((node, text))
        self.changed.set()

    def missed(self) -> None:
        self.misses += 1
        self.changed.set()

    async def until(self, so: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not so(self):
                self.changed.clear()
                await self.changed.wait()


async def subscribed(ear: Ear, topic: int) -> Hub:
    """A hub that is subscribed, with one listener."""
    here = hub()
    here.join(topic, ear)
    await ear.until(lambda ear: ear.misses)
    return here


async def test_a_hub_that_is_left_ends_even_where_its_connection_fails_at_that_moment(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = PubSub.aclose

    async def fails(subscription: PubSub) -> None:
        await close(subscription)
        raise redis.exceptions.ConnectionError("The server is gone.")

    ear = Ear()
    here = await subscribed(ear, 7)
    monkeypatch.setattr(PubSub, "aclose", fails)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "hub"]
    here.leave(7, ear)
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done()


async def test_a_hub_that_is_left_ends_even_where_the_client_forgets_the_cancellation(
    valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = PubSub.get_message

    async def forgets(subscription: PubSub, **given: Any) -> Any:
        try:
            return await get(subscription, **given)
        except asyncio.CancelledError:
            return None

    monkeypatch.setattr(PubSub, "get_message", forgets)
    ear = Ear()
    here = await subscribed(ear, 7)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "hub"]
    here.leave(7, ear)
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.done()


async def test_a_ring_reaches_those_who_listen_to_the_run_and_nobody_else(valkey: Valkey) -> None:
    mine, other, inbox = Ear(), Ear(), Ear()
    here = await subscribed(mine, 7)
    here.join(8, other)
    here.join(INBOX, inbox)
    live.ring(7, 3)
    live.ring_inbox()
    await mine.until(lambda ear: ear.rings)
    await inbox.until(lambda ear: ear.rings)
    assert (mine.rings, other.rings, inbox.rings) == ([3], [], [0])


class Watched(Doorbell):
    """A doorbell that tells when its thread is on the way to the server."""

    def __init__(self, url: str, channel: str) -> None:
        super().__init__(url, channel)
        self.on_the_way = threading.Event()

    def _send(self, publisher: Publisher, messages: list[str]) -> float:
        self.on_the_way.set()
        return super()._send(publisher, messages)


async def test_a_ring_makes_the_text_before_it_obsolete(valkey: Valkey) -> None:
    ear = Ear()
    await subscribed(ear, 7)
    bell = Watched(valkey.url, channel_name())
    valkey.freeze()
    bell.put_text(1, "thought", "the thread is busy with this")
    assert bell.on_the_way.wait(PATIENCE)
    bell.put_text(7, "thought", "I will")
    bell.put(7, 4)
    bell.put_text(7, "act", "Next")
    valkey.thaw()
    await ear.until(lambda ear: ear.texts)
    assert (ear.rings, ear.texts) == ([4], [("act", "Next")])
    bell.close()


async def test_a_long_text_is_sent_as_its_end(valkey: Valkey) -> None:
    ear = Ear()
    await subscribed(ear, 7)
    live.delta(7, "thought", "x" * 100_000 + "the end")
    await ear.until(lambda ear: ear.texts)
    assert len(ear.texts[0][1]) == messages.LONGEST_DELTA + 1
    assert ear.texts[0][1].endswith("the end")


async def test_the_hub_comes_back_after_kill_9_and_says_that_it_missed_something(valkey: Valkey) -> None:
    ear = Ear()
    here = await subscribed(ear, 7)
    valkey.kill9()
    live.ring(7, 1)
    valkey.start()
    await ear.until(lambda ear: ear.misses >= 2)
    assert here.connected
    live.flush(5)
    live.ring(7, 2)
    await ear.until(lambda ear: 2 in ear.rings)


async def test_a_silent_server_is_found_out_and_taken_back(
    monkeypatch: pytest.MonkeyPatch, valkey: Valkey
) -> None:
    monkeypatch.setattr(listening, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(listening, "SOCKET_SECONDS", 0.3)
    ear = Ear()
    here = await subscribed(ear, 7)
    valkey.freeze()
    async with asyncio.timeout(PATIENCE):
        while here.connected:
            await asyncio.sleep(0)
    valkey.thaw()
    await ear.until(lambda ear: ear.misses >= 2)
    assert here.connected


async def test_a_second_site_on_the_same_server_hears_nothing(valkey: Valkey, settings: Any) -> None:
    ear = Ear()
    await subscribed(ear, 7)
    mine = channel_name()
    settings.SECRET_KEY = "another site"
    stranger = Doorbell(valkey.url, channel_name())
    stranger.put(7, 99)
    assert stranger.flush(PATIENCE)
    assert stranger.sent == 1
    own = Doorbell(valkey.url, mine)
    own.put(7, 1)
    await ear.until(lambda ear: ear.rings)
    assert ear.rings == [1]
    stranger.close()
    own.close()


async def test_the_subscription_ends_with_the_last_listener(valkey: Valkey) -> None:
    first, second = Ear(), Ear()
    here = await subscribed(first, 7)
    here.join(7, second)
    here.leave(7, first)
    assert here.connected
    here.leave(7, second)
    assert hub().connected is False
    await subscribed(second, 7)


def test_whoever_rings_is_not_kept_waiting_by_a_frozen_server(valkey: Valkey) -> None:
    live.ring(1, 1)
    assert live.flush(PATIENCE)
    valkey.freeze()
    began = time.perf_counter()
    for seq in range(1000):
        live.ring(1, seq)
        live.delta(1, "thought", "x" * 10_000)
    assert time.perf_counter() - began < 10  # waiting once for each would take half an hour
    valkey.thaw()


def test_a_thousand_rings_of_one_run_are_few_messages_and_the_newest_is_among_them(valkey: Valkey) -> None:
    bell = Doorbell(valkey.url, channel_name())

    def ring_often() -> None:
        for seq in range(250):
            bell.put(1, seq)

    threads = [threading.Thread(target=ring_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bell.flush(PATIENCE)
    assert 1 <= bell.sent < 1000
    assert bell.dropped == 0
    bell.close()


def test_a_run_that_grows_fast_rings_once_for_several_rows(
    monkeypatch: pytest.MonkeyPatch, valkey: Valkey
) -> None:
    monkeypatch.setattr(doorbell, "GATHER_UNHEARD_SECONDS", 60.0)
    bell = Doorbell(valkey.url, channel_name())
    for seq in range(1, 1001):
        bell.put(1, seq)
        if seq == 500:
            assert bell.flush(PATIENCE), "what is kept is sent at once where the process ends"
    assert bell.flush(PATIENCE)
    assert bell.sent <= 4
    assert bell.dropped == 0
    bell.close()


async def test_rings_are_gathered_longer_where_nobody_listens(valkey: Valkey) -> None:
    bell = Doorbell(valkey.url, channel_name())
    publisher = Publisher(valkey.url, channel_name())
    assert bell._send(publisher, [messages.ring_message(7, 1)]) == doorbell.GATHER_UNHEARD_SECONDS
    await subscribed(Ear(), 7)
    assert bell._send(publisher, [messages.ring_message(7, 2)]) == doorbell.GATHER_SECONDS
    publisher.close()


def test_without_a_server_rings_are_dropped_counted_and_the_buffer_stays_small() -> None:
    bell = Doorbell("unix:///nowhere/at/all", channel_name())
    for run_id in range(doorbell.LONGEST_BUFFER + 10):
        bell.put(run_id, 1)
    assert bell.flush(PATIENCE)
    assert bell.dropped >= doorbell.LONGEST_BUFFER
    assert bell.sent == 0
    bell.close()


@pytest.mark.parametrize(("url", "hints"), [("", True), ("unix:///nowhere", False)])
def test_without_a_message_layer_nothing_is_started(settings: Any, url: str, hints: bool) -> None:  # noqa: FBT001
    settings.REDIS_URL, settings.HINTS = url, hints
    before = threading.active_count()
    live.ring(1, 1)
    live.ring_inbox()
    live.delta(1, "thought", "text")
    assert threading.active_count() == before


async def test_a_short_command_rings_before_it_ends(valkey: Valkey) -> None:
    ear = Ear()
    await subscribed(ear, 7)
    code = (
        "import django; django.setup(); from django.conf import settings; "
        f"settings.SECRET_KEY = {messages.settings.SECRET_KEY!r}; from runs import live; live.ring(7, 5)"
    )
    environ = os.environ | {
        "DJANGO_SETTINGS_MODULE": "agentsite.settings",
        "AGENTSITE_DATA_DIR": str(valkey.folder / "data"),
        "REDIS_URL": valkey.url,
    }
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT, env=environ)
    assert await ended.wait() == 0
    await ear.until(lambda ear: 5 in ear.rings)


async def test_a_forked_child_has_a_doorbell_of_its_own(valkey: Valkey) -> None:
    ear = Ear()
    await subscribed(ear, 7)
    live.ring(7, 1)
    await ear.until(lambda ear: 1 in ear.rings)
    child = os.fork()
    if child == 0:
        live.ring(7, 2)
        os._exit(0 if live.flush(5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    await ear.until(lambda ear: 2 in ear.rings)
