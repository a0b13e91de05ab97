"""What waits for people, for all pages of this process: each person's count once for each change."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Any, Final

from runs import reading
from runs.feeds.feed import Viewer
from runs.feeds.reads import Person, read
from runs.live import INBOX, hub

INBOX_SPACING_SECONDS: Final = 0.25
INBOX_SECONDS: Final = 10.0
INBOX_SECONDS_WITHOUT_RINGS: Final = 4.0


class Inbox:
    """What waits for people, for all pages of this process: each person's count once for each change."""

    def __init__(self) -> None:
        self._viewers: set[Viewer] = set()
        self._counts: dict[Any, asyncio.Task[int]] = {}
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hub = hub()

    def join(self, viewer: Viewer) -> None:
        """From now on the viewer is woken."""
        self._viewers.add(viewer)
        if self._task is None:
            self._hub.join(INBOX, self)
            self._task = asyncio.create_task(self._watch(), name="inbox")

    def leave(self, viewer: Viewer) -> None:
        """The last one who leaves ends it."""
        self._viewers.discard(viewer)
        if self._viewers or self._task is None:
            return
        self._hub.leave(INBOX, self)
        self._task.cancel()
        self._task = None
        if _inboxes.get(asyncio.get_running_loop()) is self:
            del _inboxes[asyncio.get_running_loop()]

    def rung(self, seq: int) -> None:
        """Something about interrupts has changed."""
        self._rung.set()

    def heard(self, node: str, text: str) -> None:
        """Nobody writes to the inbox."""

    def missed(self) -> None:
        """Rings may have been lost."""
        self._rung.set()

    async def count(self, person: Person) -> int:
        """How many decisions wait for a person."""
        there = self._counts.get(person.pk)
        if there is None or (there.done() and (there.cancelled() or there.exception())):
            there = self._counts[person.pk] = asyncio.create_task(read(reading.pending_count, person))
        return await asyncio.shield(there)

    async def _watch(self) -> None:
        """Forget the counts when rung, and every few seconds anyway, and have the pages ask again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    INBOX_SECONDS if self._hub.connected else INBOX_SECONDS_WITHOUT_RINGS
                ):
                    await self._rung.wait()
            self._rung.clear()
            self._counts.clear()
            for viewer in tuple(self._viewers):
                viewer.wake()
            await asyncio.sleep(INBOX_SPACING_SECONDS)


_inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] = weakref.WeakKeyDictionary()


def shared_inbox() -> Inbox:
    """The running event loop's inbox."""
    loop = asyncio.get_running_loop()
    if loop not in _inboxes:
        _inboxes[loop] = Inbox()
    return _inboxes[loop]
