"""The facts of `planned`."""

from __future__ import annotations

from typing import Any, Literal

from runs.engine.facts import Fact
from runs.machines.planned.settings import PlanRow

SkipReason = Literal[
    "action_selection_failed", "tool_not_permitted", "duplicate_action", "plan_tool_mismatch"
]


ReplanReason = Literal["failures", "divergence", "duplicates"]


class PlanMade(Fact):
    """The plan from here on, and its source."""

    kind: Literal["react.plan"] = "react.plan"
    rows: tuple[PlanRow, ...]
    outline: str = ""
    by: Literal["form", "planner", "person"]
    why: ReplanReason | None = None
    """The cause of a new plan; None for the first one."""


class PlanUnread(Fact):
    """The planner's reply is no plan: the plan stays as it is. The raw text is on the exchange."""

    kind: Literal["planned.plan.unread"] = "planned.plan.unread"
    message: str
    why: ReplanReason | None = None


class ReplanBegan(Fact):
    """The planner is asked again."""

    kind: Literal["planned.replan.began"] = "planned.replan.began"
    why: ReplanReason


class AttemptBegan(Fact):
    """A counted entry to `select`."""

    kind: Literal["planned.attempt.began"] = "planned.attempt.began"
    number: int


class ActionSelected(Fact):
    """The model's reply, read: its action."""

    kind: Literal["react.decision"] = "react.decision"
    thought: str
    tool: str
    args: dict[str, Any] = {}


class RowTaken(Fact):
    """The pending row is the action; no model was asked."""

    kind: Literal["planned.row.taken"] = "planned.row.taken"
    thought: str
    tool: str
    args: dict[str, Any] = {}
    index: int


class StepSkipped(Fact):
    """The plan stays where it is; the timeline says why."""

    kind: Literal["step.skipped"] = "step.skipped"
    why: SkipReason
    message: str


class ActionEntered(Fact):
    """The action goes to `execute`; if it succeeds, an equal next action is a duplicate."""

    kind: Literal["planned.action.entered"] = "planned.action.entered"
    fingerprint: str


OWN_FACTS: tuple[type[Fact], ...] = (
    PlanMade,
    PlanUnread,
    ReplanBegan,
    AttemptBegan,
    ActionSelected,
    RowTaken,
    StepSkipped,
    ActionEntered,
)
