"""What a restored site can't know: whether a question was answered between the backup and the restore, and acted on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Q

from runs.engine.effects import changes_something
from runs.engine.old_rows import as_now
from runs.models import Interrupt, Run, Step, tells_of

BY_A_RESTORE = Q(kind=Step.Kind.PAUSE) & tells_of("run.paused", backup=True)
"""Rows by which a restore paused their run."""


def doubted_by_restore(questions: Iterable[Interrupt]) -> dict[Any, datetime | None]:
    """Those questions, by key, that may have been answered, and acted on, in the life that a restore has ended.

    They are those that were asked already when their run was paused by it, and whatever the run, or one that comes
    from it, asked later about a call that changes something, or whether it may act: it goes the same way again. With
    it stands when the backup was made: of several the first; None where its time is not told.
    """
    asked = list(questions)
    loaded = [one.run for one in asked if "run" in one._state.fields_cache]
    families = _with_origins({one.run_id for one in asked}, loaded)
    rows = _pauses_of(set().union(*families.values()))
    found: dict[Any, datetime | None] = {}
    for one in asked:
        acts = holds_a_deed(one) or one.kind in ("plan", "human_approval")
        since = next(
            (
                text
                for run_id, seq, text in rows
                if (acts and run_id in families[one.run_id]) or (run_id == one.run_id and seq > one.seq)
            ),
            None,
        )
        if since is not None:
            found[one.pk] = _made_at(since)
    return found


def holds_a_deed(question: Interrupt) -> bool:
    """Whether it holds back a call that changes something."""
    return changes_something(question.effects)


def ended_life(run: Run) -> tuple[bool, datetime | None]:
    """Whether a restore ended a life of the run, or of one that it comes from, that its log does not have.

    With it stands when the backup was made, as far as that is told.
    """
    rows = _pauses_of(_with_origins({run.pk})[run.pk])
    return (True, _made_at(rows[0][2])) if rows else (False, None)


def _pauses_of(run_ids: set[int]) -> list[tuple[int, int, str]]:
    """The rows by which a restore paused these runs, the first one first: run, row, facts."""
    pauses = Step.objects.filter(BY_A_RESTORE, run__in=run_ids)
    return list(pauses.order_by("pk").values_list("run_id", "seq", "facts_json"))


def _with_origins(run_ids: set[int], loaded: Iterable[Run] = ()) -> dict[int, set[int]]:
    """Return each run with those that started it, and those that it was copied from, up to the first.

    `loaded` are runs of which that need not be read.
    """
    origins: dict[int, set[int]] = {}
    rows: Iterable[Any] = [(run.pk, run.parent_id, run.copied_from_id) for run in loaded]
    while True:
        origins |= {run: {one for one in before if one is not None} for run, *before in rows}
        asked = run_ids.union(*origins.values()) - origins.keys()
        if not asked:
            break
        rows = Run.objects.filter(pk__in=asked).values_list("pk", "parent", "copied_from")
    return {one: _reached(one, origins) for one in run_ids}


def _reached(run_id: int, origins: Mapping[int, set[int]]) -> set[int]:
    found, left = set(), [run_id]
    while left:
        found.add(one := left.pop())
        left += origins[one] - found
    return found


def lost_by_restore(run_id: int, seq: int) -> bool:
    """Whether what parted the run from the call of row `seq` was a restore, and no loss of a worker since."""
    parted = Step.objects.filter(Q(kind=Step.Kind.RECOVERED) | BY_A_RESTORE, run=run_id, seq__gt=seq)
    return parted.order_by("-seq").values_list("kind", flat=True).first() == Step.Kind.PAUSE


def _made_at(text: str) -> datetime | None:
    paused = next(fact for fact in json.loads(text) if fact["kind"] == "run.paused")
    made_at = as_now(paused)["backup"]
    return datetime.fromisoformat(made_at) if made_at else None
