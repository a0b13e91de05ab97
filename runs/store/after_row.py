"""A run's side effects after one of its steps, people's changes to it, and the marks of pages that show both.

A page sends its mark back with the command. The command raises `ToldOtherwise` if the mark has changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from runs.engine.effects import changes_something
from runs.engine.fact_kinds import CONTEXT_CHANGES
from runs.engine.values import fingerprint
from runs.models import Decision, Exchange, Run, Step, tells
from runs.store.copying import NOT_ANSWERS, PEOPLE, SETTINGS


@dataclass(frozen=True, slots=True)
class Deed:
    """A call with side effects, or possible ones."""

    run: Run
    seq: int
    request: dict[str, Any]
    answer: dict[str, Any] | None


def deeds_after(run: Run, seq: int) -> list[Deed]:
    """Return the calls after step `seq` with side effects, or possible ones; then those of its child runs."""
    called = _with_theirs([*called_after(run, seq).values()])
    own = _deeds(run.exchanges.filter(seq__gt=seq), [run])
    return [*own, *_deeds(Exchange.objects.filter(run__in=called), called)]


def live_asks(run: Run, after: int = 0) -> QuerySet[Step, int]:
    """Return the numbers of the asks after step `after` that were not rolled back."""
    return run.steps.filter(seq__gt=after, live=True, kind=Step.Kind.ASK).values_list("seq", flat=True)


def called_after(run: Run, after: int = 0) -> dict[int, Run]:
    """Return the children called after step `after`, by their asks; rolled-back ones too."""
    found: dict[int, Run] = {}
    origin: Run | None = run
    upto = run.head
    while origin is not None and upto > after:
        theirs = origin.children.filter(parent_seq__gt=after, parent_seq__lte=upto)
        # A replay has children of its own for its copied steps.
        found = {child.parent_seq: child for child in theirs if child.parent_seq is not None} | found
        upto = min(upto, origin.copied_upto or 0)
        origin = origin.copied_from
    return dict(sorted(found.items()))


def _with_theirs(called: list[Run]) -> list[Run]:
    """Return child runs and their descendants, a generation at a time."""
    found: list[Run] = []
    while called:
        found += called
        called = list(Run.objects.filter(parent__in=called))
    return found


def _deeds(exchanges: QuerySet[Exchange], runs: list[Run]) -> Iterator[Deed]:
    by_key = {run.pk: run for run in runs}
    for exchange in exchanges.filter(kind="tool_call").exclude(status="asked").order_by("run_id", "seq"):
        request = json.loads(exchange.request_json)
        answer = json.loads(exchange.answer_json) if exchange.answer_json else None
        if changes_something(request["effects"]) and not (answer and answer.get("ran") is False):
            yield Deed(by_key[exchange.run_id], exchange.seq, request, answer)


def answered_after(run: Run, at: int, channels: Iterable[str]) -> QuerySet[Decision]:
    """Return the decisions after step `at` on the live path that can be repeated, in order."""
    live = run.steps.filter(seq__gt=at, live=True, kind=Step.Kind.ASK).values("seq")
    given = Decision.objects.filter(
        interrupt__run=run, interrupt__seq__in=live, channel__in=tuple(channels)
    ).exclude(Q(verdict__in=NOT_ANSWERS) | Q(interrupt__kind="may_have_happened"))
    return given.order_by("interrupt__seq")


def rewinds_after(run: Run, at: int) -> tuple[int, ...]:
    """Return the steps after step `at` that rolled the run back."""
    rewinds = run.steps.filter(seq__gt=at, kind=Step.Kind.REWIND).order_by("seq")
    return tuple(rewinds.values_list("seq", flat=True))


# --- marks of pages ---------------------------------------------------------------------------------------------


def rollback_mark(run: Run, at: int) -> str:
    """Return a mark of the page's account of a rollback to step `at`: its lasting and undone effects.

    The mark ignores constant changes (steps, costs) and calls that have ended meanwhile.
    """
    return fingerprint("rollback", [*_told(run, at, (*PEOPLE, SETTINGS)), rewinds_after(run, at)])


def copy_mark(run: Run, at: int) -> str:
    """Return the same for a new run from step `at`: without answers of the launch, and rollbacks since."""
    return fingerprint("copy", _told(run, at, PEOPLE))


def _told(run: Run, at: int, channels: Iterable[str]) -> list[list[Any]]:
    changes = run.steps.filter(tells(*CONTEXT_CHANGES), seq__gt=at, live=True, kind=Step.Kind.NOTE)
    return [
        [(one.run.pk, one.seq) for one in deeds_after(run, at)],
        list(answered_after(run, at, channels).values_list("interrupt__seq", "verdict")),
        list(changes.order_by("seq").values_list("seq", flat=True)),
    ]
