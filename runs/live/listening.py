"""The server's side: one subscription for a process, and its listeners by topic."""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections.abc import Callable
from typing import Protocol

import redis.asyncio
import redis.asyncio.retry
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from runs.live.messages import SOCKET_SECONDS, channel_name, read_message

QUIET_SECONDS = 5.0
"""Seconds of silence after which a subscription checks the server."""
LONGEST_PAUSE_SECONDS = 5.0

log = logging.getLogger(__name__)


class Listener(Protocol):
    """A listener to one run, or to the inbox. Called in the event loop; must return at once."""

    def rung(self, seq: int) -> None:
        """Note that the run has grown to `seq`."""

    def heard(self, node: str, text: str) -> None:
        """Note the model's text so far."""

    def missed(self) -> None:
        """Look again: rings may have been lost."""


class Hub:
    """A server process's one subscription, and its listeners by run.

    Lives in one event loop. It is connected only while it has listeners, and never gives up: after a failure it tries
    again, a little later each time.
    """

    def __init__(self, url: str, channel: str) -> None:
        self.url = url
        self.channel = channel
        self.connected = False
        self._listeners: dict[int, set[Listener]] = {}
        self._task: asyncio.Task[None] | None = None

    def join(self, topic: int, listener: Listener) -> None:
        """Tell `listener` about a run (or the INBOX) from now on."""
        self._listeners.setdefault(topic, set()).add(listener)
        if self.url and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._stay_subscribed(), name="hub")

    def leave(self, topic: int, listener: Listener) -> None:
        """Stop telling `listener`."""
        there = self._listeners.get(topic, set())
        there.discard(listener)
        if not there:
            self._listeners.pop(topic, None)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task, self.connected = None, False

    async def _stay_subscribed(self) -> None:
        """Subscribe and pass on messages; after each end, do it again."""
        failures = 0
        while True:
            try:
                await self._subscribe_and_pass_on()
            except (RedisError, OSError, EOFError, TimeoutError) as why:
                failures = 0 if self.connected else failures + 1
                if self.connected:
                    log.warning("The message layer is gone (%s); pages look for themselves meanwhile.", why)
            if _is_cancelled():
                return
            self.connected = False
            await asyncio.sleep(random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.1 * 2 ** min(failures, 10))))

    async def _subscribe_and_pass_on(self) -> None:
        """Run one connection, until an error ends it."""
        client = redis.asyncio.Redis.from_url(
            self.url,
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=SOCKET_SECONDS,
            retry=redis.asyncio.retry.Retry(NoBackoff(), 0),
        )
        subscription = client.pubsub()
        try:
            await subscription.subscribe(self.channel)
            asked = False
            while not _is_cancelled():
                message = await subscription.get_message(timeout=QUIET_SECONDS)
                if message is None:
                    if asked:
                        raise TimeoutError(f"no answer for {QUIET_SECONDS:g} seconds")
                    await subscription.ping()
                    asked = True
                    continue
                asked = False
                if message["type"] == "subscribe":
                    self.connected = True
                    self._tell_all(lambda listener: listener.missed())
                elif message["type"] == "message":
                    self._pass_on(message["data"])
        finally:
            await subscription.aclose()
            await client.aclose()

    def _pass_on(self, data: bytes) -> None:
        """Pass a message to its listeners; drop an unreadable one."""
        match read_message(data):
            case {"run": int(topic), "seq": int(seq)}:
                for listener in tuple(self._listeners.get(topic, ())):
                    listener.rung(seq)
            case {"run": int(topic), "node": str(node), "text": str(text)}:
                for listener in tuple(self._listeners.get(topic, ())):
                    listener.heard(node, text)

    def _tell_all(self, what: Callable[[Listener], None]) -> None:
        """Tell every listener of every topic."""
        for listeners in tuple(self._listeners.values()):
            for listener in tuple(listeners):
                what(listener)


def hub() -> Hub:
    """Return the hub of the running event loop; without a message layer one that is never connected."""
    loop = asyncio.get_running_loop()
    url = settings.REDIS_URL if settings.HINTS else ""
    there = _hubs.get(loop)
    if there is None or there.url != url:
        there = _hubs[loop] = Hub(url, channel_name())
    return there


_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


def _is_cancelled() -> bool:
    """Return True if this task was cancelled: a simultaneous error of the client may have hidden that."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
