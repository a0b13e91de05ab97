"""The notices of every page, for all pages of this process: read once for each person and change."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from dataclasses import dataclass
from typing import Any, Final

from runs.feeds.feed import Viewer
from runs.feeds.reads import Person, read
from runs.live import INBOX
from runs.live.listening import hub
from runs.reading import banner, cards

INBOX_SPACING_SECONDS: Final = 0.25
INBOX_SECONDS: Final = 10.0
INBOX_SECONDS_WITHOUT_RINGS: Final = 4.0


@dataclass(frozen=True)
class Told:
    """The notices of a person's pages."""

    count: int
    """Number of decisions waiting for them."""
    halt: str
    """The banner of a halted site, as HTML; empty if it works."""


class Inbox:
    """The notices of every page, for all pages of this process: read once for each person and change."""

    def __init__(self) -> None:
        self._viewers: set[Viewer] = set()
        self._told: dict[Any, asyncio.Task[Told]] = {}
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hub = hub()

    def join(self, viewer: Viewer, person: Person) -> None:
        """Wake the viewer from now on. Its page may be newer than the last read, so the notices are read anew."""
        self._viewers.add(viewer)
        self._told.pop(person.pk, None)
        if self._task is None:
            self._hub.join(INBOX, self)
            self._task = asyncio.create_task(self._watch(), name="inbox")

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one ends the inbox."""
        self._viewers.discard(viewer)
        if self._viewers or self._task is None:
            return
        self._hub.leave(INBOX, self)
        self._task.cancel()
        self._task = None
        if _inboxes.get(asyncio.get_running_loop()) is self:
            del _inboxes[asyncio.get_running_loop()]

    def rung(self, seq: int) -> None:
        """Note a change of interrupts, or a halt."""
        self._rung.set()

    def heard(self, node: str, text: str) -> None:
        """Do nothing: no model writes to the inbox."""

    def missed(self) -> None:
        """Look again: rings may have been lost."""
        self._rung.set()

    async def told(self, person: Person) -> Told:
        """Return the current notices of a person's pages."""
        there = self._told.get(person.pk)
        if there is None or (there.done() and (there.cancelled() or there.exception())):
            there = self._told[person.pk] = asyncio.create_task(read(told_to, person))
        return await asyncio.shield(there)

    async def _watch(self) -> None:
        """Forget the notices when rung, and every few seconds anyway, and have the pages ask again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    INBOX_SECONDS if self._hub.connected else INBOX_SECONDS_WITHOUT_RINGS
                ):
                    await self._rung.wait()
            self._rung.clear()
            self._told.clear()
            for viewer in tuple(self._viewers):
                viewer.wake()
            await asyncio.sleep(INBOX_SPACING_SECONDS)


def told_to(person: Person) -> Told:
    """Return the notices from the database."""
    return Told(cards.pending_count(person), banner.halt_banner(person))


_inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] = weakref.WeakKeyDictionary()


def shared_inbox() -> Inbox:
    """Return the running event loop's inbox."""
    loop = asyncio.get_running_loop()
    if loop not in _inboxes:
        _inboxes[loop] = Inbox()
    return _inboxes[loop]
