"""The plan: its steps with the pending one lit, the reasons of skips, and the plans that it replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from runs.engine.facts import Fact, ToolReported
from runs.engine.machine import facts_read
from runs.engine.presentation import Data, Lost, Panel, Told, meters_of, spoken
from runs.machines.planned.facts import OWN_FACTS, PlanMade, PlanUnread, StepSkipped
from runs.machines.planned.settings import PlanRow
from runs.machines.planned.state import PlannedState, budget, evolve, open_state

FACTS = (
    "react.plan",
    "planned.plan.unread",
    "planned.replan.began",
    "planned.attempt.began",
    "planned.row.taken",
    "planned.action.entered",
    "react.decision",
    "react.tool.edited",
    "react.tool.result",
    "step.skipped",
)
"""Facts that move the plan: folded in order they give the state at each step."""

SIGNS = {"done": "✓", "pending": "→", "later": "□", "left": "–", "unsure": "?"}
SAID = {"done": "done", "pending": "next", "later": "to do", "left": "not done", "unsure": "outcome unknown"}

LOST = {"done": "done", "failed": "left", "not_done": "left", "under_way": "unsure", "unknown": "unsure"}
"""The outcome of a plan step whose call was in flight when its run was stopped."""


@dataclass
class Happened:
    """Why a plan step was not done, or its outcome is unknown: a skip, a failure, the end of the run."""

    title: str
    text: str
    seq: int
    most: int = 200
    """Most shown characters of the text."""


@dataclass
class RowView:
    """A plan step, and its outcome."""

    number: int
    tool: str
    args: Data
    thought: str
    status: str = "later"
    seq: int | None = None
    happened: list[Happened] = field(default_factory=list)

    @property
    def sign(self) -> str:
        return SIGNS[self.status]

    @property
    def said(self) -> str:
        """Return its mark in words."""
        return SAID[self.status]


@dataclass
class Revision:
    """A plan that was followed, and its cause."""

    number: int
    seq: int
    by: str
    why: str
    outline: str
    rows: list[RowView]
    unread: str = ""
    """Why a plan after this one could not be read: this one was kept."""

    @property
    def done(self) -> int:
        """Return how many of its steps are done."""
        return sum(row.status == "done" for row in self.rows)


def context(state: PlannedState, rows: Sequence[Told], lost: Lost | None) -> Data:
    """Return the data of the template."""
    plans = _plans(state, rows)
    current = plans[-1] if plans else None
    ended = state.exit_reason is not None
    if current is not None:
        if lost is not None:
            _tell_lost(current, state, lost)
        _light(current, None if ended or state.replanning else state.pending_plan_step, ended=ended)
    return {
        "plan": current,
        "earlier": plans[-2::-1],
        "replanning": spoken(state.replanning) if state.replanning and not ended else "",
        "follow": state.settings.follow,
        "meters": meters_of(budget(state), "global", {}).values(),
        "retries": state.retry_count,
        "failures": state.failure_count,
        "threshold": state.settings.replan_failure_threshold,
        "fallback": state.answer_source == "fallback",
    }


def _tell_lost(plan: Revision, state: PlannedState, lost: Lost) -> None:
    """Note on the pending plan step how its call ended that was in flight when the run was stopped."""
    pending, action = state.pending_plan_step, state.action
    if pending is None or action is None or action.mismatch or action.tool != lost.tool:
        return
    if pending >= len(plan.rows):
        return
    row = plan.rows[pending]
    row.status = LOST[lost.outcome]
    row.happened.append(Happened("the run ended first", lost.sentence, lost.seq, 1000))


def _light(plan: Revision, pending: int | None, *, ended: bool) -> None:
    for place, row in enumerate(plan.rows):
        if row.status == "later" and ended:
            row.status = "left"
        elif place == pending:
            row.status = "pending"


@cache
def _reader() -> Any:
    return facts_read(OWN_FACTS)


def _plans(head: PlannedState, rows: Sequence[Told]) -> list[Revision]:
    """Return every plan in order, each step with its events, found by the machine's own fold."""
    plans: list[Revision] = []
    state = open_state(head.terms)
    for row in rows:
        for fact in _reader().validate_python(list(row.facts)):
            after = evolve(state, fact)
            assert isinstance(after, PlannedState)
            _tell(plans, state, after, fact, row.seq)
            state = after
    return plans


def _tell(plans: list[Revision], before: PlannedState, after: PlannedState, fact: Fact, seq: int) -> None:
    if isinstance(fact, PlanMade):
        for row in plans[-1].rows if plans else ():
            row.status = "left" if row.status == "later" else row.status
        views = [_view(number, row) for number, row in enumerate(fact.rows, 1)]
        plans.append(Revision(len(plans) + 1, seq, fact.by, fact.why or "", fact.outline, views))
        return
    if not plans:
        return
    if isinstance(fact, PlanUnread):
        plans[-1].unread = fact.message
    pending = before.pending_plan_step
    if pending is None or pending >= len(plans[-1].rows):
        return
    row = plans[-1].rows[pending]
    match fact:
        case StepSkipped(why=why, message=message):
            row.happened.append(Happened(f"skipped: {spoken(why)}", message, seq))
        case ToolReported() if after.plan_index > before.plan_index:
            row.status, row.seq = "done", seq
        case ToolReported(error=str(error)) if not (before.action and before.action.mismatch):
            row.happened.append(Happened("failed", error, seq))


def _view(number: int, row: PlanRow) -> RowView:
    return RowView(number, row.tool, row.args, row.thought)


PANEL = Panel("The plan", FACTS, context, "planned/panel.html")
