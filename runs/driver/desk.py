"""Seats for the threads of one process: only a few work on runs at once, however many calls are in flight.

A worker has many threads, since a run mostly waits for a model. If all worked at once (a long queue, quick calls), they
would wait for each other's locks, also within transactions. Each slice would end early, and rebuilding the runs' worlds
would cost more than their moves. A thread gives up its seat for a call.
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
"""Seconds between a waiting thread's checks whether to wait on."""


class Desk:
    """Seats, given in the order of asking; threads that return from a call come before new ones."""

    def __init__(self, seats: int = SEATS) -> None:
        self._guard = threading.Lock()
        self._free = seats
        self._back: deque[threading.Lock] = deque()
        self._new: deque[threading.Lock] = deque()

    @contextmanager
    def seat(self, unwanted: Callable[[], bool]) -> Iterator[bool]:
        """Hold a seat for the `with`; yield False, without a seat, if `unwanted` says so during the wait."""
        if not self._take(self._new, unwanted):
            yield False
            return
        try:
            yield True
        finally:
            self._give()

    @contextmanager
    def left(self) -> Iterator[None]:
        """Give up the seat for the `with`."""
        self._give()
        try:
            yield
        finally:
            self._take(self._back, lambda: False)

    @property
    def waiting(self) -> int:
        """How many threads wait for a seat."""
        return len(self._back) + len(self._new)

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
