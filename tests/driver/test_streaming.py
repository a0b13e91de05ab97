"""A worker looks at a reply while it streams: often whether it is wanted, seldom what it says."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from runs.driver.streaming import DELTA_S, Watcher


def test_a_text_is_read_for_the_viewers_only_when_it_is_time_to_show_it() -> None:
    hold: Any = SimpleNamespace(wanted=lambda: True, lease=SimpleNamespace(run_id=1))
    watcher, reads, begun = Watcher(hold, "thought"), [0], time.monotonic()

    def so_far() -> str:
        reads[0] += 1
        return "the text so far"

    for _ in range(20_000):
        assert watcher.watch(so_far)
    assert 1 <= reads[0] <= 1 + (time.monotonic() - begun) / DELTA_S
