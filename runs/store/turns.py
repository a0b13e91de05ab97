"""Turns at a model: its calls in flight, and the last minute's use of its profile's limits.

The database keeps it for all workers: a row for each call of a profile with a limit. Taking a turn locks the profile's
row, so two can't take the last place. A place is taken while the call is in flight and its worker has the run's lease.
The next turn deletes rows of ended calls that began more than a minute ago.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from runs.engine.values import canonical
from runs.models import ModelProfile, ModelTurn, Run, RunStatus
from runs.store.db import again, now
from runs.store.errors import Fenced
from runs.store.leases import Lease

MINUTE = timedelta(minutes=1)
"""Period over which requests and tokens count."""

LOOK_S = 1.0
"""Seconds until a run looks again for a place among the calls in flight."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A profile's limits for all workers together. None: no limit."""

    profile: int
    name: str
    reply_tokens: int
    """Of the longest reply."""
    calls: int | None = None
    """Calls at once."""
    requests: int | None = None
    tokens: int | None = None
    """Requests and tokens a minute."""


@dataclass(frozen=True, slots=True)
class Full:
    """A limit of a model that leaves no room now."""

    limit: Literal["calls", "requests", "tokens"]
    most: int
    wait_s: float
    """Seconds until there may be room."""


def limits_of(profile: ModelProfile) -> Limits | None:
    """Return the limits of a profile; None if it has none."""
    most = (profile.most_calls, profile.most_requests, profile.most_tokens)
    return (
        None
        if most == (None, None, None)
        else Limits(profile.pk, profile.name, profile.max_output_tokens, *most)
    )


@again
def take_turn(limits: Limits, lease: Lease, tokens: int) -> int | Full:
    """Return the key of a turn at a call that uses `tokens` at most, or the limit to wait for.

    Raises `Fenced` if the run has another worker by now.
    """
    with transaction.atomic():
        list(ModelProfile.objects.select_for_update().filter(pk=limits.profile).values_list("pk"))
        if not Run.objects.filter(pk=lease.run_id, epoch=lease.epoch).exists():
            raise Fenced(lease.run_id, lease.epoch)
        moment = now()
        turns = ModelTurn.objects.filter(profile=limits.profile)
        turns.filter(began_at__gt=moment).update(began_at=moment)  # the clock was set back
        turns.filter(run=lease.run_id, ended_at=None).update(ended_at=moment)
        turns.filter(_over(moment), began_at__lte=moment - MINUTE).delete()
        if (full := _full(limits, turns, tokens, moment)) is not None:
            return full
        turn = ModelTurn.objects.create(
            profile_id=limits.profile, run_id=lease.run_id, epoch=lease.epoch, tokens=tokens, began_at=moment
        )
    return turn.pk


def end_turn(turn: int, tokens: int | None) -> None:
    """Free the place; the call used `tokens`, if known."""
    known = {} if tokens is None else {"tokens": tokens}
    ModelTurn.objects.filter(pk=turn).update(ended_at=Now(), **known)


def give_back(turn: int) -> None:
    """Forget a turn without a call."""
    ModelTurn.objects.filter(pk=turn).delete()


def wait_for_turn(lease: Lease, full: Full, model: str) -> None:
    """Release the run until there may be room; the model has not been asked."""
    told = {"turn": {"model": model, "limit": full.limit, "most": full.most}, "epoch": lease.epoch}
    mine = Run.objects.filter(pk=lease.run_id, epoch=lease.epoch, status=RunStatus.RUNNING)
    mine.update(
        status=RunStatus.QUEUED,
        due_at=Now() + timedelta(seconds=full.wait_s),
        doing_json=canonical(told),
        reserved_usd=0,
        reserved_tokens=0,
    )


def _over(now: datetime) -> Q:
    """Return the condition that the call has ended, or its worker lost the run."""
    held = Q(run__epoch=F("epoch"), run__status=RunStatus.RUNNING, run__lease_until__gt=now)
    return Q(ended_at__isnull=False) | ~held


def _full(limits: Limits, turns: QuerySet[ModelTurn], tokens: int, now: datetime) -> Full | None:
    if limits.calls is not None and turns.exclude(_over(now)).count() >= limits.calls:
        return Full("calls", limits.calls, LOOK_S)
    lately: list[Any] = list(
        turns.filter(began_at__gt=now - MINUTE).order_by("began_at").values_list("began_at", "tokens")
    )
    if limits.requests is not None and len(lately) >= limits.requests:
        frees = lately[len(lately) - limits.requests][0]
        return Full("requests", limits.requests, _until(frees, now))
    used = sum(spent for _, spent in lately)
    if limits.tokens is None or not lately or used + tokens <= limits.tokens:
        return None  # a call larger than the limit gets its turn once no other counts
    frees = next(
        began for began, left in _left_after(lately, used) if left + tokens <= limits.tokens or not left
    )
    return Full("tokens", limits.tokens, _until(frees, now))


def _left_after(calls: list[Any], used: int) -> Iterator[tuple[datetime, int]]:
    """Yield when each call began, and the tokens that still count after it expires."""
    for began, spent in calls:
        used -= spent
        yield began, used


def _until(began: datetime, now: datetime) -> float:
    """Return the seconds until a call no longer counts."""
    return max(LOOK_S, (began + MINUTE - now).total_seconds())
