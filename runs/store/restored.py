"""Runs paused by a restore: how each goes on, and the mark in its log that it asks from here on."""

from __future__ import annotations

from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery

from runs.engine.fact_kinds import name_of
from runs.engine.facts import Restored
from runs.models import Run, RunStatus, Step, tells
from runs.store.appending import append
from runs.store.db import for_people
from runs.store.decisions import resume
from runs.store.errors import NotPossible
from runs.store.loading import restored_in
from runs.store.log import lock


def paused_by_restore(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Return those of `runs` that a restore paused: their last step of kind `pause` says so."""
    pauses = Step.objects.filter(run=OuterRef("pk"), kind=Step.Kind.PAUSE).order_by("-seq")
    paused = runs.filter(status=RunStatus.PAUSED).annotate(
        paused_in=Subquery(pauses.values("fact_kinds")[:1])
    )
    return paused.filter(paused_in__contains=name_of("run.paused", "backup"))


@for_people
def resume_restored(run_id: int, by: str) -> Run:
    """Resume a run that the restore paused; raises `NotPossible` if a person has paused or resumed it since."""
    with transaction.atomic():
        lock(run_id)
        run = Run.objects.filter(pk=run_id)
        if run.filter(status=RunStatus.PAUSED).exists() and not paused_by_restore(run).exists():
            raise NotPossible(f"Run {run_id} is paused by a person, not by the restore.")
        return resume(run_id, by)


def tell_restored(run: Run) -> None:
    """Log that the run comes from a restored one, if its log does not say so: forks and children begin without."""
    if run.restored_at is None or restored_in(run):
        return
    with transaction.atomic():
        append(run, "note", (Restored(),))


def lost_by_restore(run_id: int, seq: int) -> bool:
    """Return True if a restore, and no later loss of a worker, parted the run from the call of step `seq`."""
    parted = Step.objects.filter(tells("run.restored", "run.recovered"), run=run_id, seq__gt=seq)
    kind = parted.order_by("-seq").values_list("kind", flat=True).first()
    return kind is not None and kind != Step.Kind.RECOVERED
