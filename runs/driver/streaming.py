"""Shows viewers a reply while it streams, and cuts a call that is no longer wanted."""

from __future__ import annotations

import time
from collections.abc import Callable

from runs import live
from runs.driver.holds import Hold

DELTA_S = 0.125
"""Seconds between two pieces of streamed text for viewers."""


class Watcher:
    """Watches one call of a model."""

    def __init__(self, hold: Hold, node: str) -> None:
        self._hold = hold
        self._node = node
        self._sent_at = 0.0

    def watch(self, so_far: Callable[[], str]) -> bool:
        """Return True if the call is still wanted. The text is read only when it is time to show it."""
        now = time.monotonic()
        if now - self._sent_at > DELTA_S and (text := so_far()):
            self._sent_at = now
            live.delta(self._hold.lease.run_id, self._node, text)
        return self._hold.wanted()
