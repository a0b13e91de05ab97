"""The end of a working process: nothing new is taken, nothing is lost, and no run waits for a lease to run out.

A run between two moves is let go at once; a call that may be repeated is cut and counts as not made; a deed that must
not be repeated is finished, as long as that is waited for. What is then left is taken over as after any death.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from runs.driver import alone, holds
from runs.models import Exchange

log = logging.getLogger(__name__)


def drain(seconds: float, hand_on: Callable[[int], object]) -> bool:
    """Let everything go, and wait at most `seconds` for the deeds under way; whether that was long enough.

    `hand_on` is told of each run whose worker is still in a call that was cut: another may take it at once.
    """
    for run_id in holds.close():
        hand_on(run_id)
    alone.tell_to_leave(seconds)
    if seconds and (calls := _calls_of(holds.not_left())):
        log.warning("Waiting up to %g s for %s: %s.", seconds, _counted(calls), "; ".join(calls))
    in_time = holds.wait_until_left(seconds)
    if not in_time and (calls := _calls_of(holds.not_left())):
        they = "it" if len(calls) == 1 else "they"
        log.warning("Cut off in the middle: %s. Nobody has heard how %s ended.", "; ".join(calls), they)
    return in_time


def _counted(calls: list[str]) -> str:
    return f"{len(calls)} call{'' if len(calls) == 1 else 's'}"


def _calls_of(run_ids: Iterable[int]) -> list[str]:
    """The calls that these runs are in, in words; none where the database can't tell, and the drain goes on."""
    try:
        last = [Exchange.objects.filter(run=run_id).order_by("seq").last() for run_id in sorted(run_ids)]
    except Exception:
        log.exception("The calls under way can't be named.")
        return []
    begun = [one for one in last if one and one.kind == "tool_call" and one.status == Exchange.Status.STARTED]
    return [f"run {one.run_id}, {one.name}" for one in begun]
