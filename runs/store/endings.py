"""What an ended run's row says, and who is told."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from runs.engine.effects import ChildFinished
from runs.engine.kernel import status_of
from runs.engine.machine import Machine, State
from runs.models import Run


def ended(machine: Machine, state: State) -> dict[str, Any]:
    """The columns of a run that has ended with `state`."""
    return {
        "status": status_of(machine, state),
        "exit_reason": state.exit_reason,
        "ok": machine.ok(state),
        "answer": state.answer,
        "answer_source": state.answer_source,
        "ended_at": timezone.now(),
    }


def _metadata(run: Run, machine: Machine, state: State) -> dict[str, Any]:
    """Return what the parent merges where the run is a fixed node of it; else nothing."""
    asked = run.parent.settings.get("subgraphs", {}).get(run.child_name, {}) if run.parent else {}
    if not asked.get("at"):
        return {}
    answer = {} if state.answer is None else {"answer": state.answer}
    return {**machine.metadata(state), **answer, "exit_reason": state.exit_reason}


def for_parent(
    run: Run, machine: Machine, state: State, changes: dict[str, Any], cost_usd: float
) -> tuple[int, int, ChildFinished] | None:
    """What the parent is told, where there is one."""
    if run.parent_id is None or run.parent_seq is None:
        return None
    finished = ChildFinished(
        run=str(run.pk),
        status=changes["status"],
        answer=changes["answer"],
        cost_usd=cost_usd,
        metadata=_metadata(run, machine, state),
    )
    return run.parent_id, run.parent_seq, finished
