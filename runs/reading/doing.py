"""What a run is doing at this moment: what is asked, since when, which attempt, and what the one before failed of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runs.models import Exchange, Run, RunStatus, Step

WAYS = {"model_call": "Waiting for the model", "compaction": "Waiting for a summary", "tool_call": "Running"}
"""How a call is told, by its kind."""


@dataclass(frozen=True)
class Doing:
    """What a worker is in, or what is waited for before one takes the run."""

    what: str
    name: str = ""
    """The role of the model, or the tool."""
    since: datetime | None = None
    attempt: int = 1
    before: str = ""
    """What the attempt before failed of."""
    next_at: datetime | None = None
    """When the next attempt begins; None where it has begun."""


def doing_of(run: Run) -> Doing | None:
    """What is under way in the run; None where it has ended, waits for a person, or is between two calls."""
    if run.status == RunStatus.RUNNING:
        return _call_of(run)
    if run.status == RunStatus.QUEUED:
        asked = _asked(run)
        if asked is not None and asked.attempt > 1:
            return _call(asked, None, before=_before(run), next_at=run.due_at)
        return Doing("Waiting for a worker", since=run.due_at)
    return None


def _call_of(run: Run) -> Doing | None:
    told = json.loads(run.doing_json) if run.doing_json else None
    if told is not None and told["epoch"] == run.epoch and told["seq"] >= run.head:
        asked = Exchange(kind=told["kind"], name=told["name"], attempt=told["attempt"])
        before = _before(run) if asked.attempt > 1 else ""
        return _call(asked, datetime.fromisoformat(told["since"]), before=before)
    if (written := _asked(run)) is None:
        return None
    return _call(written, written.started_at, before=_before(run) if written.attempt > 1 else "")


def _call(asked: Exchange, since: datetime | None, **told: Any) -> Doing | None:
    what = WAYS.get(asked.kind)
    return Doing(what, asked.name, since, asked.attempt, **told) if what else None


def _asked(run: Run) -> Exchange | None:
    """The ask at the end of the run's rows that nothing was answered to."""
    return run.exchanges.filter(seq=run.head).exclude(status=Exchange.Status.ANSWERED).first()


def _before(run: Run) -> str:
    """Why the ask at the end of the rows is a further attempt."""
    row = Step.objects.filter(run=run, seq=run.head).first()
    facts = json.loads(row.facts_json) if row is not None else []
    return next((fact["message"] for fact in facts if fact.get("code") == "retried"), "")
