"""The columns of an ended run, and the answer to its parent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import chain
from typing import Any

from django.utils import timezone

from runs.engine.effects import ChildFinished
from runs.engine.kernel import status_of
from runs.engine.machine import Machine, State
from runs.models import Run, Step, tells


def ended(machine: Machine, state: State) -> dict[str, Any]:
    """Return the columns of a run that has ended with `state`."""
    return {
        "status": status_of(machine, state),
        "exit_reason": state.exit_reason,
        "ok": machine.ok(state),
        "answer": state.answer,
        "answer_source": state.answer_source,
        "ended_at": timezone.now(),
    }


def _metadata(run: Run, machine: Machine, state: State) -> dict[str, Any]:
    """Return the state that the parent merges if the run is a fixed node of it; else nothing."""
    asked = run.parent.settings.get("subgraphs", {}).get(run.child_name, {}) if run.parent else {}
    if not asked.get("at"):
        return {}
    answer = {} if state.answer is None else {"answer": state.answer}
    return {**machine.metadata(state), **answer, "exit_reason": state.exit_reason}


def _message(run: Run, unwritten: Iterable[str]) -> str:
    """Return the words of the step that set the exit reason: of this batch, or written before."""
    written = Step.objects.filter(tells("react.exit"), run=run, live=True).order_by("-seq")
    for text in chain(unwritten, written.values_list("facts_json", flat=True)[:1]):
        for fact in json.loads(text):
            if fact["kind"] == "react.exit":
                return str(fact["message"])
    return ""


def for_parent(
    run: Run,
    machine: Machine,
    state: State,
    changes: dict[str, Any],
    cost_usd: float,
    unwritten: Iterable[str],
) -> tuple[int, int, ChildFinished] | None:
    """Return the answer to the parent, if there is one. `unwritten` are the facts of the batch at hand."""
    if run.parent_id is None or run.parent_seq is None:
        return None
    finished = ChildFinished(
        run=str(run.pk),
        status=changes["status"],
        answer=changes["answer"],
        cost_usd=cost_usd,
        metadata=_metadata(run, machine, state),
    )
    if not finished.gave_result:
        why = {"exit_reason": state.exit_reason or "", "message": _message(run, unwritten)}
        finished = finished.model_copy(update=why)
    return run.parent_id, run.parent_seq, finished
