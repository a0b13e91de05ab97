"""Restored runs: the waiting ones, and the notes about resumed ones."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils.dateformat import format as date_text

from runs import driver
from runs.models import Interrupt, Run, Step
from runs.rights import Person, may_steer
from runs.store.restored import paused_by_restore

AT_ONCE = 100
"""Runs on a page."""


@dataclass(frozen=True)
class RestoredRun:
    """A run that the restore paused."""

    run: Run
    mine: bool
    """True if the reader may resume it."""
    no_model: str
    """Why its model can't be called, so it would end at its next call; empty if it can."""


def restored_of(user: Person) -> QuerySet[Run]:
    """Return the runs that a restore paused and `user` may see, oldest first."""
    visible = Run.objects.all() if user is None else Run.objects.for_user(user)
    return paused_by_restore(visible).select_related("owner", "script").defer("answer").order_by("pk")


def restored_views(runs: Collection[Run], user: Person) -> list[RestoredRun]:
    """Return the runs as the page shows them."""
    no_model = driver.why_not(run.model_name for run in runs if not run.script_json)
    return [
        RestoredRun(run, may_steer(user, run), "" if run.script_json else no_model.get(run.model_name, ""))
        for run in runs
    ]


def why_restored(run: Run) -> str:
    """Return the restore's message on the run; empty if the run is not paused by one."""
    if not paused_by_restore(Run.objects.filter(pk=run.pk)).exists():
        return ""
    facts = json.loads(run.steps.filter(kind=Step.Kind.PAUSE).latest("seq").facts_json)
    return str(facts[0]["message"])


def unknown_of(run: Run) -> str:
    """Return the note that a restored run may have done more than its log has; empty if the run is not restored."""
    if run.restored_at is None:
        return ""
    return f"{_restored(run)}. Side effects of this run since the backup are not in its log."


def doubt_of(question: Interrupt) -> str:
    """Return the note that the call in question may have been made before a restore; empty if it can't have been."""
    if question.status != Interrupt.Status.PENDING or not question.may_be_done:
        return ""
    return f"{_restored(question.run)}. Check outside whether this call was made since the backup."


def _restored(run: Run) -> str:
    assert run.restored_at is not None
    return f"This site was restored from a backup on {date_text(run.restored_at, 'j M, H:i')} UTC"
