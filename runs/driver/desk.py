"""Seats at which the threads of one process work on runs: few at a time, however many calls are under way.

A worker has many threads, since a run mostly waits for a model. Where they all work at once (a long queue, quick calls)
they wait for each other at the interpreter's lock and at the database's, within transactions: each slice ends before
much is done, and rebuilding the runs' worlds takes more than their moves. A thread gives its seat up for a call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SEATS = 4
HANDS = 16
"""Threads of a worker that drive what no hint has brought to it."""
LOOK_S = 0.5
"""Seconds between two looks of a thread that waits whether it is still to wait."""


class Desk:
    """Seats, given in the order of asking; who comes back from a call is served before who begins."""

    def __init__(self, seats: int = SEATS) -> None:
        self._guard = threading.Lock()
        self._free = seats
        self._back: deque[threading.Lock] = deque()
        self._new: deque[threading.Lock] = deque()

    @contextmanager
    def seat(self, unwanted: Callable[[], bool]) -> Iterator[bool]:
        """A seat for as long as the `with` lasts; False, and none, where `unwanted` says so while it is waited for."""
        if not self._take(self._new, unwanted):
            yield False
            return
        try:
            yield True
        finally:
            self._give()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Give the seat up for as long as the `with` lasts."""
        self._give()
        try:
            yield
        finally:
            self._take(self._back, lambda: False)

    def _take(self, queue: deque[threading.Lock], unwanted: Callable[[], bool]) -> bool:
        mine = threading.Lock()
        mine.acquire()
        with self._guard:
            if self._free:
                self._free -= 1
                return True
            queue.append(mine)
        while not mine.acquire(timeout=LOOK_S):
            if unwanted():
                with self._guard:
                    if mine in queue:
                        queue.remove(mine)
                        return False
        return True

    def _give(self) -> None:
        with self._guard:
            if queue := self._back or self._new:
                queue.popleft().release()
            else:
                self._free += 1


DESK = Desk()
