"""Runs that a restore paused, and how each goes on: once, and only where nobody has moved it on meanwhile.

What a run is paused by is what its last row of kind `pause` says; what else people did to it since changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from django.db import transaction
from django.db.models import Case, Exists, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When

from runs.engine.fact_kinds import name_of
from runs.engine.old_rows import as_now
from runs.machines import CATALOGUE
from runs.models import Exchange, Run, RunStatus, Step
from runs.store.again import for_people
from runs.store.errors import NotPossible
from runs.store.loading import MOVES
from runs.store.log import lock
from runs.store.people import resume

MAY_HAVE_HAPPENED, ACTS_NEXT, ELSE = 0, 1, 2
"""What is known of the call that a run is at: it was started; it, or what a person answered, comes next; neither."""


def paused_by_restore(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those of `runs` that a restore paused and nobody has let go on."""
    pauses = Step.objects.filter(run=OuterRef("pk"), kind=Step.Kind.PAUSE).order_by("-seq")
    paused = runs.filter(status=RunStatus.PAUSED).annotate(
        paused_in=Subquery(pauses.values("fact_kinds")[:1])
    )
    return paused.filter(paused_in__contains=name_of("run.paused", "backup"))


def urgent_first(runs: QuerySet[Run]) -> QuerySet[Run]:
    """With `move` (the row of each one's last move) and `urgency`: who may have done something comes first."""
    moves = Step.objects.filter(run=OuterRef("pk"), live=True, kind__in=MOVES).order_by("-seq")
    waits = Exchange.objects.filter(run=OuterRef("pk"), seq=OuterRef("move"))
    started = Exists(waits.filter(kind="tool_call", status=Exchange.Status.STARTED))
    called = Q(kind="tool_call", status=Exchange.Status.ASKED)
    decided = Q(kind="human_call", status=Exchange.Status.ANSWERED)
    urgency = Case(
        When(started, then=Value(MAY_HAVE_HAPPENED)),
        When(Exists(waits.filter(called | decided)), then=Value(ACTS_NEXT)),
        default=Value(ELSE),
        output_field=IntegerField(),
    )
    known = runs.annotate(move=Subquery(moves.values("seq")[:1]))
    return known.annotate(urgency=urgency).order_by("urgency", "pk")


def pausers_before(run_ids: Collection[int]) -> dict[int, str]:
    """Who had paused each of these runs before the restore did; a run that nobody had is not named."""
    rows = Step.objects.filter(run__in=run_ids, kind=Step.Kind.PAUSE).order_by("run_id", "seq")
    found: dict[int, str] = {}
    for run_id, text in rows.values_list("run_id", "facts_json"):
        for fact in json.loads(text):
            match fact["kind"]:
                case "run.paused" if as_now(fact).get("backup") is None:
                    found[run_id] = fact["by"]
                case "run.resumed":
                    found.pop(run_id, None)
    return found


@for_people
def resume_restored(run_id: int, by: str) -> Run:
    """Let a run go on that the restore paused; `NotPossible` where it was moved on meanwhile."""
    with transaction.atomic():
        lock(run_id)
        one = Run.objects.filter(pk=run_id)
        if not paused_by_restore(one).exists():
            raise NotPossible(_moved_on(one.get()))
        if (machine := one.get().machine) not in CATALOGUE:
            raise NotPossible(f"Run {run_id} is of the machine {machine}, which is not here any more.")
        return resume(run_id, by)


def _moved_on(run: Run) -> str:
    if run.finished:
        return f"Run {run.pk} has ended already ({run.status}: {run.exit_reason})."
    if run.status == RunStatus.PAUSED:
        return f"Run {run.pk} is paused by somebody, and no longer by the restore."
    return f"Run {run.pk} goes on already ({run.status})."
