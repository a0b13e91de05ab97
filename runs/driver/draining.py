"""The end of a working process: nothing new is taken, nothing is lost, and no run waits for a lease to run out.

A run between two moves is let go at once; a call that may be repeated is cut and counts as not made; a deed that must
not be repeated is finished, as long as that is waited for. What is then left is taken over as after any death.
"""

from __future__ import annotations

from collections.abc import Callable

from runs.driver import holds


def drain(seconds: float, hand_on: Callable[[int], object]) -> bool:
    """Let everything go, and wait at most `seconds` for the deeds under way; whether that was long enough.

    `hand_on` is told of each run whose worker is still in a call that was cut: another may take it at once.
    """
    for run_id in holds.close():
        hand_on(run_id)
    return holds.wait_until_left(seconds)
