"""Continue a run: a new run with its own goal, whose first step holds the results of the earlier runs.

The new run never reads the earlier ones again, so they may be deleted.
"""

from __future__ import annotations

from django.db import models, transaction

from runs.engine.facts import EarlierRun, Exited, Fact
from runs.engine.outward import carried_on
from runs.engine.timeline import folded
from runs.machines import CATALOGUE
from runs.models import Run, Step, tells
from runs.store.appending import append
from runs.store.artifacts import live_artifacts_of
from runs.store.creating import NewRun, insert, unsaved
from runs.store.db import for_people
from runs.store.errors import NotPossible
from runs.store.loading import context_blocks, state_at, terms_of
from runs.store.log import lock


@for_people
def continue_run(source: Run, new: NewRun) -> Run:
    """Write a run that continues `source` and has not begun; raises `NotPossible` if it can't be continued."""
    with transaction.atomic():
        lock(source.pk)
        source.refresh_from_db()
        check_continuing(source)
        run = unsaved(new)
        run.continues = source
        insert(run, new.checked)
        machine = CATALOGUE[source.machine]
        last = state_at(source, machine, terms_of(source, {}), source.head)
        facts = (*earlier_runs(source), _earlier_run(source), *carried_on(last, source.pk))
        opened = machine.open(terms_of(run, {}))
        after = machine.fold(opened, facts)
        append(run, "note", facts, after.model_dump_json() if after != opened else None)
        run.refresh_from_db()
    return run


def check_continuing(run: Run) -> None:
    """Raise `NotPossible` if the run has not ended, or is a part of another one."""
    if run.machine not in CATALOGUE:
        raise NotPossible(f"The machine {run.machine} of run {run.pk} is not in this version.")
    if run.parent_id is not None:
        raise NotPossible(f"Run {run.pk} was started by run {run.parent_id}. Continue run {run.parent_id}.")
    if not run.finished:
        raise NotPossible(f"Run {run.pk} has not ended: it is {run.status}. Continue it when it has ended.")


def earlier_runs(run: Run) -> tuple[EarlierRun, ...]:
    """Return the runs that the run continues, oldest first; a copy has its source's."""
    return tuple(fact for fact in _facts(run.steps.filter(seq=1)) if isinstance(fact, EarlierRun))


def _earlier_run(run: Run) -> EarlierRun:
    """Return the part of `run` for its successors."""
    ended = _facts(run.steps.filter(tells("react.exit"), live=True).order_by("-seq")[:1])
    summaries = folded(context_blocks(run)).standing()
    newest = max(summaries, key=lambda summary: summary.seq, default=None)
    names = live_artifacts_of(run).order_by("seq", "pk").values_list("name", flat=True)
    return EarlierRun(
        run=run.pk,
        goal=run.goal,
        reason=run.exit_reason or "",
        message=next((fact.message for fact in ended if isinstance(fact, Exited)), ""),
        answer=run.answer,
        summary=newest.text if newest else "",
        artifacts=tuple(dict.fromkeys(names)),
    )


def _facts(steps: models.QuerySet[Step]) -> tuple[Fact, ...]:
    step = steps.first()
    if step is None:
        return ()
    found: tuple[Fact, ...] = CATALOGUE[step.run.machine].facts.validate_json(step.facts_json)
    return found
