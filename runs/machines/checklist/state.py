"""The control state of `checklist`, and how facts change it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from runs.engine.artifacts import file_kind
from runs.engine.facts import CallEdited, Fact, ToolReported, UserAnswered
from runs.engine.machine import State, Terms, evolve_common
from runs.engine.presentation import BudgetRow
from runs.engine.settings import plan_flaw
from runs.engine.states import Checked
from runs.engine.values import Value
from runs.machines.checklist.facts import DecisionMade, InfraAnswered, Mark, PlanAcknowledged, PlanMade
from runs.machines.checklist.infra import INFRA
from runs.machines.checklist.settings import ChecklistSettings, Status, Strategy


class PlanStep(Value):
    """One step of the plan, and its status."""

    text: str
    status: Status = "pending"


class Call(Value):
    """The call of the last decision, still without a result; an infra call has no strategy."""

    tool: str
    args: dict[str, Any]
    strategy: Strategy | None = None


def _plan_flaw(state: ChecklistState) -> str:
    return plan_flaw([step.text for step in state.plan])


class ChecklistState(State):
    """The control state of a `checklist` run, with the budget at its top."""

    exploration_budget: int
    exploitation_budget: int
    explore_used: int = 0
    exploit_used: int = 0
    max_iterations: int
    decision_rounds_used: int = 0
    decisions: int = 0
    """Replies of role `decision`, an answered clarify too."""
    violations: int = 0
    """In a row."""
    plan: Annotated[tuple[PlanStep, ...], Checked(_plan_flaw)] = ()
    plan_told: bool = False
    """True if the plan is in the log, or was requested."""
    call: Call | None = None
    called: tuple[str, ...] = ()
    """The tools that have run, each once."""
    artifacts: dict[str, Literal["file", "display"]] = {}

    @property
    def settings(self) -> ChecklistSettings:
        assert isinstance(self.terms.settings, ChecklistSettings)
        return self.terms.settings

    def left(self, strategy: Strategy) -> int:
        """Return the remaining calls of the strategy."""
        if strategy == "explore":
            return max(0, self.exploration_budget - self.explore_used)
        return max(0, self.exploitation_budget - self.exploit_used)

    def count(self, status: Status) -> int:
        """Return the number of plan steps of that status."""
        return sum(step.status == status for step in self.plan)


def _steps(texts: tuple[str, ...]) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(text=text) for text in texts)


def open_state(terms: Terms) -> ChecklistState:
    """Return the state before the first step."""
    settings = terms.settings
    assert isinstance(settings, ChecklistSettings)
    return ChecklistState(
        terms=terms,
        exploration_budget=settings.exploration_budget,
        exploitation_budget=settings.exploitation_budget,
        max_iterations=settings.iterations,
        plan=_steps(settings.plan),
    )


def evolve(state: ChecklistState, fact: Fact) -> State:
    """Fold a fact into the state: one case a fact."""
    match fact:
        case PlanMade(steps=steps):
            return state.model_copy(update={"plan": _steps(steps), "plan_told": True})
        case DecisionMade():
            return _decided(state, fact)
        case PlanAcknowledged(marks=marks):
            return state.model_copy(update={"plan": marked(state.plan, marks)})
        case UserAnswered():
            return state.model_copy(update={"decision_rounds_used": state.decision_rounds_used - 1})
        case CallEdited(args=args) if state.call:
            return state.model_copy(update={"call": state.call.model_copy(update={"args": args})})
        case InfraAnswered():
            return state.model_copy(update={"call": None})
        case ToolReported():
            return _reported(state, fact)
    return evolve_common(state, fact)


def marked(plan: tuple[PlanStep, ...], marks: tuple[Mark, ...]) -> tuple[PlanStep, ...]:
    status = {mark.number: mark.status for mark in marks}
    return tuple(
        step.model_copy(update={"status": status.get(number, step.status)})
        for number, step in enumerate(plan, 1)
    )


def _decided(state: ChecklistState, fact: DecisionMade) -> State:
    call = None
    if fact.accepted and fact.tool:
        strategy = strategy_of(fact.strategy) if fact.tool not in INFRA else None
        call = Call(tool=fact.tool, args=fact.args, strategy=strategy)
    return state.model_copy(
        update={
            "decision_rounds_used": state.decision_rounds_used + 1,
            "decisions": state.decisions + 1,
            "violations": 0 if fact.accepted else state.violations + 1,
            "call": call,
        }
    )


def strategy_of(text: str) -> Strategy | None:
    match text:
        case "explore" | "exploit":
            return text
    return None


def _reported(state: ChecklistState, fact: ToolReported) -> State:
    """Charge a reached call to its strategy, whatever its outcome."""
    changes: dict[str, Any] = {"call": None}
    match state.call.strategy if state.call else None:
        case "explore":
            changes["explore_used"] = state.explore_used + 1
        case "exploit":
            changes["exploit_used"] = state.exploit_used + 1
    if fact.ran and fact.tool not in state.called:
        changes["called"] = (*state.called, fact.tool)
    if fact.files:
        changes["artifacts"] = state.artifacts | {name: file_kind(name) for name in fact.files}
    return state.model_copy(update=changes)


def budget(state: ChecklistState) -> tuple[BudgetRow, ...]:
    """Return the budget lines: calls of each strategy, and decisions."""
    lines = (
        ("explore", state.explore_used, state.exploration_budget),
        ("exploit", state.exploit_used, state.exploitation_budget),
        ("iterations", state.decision_rounds_used, state.max_iterations),
    )
    return tuple(BudgetRow(scope="global", name=name, used=used, limit=limit) for name, used, limit in lines)
