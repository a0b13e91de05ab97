"""The end of a working process: it takes nothing new and loses nothing, and no run waits for a lease to expire.

A run between two moves is released at once. A repeatable call is cut and counts as not made. Another call is finished,
within the time allowed. The rest is taken over as after any death.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from django.db import DatabaseError

from runs.driver import alone, holds, spool
from runs.engine.presentation import plural
from runs.models import Exchange
from runs.store import leases

UNNAMED = "The calls under way can't be named."

log = logging.getLogger(__name__)


def drain(seconds: float, hand_on: Callable[[int], object]) -> bool:
    """Release everything, and wait at most `seconds` for calls in flight. Return whether that was long enough.

    `hand_on` is told of each run with a cut call: another worker may take it at once.
    """
    for run_id in holds.close():
        hand_on(run_id)
    alone.tell_to_leave(seconds)
    if seconds and (calls := _calls_of(holds.not_left())):
        log.warning("Waiting up to %g s for %s: %s.", seconds, plural(len(calls), "call"), "; ".join(calls))
    return holds.wait_until_left(seconds)


def cut_off(end: Callable[[], object]) -> None:
    """Name the calls without an answer that end with this process; then `end` it.

    Meanwhile no answer can be committed: the database keeps these runs for this thread.
    """
    run_ids = holds.not_left()
    try:
        with leases.kept_still(run_ids):
            if said := what_is_cut(run_ids):
                log.warning("%s", said)
            end()
    except DatabaseError:
        log.exception(UNNAMED)
        end()


def what_is_cut(run_ids: Iterable[int]) -> str:
    """Return the calls of these runs without an answer, in a sentence; empty if there is none."""
    calls = _calls_of(run_ids)
    outcome = "The outcome is" if len(calls) == 1 else "The outcomes are"
    return f"Cut off mid-call: {'; '.join(calls)}. {outcome} unknown." if calls else ""


def _calls_of(run_ids: Iterable[int]) -> list[str]:
    """Return the calls of these runs without an answer; none if the database can't tell."""
    try:
        last = [Exchange.objects.filter(run=run_id).order_by("seq").last() for run_id in sorted(run_ids)]
    except Exception:
        log.exception(UNNAMED)
        return []
    begun = [one for one in last if one and one.kind == "tool_call" and one.status == Exchange.Status.STARTED]
    return [f"run {one.run_id}, {one.name}" for one in begun if spool.get(one.key) is None]
