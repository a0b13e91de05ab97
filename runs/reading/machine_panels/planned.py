"""The plan: its rows with the pending one lit, why some were skipped, and the plans that it replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runs.engine.facts import Fact, ToolReported
from runs.machines.planned import PLANNED
from runs.machines.planned.facts import PlanMade, PlanUnread, StepSkipped
from runs.machines.planned.settings import PlanRow
from runs.machines.planned.state import PlannedState, open_state
from runs.models import Budget
from runs.reading.gauges import gauge_of, lines_of
from runs.reading.machine_panels.story import Told
from runs.reading.phrases import call_text, short
from runs.reading.unheard import Outcome, Unheard
from runs.reading.words import spoken

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
"""Those that move the plan: told again in order they give the state at each row."""

SIGNS = {"done": "✓", "pending": "→", "later": "□", "left": "–", "unsure": "?"}
SAID = {
    "done": "done",
    "pending": "next",
    "later": "to do",
    "left": "not done",
    "unsure": "outcome unknown",
}

UNHEARD: dict[Outcome, str] = {
    "done": "done",
    "failed": "left",
    "not_done": "left",
    "under_way": "unsure",
    "unknown": "unsure",
}
"""How a row fared whose call a stopped run did not hear of any more."""


@dataclass
class Happened:
    """Something that kept a row from being done, or from being heard of: a skip, a failure, the end of the run."""

    title: str
    text: str
    seq: int


@dataclass
class RowView:
    """A row of a plan, and how it fared."""

    number: int
    tool: str
    code: str
    thought: str
    status: str = "later"
    seq: int | None = None
    happened: list[Happened] = field(default_factory=list)

    @property
    def sign(self) -> str:
        """Its mark."""
        return SIGNS[self.status]

    @property
    def said(self) -> str:
        """Its mark in words."""
        return SAID[self.status]


@dataclass
class Revision:
    """One plan that was followed, and what brought it."""

    number: int
    seq: int
    by: str
    why: str
    outline: str
    rows: list[RowView]
    unread: str = ""
    """A plan after this one could not be read: this one was kept."""

    @property
    def done(self) -> int:
        """How many of its rows are done."""
        return sum(row.status == "done" for row in self.rows)


def context(
    state: PlannedState, rows: list[Told], budgets: list[Budget], unheard: Unheard | None
) -> dict[str, Any]:
    """What the template is given."""
    plans = _plans(state, rows)
    current = plans[-1] if plans else None
    ended = state.exit_reason is not None
    if current is not None:
        if unheard is not None:
            _tell_unheard(current, state, unheard)
        _light(current, None if ended or state.replanning else state.pending_plan_step, ended=ended)
    lines = lines_of(budgets, "global")
    return {
        "plan": current,
        "earlier": plans[-2::-1],
        "replanning": spoken(state.replanning) if state.replanning and not ended else "",
        "follow": state.settings.follow,
        "gauges": [gauge_of(lines[name]) for name in ("attempts", "replans") if name in lines],
        "retries": state.retry_count,
        "failures": state.failure_count,
        "threshold": state.settings.replan_failure_threshold,
        "fallback": state.answer_source == "fallback",
    }


def _tell_unheard(plan: Revision, state: PlannedState, unheard: Unheard) -> None:
    """The run was stopped while it called what the pending row wants: the row says how that ended."""
    pending, action = state.pending_plan_step, state.action
    if pending is None or action is None or action.mismatch or action.tool != unheard.tool:
        return
    if pending >= len(plan.rows):
        return
    row = plan.rows[pending]
    row.status = UNHEARD[unheard.outcome]
    row.happened.append(Happened("the run ended first", unheard.sentence, unheard.seq))


def _light(plan: Revision, pending: int | None, *, ended: bool) -> None:
    for place, row in enumerate(plan.rows):
        if row.status == "later" and ended:
            row.status = "left"
        elif place == pending:
            row.status = "pending"


def _plans(head: PlannedState, rows: list[Told]) -> list[Revision]:
    """Every plan in order, each row with what happened to it, found by the machine's own fold."""
    plans: list[Revision] = []
    state = open_state(head.terms)
    for row in rows:
        for fact in PLANNED.facts.validate_python(list(row.facts)):
            after = PLANNED.evolve(state, fact)
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
        plans[-1].unread = short(fact.message)
    pending = before.pending_plan_step
    if pending is None or pending >= len(plans[-1].rows):
        return
    row = plans[-1].rows[pending]
    match fact:
        case StepSkipped(why=why, message=message):
            row.happened.append(Happened(f"skipped: {spoken(why)}", short(message, 200), seq))
        case ToolReported() if after.plan_index > before.plan_index:
            row.status, row.seq = "done", seq
        case ToolReported(error=str(error)) if not (before.action and before.action.mismatch):
            row.happened.append(Happened("failed", short(error, 200), seq))


def _view(number: int, row: PlanRow) -> RowView:
    return RowView(number, row.tool, call_text(row.tool, row.args), row.thought)
