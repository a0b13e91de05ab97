"""One run for this process's viewers: looked at when rung, read and rendered once, woken together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from runs.feeds.reads import (
    DATABASE_AWAY,
    PAGE_ROWS,
    Gone,
    Look,
    Moment,
    Person,
    Row,
    look,
    panels_of,
    read,
    rows_after,
)
from runs.live.listening import hub
from runs.models import FINISHED

PAGE_BYTES: Final = 128 * 1024
CACHED_BYTES: Final = 2 * 1024 * 1024
CACHED_MESSAGES: Final = 64
SPACING_SECONDS: Final = 0.015
"""Seconds between two looks at one run: a run that grows faster is shown in larger pieces."""
LOOK_SECONDS: Final = 4.0
LOOK_SECONDS_WITHOUT_RINGS: Final = 1.5
LOOK_SECONDS_AFTER_THE_END: Final = 15.0
PANELS_SECONDS: Final = 0.2
"""Seconds between two renderings of the panels while the status stays the same."""
CROWD: Final = 20
"""From so many viewers on, steps and panels are sent in one go: each delivery costs more than the wait for the
panels."""

log = logging.getLogger(__name__)


class Audience(NamedTuple):
    """All inputs of a run's panels beside the run: two people of one audience see the same."""

    decides: bool
    steers: bool
    staff: bool


class Viewer(Protocol):
    """A viewer of a run."""

    def wake(self) -> None:
        """Tell of a change: the head, the moment, or the text that is being written."""


class ChildListener:
    """A listener to a run's child: a change there has the run looked at again."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def rung(self, seq: int) -> None:
        """Look at the run again: the child has grown."""
        self._feed.missed()

    def heard(self, node: str, text: str) -> None:
        """Ignore the child's text: it is shown on the child's own page."""

    def missed(self) -> None:
        """Ignore lost rings: the feed hears of them itself."""


class Feed:
    """One run for this process's viewers."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        self.moment: Moment | None = None
        self.stamp = 0
        """Rises whenever the moment changes."""
        self.text = ""
        """The message with the model's text so far; empty if there is none."""
        self.gone = False
        self._viewers: set[Viewer] = set()
        self._rung = asyncio.Event()
        self._waiting_for_a_look: list[asyncio.Future[None]] = []
        self._looked_at = float("-inf")
        self._rows: dict[int, Row] = {}
        self._cached_bytes = 0
        self._messages: dict[tuple[int, int], str] = {}
        self._panels: dict[Audience, tuple[int, asyncio.Task[str]]] = {}
        self._people: dict[Audience, Person] = {}
        """One person of each audience."""
        self._rendered_at = float("-inf")
        self._paging = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._hub = hub()
        self._child_listener = ChildListener(self)
        self._children: frozenset[int] = frozenset()

    @property
    def head(self) -> int:
        """Return the newest step seen; 0 before the first look."""
        return self.moment.head if self.moment else 0

    def join(self, viewer: Viewer) -> None:
        """Wake the viewer from now on."""
        self._viewers.add(viewer)
        if self._task is None:
            self._hub.join(self.run_id, self)
            self._task = asyncio.create_task(self._watch(), name=f"feed of run {self.run_id}")

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer; the last one ends the feed."""
        self._viewers.discard(viewer)
        if self._viewers or self._task is None:
            return
        self._hub.leave(self.run_id, self)
        self._listen_to(frozenset())
        self._task.cancel()
        self._task = None
        feeds = _feeds.get(asyncio.get_running_loop(), {})
        if feeds.get(self.run_id) is self:
            del feeds[self.run_id]

    # Calls by the hub

    def rung(self, seq: int) -> None:
        """Note that the run has grown or (seq 0) otherwise changed."""
        if seq > self.head:
            self.text = ""
        self._rung.set()

    def heard(self, node: str, text: str) -> None:
        """Note the model's text so far."""
        self.text = json.dumps({"type": "delta", "node": node, "text": text})
        self._wake(self._viewers)

    def missed(self) -> None:
        """Look again: rings may have been lost."""
        self._rung.set()

    # Calls by viewers

    async def fresh(self, age: float = 0.0) -> None:
        """Wait for a look that began after this call, or is at most `age` seconds old; never fails."""
        if self.gone or asyncio.get_running_loop().time() - self._looked_at < age:
            return
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_for_a_look.append(waiting)
        self._rung.set()
        await waiting

    async def message_after(self, after: int) -> tuple[int, str]:
        """Return the next steps as one message, and the seq of its last; (after, "") if none can be found now."""
        page = self._page(self._rows, after)
        if not page:
            async with self._paging:  # a hundred viewers who return at once read each page once
                page = self._page(self._rows, after)
                if not page:
                    rows = await read(rows_after, self.run_id, after)
                    self._keep(rows)
                    page = self._page({row.seq: row for row in rows}, after)
        return (page[-1].seq, self._message(after, page)) if page else (after, "")

    async def panels(self, audience: Audience, person: Person) -> str:
        """Return the message with the panels, rendered once for each audience and moment."""
        self._people[audience] = person
        there = self._panels.get(audience)
        if there is None or there[0] != self.stamp:
            there = (self.stamp, asyncio.create_task(self._render_panels(person)))
            self._panels[audience] = there
        try:
            return await asyncio.shield(there[1])
        except Exception:
            if self._panels.get(audience) is there:
                del self._panels[audience]
            raise

    async def _render_panels(self, person: Person) -> str:
        moment = self.moment
        panels = await read(panels_of, self.run_id, person)
        return json.dumps(
            {"type": "panels", **about(moment), "panels": {name: str(html) for name, html in panels.items()}}
        )

    def _message(self, after: int, page: list[Row]) -> str:
        """Return the steps as one text: made once for all viewers at the same place."""
        key = (after, page[-1].seq)
        if key not in self._messages:
            if len(self._messages) >= CACHED_MESSAGES:
                self._messages.clear()
            rows = ",".join(row.json for row in page)
            start = json.dumps({"type": "rows", **about(self.moment)})
            self._messages[key] = f'{start[:-1]}, "rows": [{rows}]}}'
        return self._messages[key]

    def _page(self, rows: Mapping[int, Row], after: int) -> list[Row]:
        """Return as many of the next steps as are there, without a gap, up to a page."""
        page: list[Row] = []
        size, seq = 0, after + 1
        while len(page) < PAGE_ROWS and size < PAGE_BYTES and (row := rows.get(seq)):
            page.append(row)
            size += len(row.json)
            seq += 1
        return page

    # Looking

    async def _watch(self) -> None:
        """Look when rung, and every few seconds anyway, as long as there are viewers."""
        loop = asyncio.get_running_loop()
        while not self.gone:
            self._rung.clear()
            waiting, self._waiting_for_a_look = self._waiting_for_a_look, []
            began = loop.time()
            try:
                found = await read(look, self.run_id, self.moment and self.moment.head)
                self._looked_at = began
                if self._take(found):
                    await self._render_ahead()
                    self._wake(self._viewers)
            except Gone:
                self.gone = True
            except DATABASE_AWAY as why:
                log.warning("Run %s can't be read now (%s); trying again.", self.run_id, why)
            except Exception:
                log.exception("A look at run %s failed; trying again.", self.run_id)
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            if not self.gone:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience()):
                        await self._rung.wait()
                await asyncio.sleep(max(0.0, began + SPACING_SECONDS - loop.time()))
        for future in self._waiting_for_a_look:
            if not future.done():
                future.set_result(None)
        self._wake(self._viewers)

    def _patience(self) -> float:
        """Return how long to wait for a ring, in seconds."""
        if not self._hub.connected:
            seconds = LOOK_SECONDS_WITHOUT_RINGS
        elif self.moment and self.moment.status in FINISHED and not self.moment.stopping:
            seconds = LOOK_SECONDS_AFTER_THE_END
        else:
            seconds = LOOK_SECONDS
        return seconds * random.uniform(0.8, 1.2)

    def _take(self, found: Look) -> bool:
        """Keep the findings of a look; return whether they are news."""
        self._keep(found.rows)
        if found.moment == self.moment or found.moment.head < self.head:
            return False
        if found.moment.head > self.head:
            self.text = ""
        self._messages.clear()
        self.moment = found.moment
        if self._task is not None:
            self._listen_to(frozenset(child for child, _, _ in found.moment.children))
        self.stamp += 1
        return True

    async def _render_ahead(self) -> None:
        """For a crowd, render the panels before viewers are woken, a few times a second."""
        now = asyncio.get_running_loop().time()
        if len(self._viewers) >= CROWD and now - self._rendered_at >= PANELS_SECONDS:
            self._rendered_at = now
            wanted = [self.panels(audience, person) for audience, person in self._people.items()]
            await asyncio.gather(*wanted, return_exceptions=True)

    def _listen_to(self, children: frozenset[int]) -> None:
        """Listen to exactly these children."""
        for child in self._children - children:
            self._hub.leave(child, self._child_listener)
        for child in children - self._children:
            self._hub.join(child, self._child_listener)
        self._children = children

    def _keep(self, rows: Sequence[Row]) -> None:
        """Cache the steps, dropping the oldest; rolled-back steps look different from now on."""
        for row in rows:
            if row.rewind_to is not None:
                self._forget(seq for seq in tuple(self._rows) if row.rewind_to < seq < row.seq)
        self._forget(row.seq for row in rows)
        for row in rows:
            self._rows[row.seq] = row
            self._cached_bytes += len(row.json)
        while self._cached_bytes > CACHED_BYTES:
            self._forget((next(iter(self._rows)),))

    def _forget(self, seqs: Iterable[int]) -> None:
        for seq in seqs:
            if row := self._rows.pop(seq, None):
                self._cached_bytes -= len(row.json)

    def _wake(self, viewers: Iterable[Viewer]) -> None:
        for viewer in tuple(viewers):
            viewer.wake()


def about(moment: Moment | None) -> dict[str, Any]:
    """Return the part about the run in each message."""
    return {"head": moment.head, "status": moment.status} if moment else {"head": 0, "status": ""}


_feeds: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, Feed]] = weakref.WeakKeyDictionary()


def feed_of(run_id: int) -> Feed:
    """Return the running event loop's feed of a run."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    if run_id not in feeds:
        feeds[run_id] = Feed(run_id)
    return feeds[run_id]
