"""What the kill switch did to a run, told in the run's own log: one row for each halt that kept workers from it.

Nothing is written when the switch is thrown or taken back: that must be quick however many runs there are, and may be
meant for a database in trouble. Who has the run's seat next, a worker that claims it or a person who moves it, finds
the halts that it wanted a worker in, and says so first, under the seat's own epoch. A run that wanted none is not
touched by a halt, and gets no row.
"""

from __future__ import annotations

from datetime import UTC, datetime

from django.db.models import Exists, OuterRef, Q

from runs.engine.facts import HeldBack
from runs.models import Halt, Run, Step, tells_of
from runs.store.appending import append
from runs.store.db import now


def halted_after(moment: str) -> Exists:
    """As a part of a query about runs: whether a halt has ended after the moment that the column `moment` has."""
    return Exists(Halt.objects.filter(ended_at__gt=OuterRef(moment)))


def tell_of_halts(run: Run, wanting: datetime) -> None:
    """A row for each halt that fell into the time since `wanting`, when the run began to want a worker.

    Within the transaction of whoever has taken the seat; `run` is kept up to date. A halt is told once.
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
