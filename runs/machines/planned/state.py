"""The control state of `planned`, and how facts change it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from runs.engine.facts import CallEdited, Fact, ToolReported
from runs.engine.machine import State, Terms, evolve_common
from runs.engine.presentation import BudgetRow
from runs.engine.settings import plan_flaw
from runs.engine.states import Checked
from runs.engine.values import Value, fingerprint
from runs.machines.planned.facts import (
    ActionEntered,
    ActionSelected,
    AttemptBegan,
    PlanMade,
    PlanUnread,
    ReplanBegan,
    ReplanReason,
    RowTaken,
    SkipReason,
    StepSkipped,
)
from runs.machines.planned.settings import PlannedSettings, PlanRow


class Action(Value):
    """The action at hand."""

    tool: str
    args: dict[str, Any] = {}
    mismatch: bool = False


def _plan_flaw(state: PlannedState) -> str:
    return plan_flaw([row.text for row in state.plan])


def _index_flaw(state: PlannedState) -> str:
    """Return how the index misses the plan; one past the last step means that the plan is done."""
    rows = len(state.plan)
    if state.plan_index <= rows:
        return ""
    return f"this must be from 0 to {rows}, the number of steps in the plan"


def _pending_flaw(state: PlannedState) -> str:
    pending, rows = state.pending_plan_step, len(state.plan)
    if pending is None or pending < rows:
        return ""
    if rows == 0:
        return "the plan has no steps, so none can be pending: leave this empty"
    return f"this must be a step of the plan, from 0 to {rows - 1}"


class PlannedState(State):
    plan: Annotated[tuple[PlanRow, ...], Checked(_plan_flaw)] = ()
    plan_outline: str = ""
    plan_index: Annotated[int, Checked(_index_flaw)] = 0
    pending_plan_step: Annotated[int | None, Checked(_pending_flaw)] = None
    plan_skip_reason: SkipReason | Literal[""] = ""
    step: int = 0
    attempts: int = 0
    retry_count: int = 0
    failure_count: int = 0
    max_steps: int = 1
    replans: int = 0
    replanning: ReplanReason | None = None
    """The reason of the replan in progress."""
    diverged: bool = False
    """A divergence has replanned, and no matched success came since."""
    duplicates: int = 0
    """Attempts in a row with a duplicate of the pending plan step."""
    decisions: int = 0
    action: Action | None = None
    last_action: str = ""
    """Fingerprint of the last action that entered `execute`."""
    last_succeeded: bool = False

    @property
    def settings(self) -> PlannedSettings:
        assert isinstance(self.terms.settings, PlannedSettings)
        return self.terms.settings

    @property
    def pending(self) -> PlanRow | None:
        """Return the pending plan step."""
        return None if self.pending_plan_step is None else self.plan[self.pending_plan_step]

    @property
    def may_replan(self) -> bool:
        """Return True if a replan is left."""
        return self.replans < self.settings.max_replans


def open_state(terms: Terms) -> PlannedState:
    """Return the state before the first row."""
    assert isinstance(terms.settings, PlannedSettings)
    length = len(terms.settings.plan or ())
    return PlannedState(terms=terms, max_steps=max(1, length + terms.settings.retry_buffer))


def evolve(state: PlannedState, fact: Fact) -> State:
    """Fold a fact into the state: one case a fact."""
    match fact:
        case PlanMade(rows=rows, outline=outline):
            return _planned(state, rows, outline)
        case PlanUnread():
            replanned = {"failure_count": 0, "replanning": None} if state.replanning else {}
            return _with(state, **replanned)
        case ReplanBegan(why=why):
            return _with(
                state,
                replans=state.replans + 1,
                replanning=why,
                diverged=state.diverged or why == "divergence",
                duplicates=0,
            )
        case AttemptBegan(number=number):
            return _with(state, attempts=number, action=None)
        case ActionSelected(tool=tool, args=args):
            return _with(state, decisions=state.decisions + 1, action=Action(tool=tool, args=args))
        case RowTaken(tool=tool, args=args):
            return _with(state, action=Action(tool=tool, args=args))
        case StepSkipped(why=why):
            return _skipped(state, why)
        case ActionEntered(fingerprint=print_):
            return _with(state, last_action=print_, last_succeeded=False, duplicates=0)
        case CallEdited(args=args) if state.action:
            return _with(state, action=state.action.model_copy(update={"args": args}))
        case ToolReported(error=None):
            return _succeeded(state)
        case ToolReported():
            return _failed(state)
    return evolve_common(state, fact)


def _with(state: PlannedState, **changes: Any) -> PlannedState:
    return state.model_copy(update=changes)


def _planned(state: PlannedState, rows: tuple[PlanRow, ...], outline: str) -> PlannedState:
    """Begin a new plan. A replan adds attempts, and never takes any away."""
    longest = max(1, len(rows) + state.settings.retry_buffer)
    if state.replanning or state.attempts:
        longest = max(state.max_steps, state.attempts + longest)
    return _with(
        state,
        plan=rows,
        plan_outline=outline,
        plan_index=0,
        pending_plan_step=0 if rows else None,
        plan_skip_reason="",
        max_steps=longest,
        failure_count=0 if state.replanning else state.failure_count,
        replanning=None,
    )


def _skipped(state: PlannedState, why: SkipReason) -> PlannedState:
    """Count an attempt without progress; the first reason stays while its plan step is pending."""
    reason = state.plan_skip_reason or (why if state.pending else "")
    state = _with(state, retry_count=state.retry_count + 1, plan_skip_reason=reason)
    match why:
        case "action_selection_failed":
            return _with(state, decisions=state.decisions + 1, duplicates=0)
        case "tool_not_permitted":
            return _with(state, action=None, duplicates=0)
        case "duplicate_action":
            again = state.action is not None and wants(state.pending, state.action)
            return _with(state, action=None, duplicates=state.duplicates + 1 if again else 0)
        case "plan_tool_mismatch":
            assert state.action is not None
            return _with(state, action=state.action.model_copy(update={"mismatch": True}))


def wants(row: PlanRow | None, action: Action | ActionSelected | RowTaken) -> bool:
    """Return True if the action is the plan step's: same tool, same arguments."""
    return row is not None and print_of(row) == print_of(action)


def print_of(call: PlanRow | Action | ActionSelected | RowTaken) -> str:
    return fingerprint(call.tool, call.args)


def _succeeded(state: PlannedState) -> PlannedState:
    state = _with(state, step=state.step + 1, failure_count=0, last_succeeded=True)
    if state.pending is None or (state.action and state.action.mismatch):
        return state
    following = state.plan_index + 1
    return _with(
        state,
        plan_index=following,
        pending_plan_step=following if following < len(state.plan) else None,
        plan_skip_reason="",
        diverged=False,
    )


def _failed(state: PlannedState) -> PlannedState:
    """Count a failure; a mismatch was counted as a retry when its plan step was skipped."""
    counted = state.action is not None and state.action.mismatch
    return _with(
        state, failure_count=state.failure_count + 1, retry_count=state.retry_count + (0 if counted else 1)
    )


def budget(state: PlannedState) -> tuple[BudgetRow, ...]:
    """Return the budget lines: attempts and replans."""
    return (
        BudgetRow(scope="global", name="attempts", used=state.attempts, limit=state.max_steps),
        BudgetRow(scope="global", name="replans", used=state.replans, limit=state.settings.max_replans),
    )
