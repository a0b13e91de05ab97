"""A run's current activity: its ask, since when, which attempt, and the failure of the one before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from runs.engine.effects import ANSWER, EFFECT, Failed, ModelCall
from runs.models import Exchange, Run, RunStatus, Step
from runs.store.loading import MOVES

WAYS = {"model_call": "Waiting for the model", "compaction": "Waiting for a summary", "tool_call": "Running"}
"""An activity in words, by the call's kind."""


@dataclass(frozen=True)
class Doing:
    """A worker's current call, or the wait before the next worker."""

    what: str
    name: str = ""
    """The role of the model, or the tool."""
    since: datetime | None = None
    attempt: int = 1
    before: str = ""
    """The failure of the attempt before."""
    next_at: datetime | None = None
    """When the next attempt begins; None if it has begun."""
    busy: bool = False
    """True if the next attempt waits for a model server that is busy or away."""
    turn: bool = False
    """True if it is queued for a model with limits on calls at once or per minute."""

    @property
    def is_due(self) -> bool:
        """Return True if the time of the next attempt has come: a worker takes it up."""
        return self.next_at is not None and self.next_at <= timezone.now()


def doing_of(run: Run) -> Doing | None:
    """Return the run's current activity; None if it has ended, waits for a person, or is between two calls."""
    if run.status == RunStatus.RUNNING:
        return _call_of(run)
    if run.status == RunStatus.QUEUED:
        asked = _asked(run) if waits_for_turn(run) is None else None
        if asked is not None and asked.attempt > 1:
            return _next_attempt(run, asked)
        return _turn_of(run) or Doing("Waiting for a worker", since=run.due_at)
    return None


MOST = {"calls": "{} at once", "requests": "{} a minute", "tokens": "{} a minute"}
"""A limit of a model in words, by its kind."""


def waits_for_turn(run: Run) -> dict[str, Any] | None:
    """Return the model limit that the run waits for (model, limit, most); None if there is none."""
    if run.status != RunStatus.QUEUED or not run.doing_json:
        return None
    told = json.loads(run.doing_json)
    found: dict[str, Any] | None = told.get("turn") if told["epoch"] == run.epoch else None
    return found


def _turn_of(run: Run) -> Doing | None:
    waits = waits_for_turn(run)
    if waits is None:
        return None
    noun = waits["limit"] if waits["most"] != 1 else waits["limit"].removesuffix("s")
    counted = f"{waits['most']:,} {noun}"
    most = MOST[waits["limit"]].format(counted)
    what = f"Queued for model {waits['model']}: at most {most}"
    return Doing(what, next_at=run.due_at, turn=True)


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


def _next_attempt(run: Run, asked: Exchange) -> Doing | None:
    effect = EFFECT.validate_json(asked.request_json)
    busy = isinstance(effect, ModelCall) and effect.waited_s > 0
    before = _failure(run, asked.seq) if busy else _before(run)
    return _call(asked, None, before=before, next_at=run.due_at, busy=busy)


def _asked(run: Run) -> Exchange | None:
    """Return the open ask: later additions by people and the runtime don't change it."""
    row = _last_move(run)
    if row is None or row.kind != Step.Kind.ASK:
        return None
    return run.exchanges.filter(seq=row.seq).exclude(status=Exchange.Status.ANSWERED).first()


def _last_move(run: Run) -> Step | None:
    return run.steps.filter(live=True, kind__in=MOVES).order_by("-seq").first()


def _before(run: Run) -> str:
    """Return why the open ask is a further attempt."""
    row = _last_move(run)
    facts = json.loads(row.facts_json) if row is not None else []
    return next((fact["message"] for fact in facts if fact.get("code") == "retried"), "")


def _failure(run: Run, seq: int) -> str:
    """Return the failure of the attempt before the ask of step `seq`, in the server's words."""
    earlier = run.exchanges.filter(seq__lt=seq, answer_json__isnull=False).order_by("-seq").first()
    answer = ANSWER.validate_json(earlier.answer_json or "") if earlier is not None else None
    return answer.message if isinstance(answer, Failed) else ""
