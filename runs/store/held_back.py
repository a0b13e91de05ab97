"""The effect of the kill switch on a run, in the run's own log: one step for each halt that kept workers from it.

Nothing is written when the switch is used: that must be quick despite many runs, and may be meant for a database in
trouble. A worker's claim or a person's move is the next to take the run. It finds the halts during which the run wanted
a worker, and writes them first under its own epoch. A run that wanted none gets no step.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import Exists, OuterRef, Q

from runs.engine.facts import HeldBack
from runs.models import Halt, Run, Step, tells_of
from runs.store.appending import append
from runs.store.db import now


def halted_after(moment: str) -> Exists:
    """Return the query condition that a halt has ended after the time in column `moment`."""
    return Exists(Halt.objects.filter(ended_at__gt=OuterRef(moment)))


def tell_of_halts(run: Run, wanting: datetime) -> None:
    """Add a step for each halt since `wanting`, when the run began to want a worker.

    Runs within the transaction that took the run, and updates `run`. A halt is written once.
    """
    for halt in Halt.objects.filter(Q(on=True) | Q(ended_at__gt=wanting)).order_by("pk"):
        if (halt.on and wanting > now()) or _is_told(run, halt):
            continue
        fact = HeldBack(
            halt=halt.pk,
            since=_text(max(halt.at, wanting)),
            until=_text(halt.ended_at) if halt.ended_at else "",
            by=halt.by_name,
            reason=halt.reason,
        )
        append(run, "note", (fact,))


def _is_told(run: Run, halt: Halt) -> bool:
    told = run.steps.filter(tells_of("run.held_back", halt=halt.pk), kind=Step.Kind.NOTE)
    return told.exists()


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
