"""`planned`: follows a plan, records why a step was skipped, and plans again where it fails or is left.

Pure functions: the settings, the facts, the state and its fold, the four nodes, and the words for the model.
See docs/machines.md, "planned".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from runs.engine.effects import (
    Answer,
    ChildFinished,
    ChildRun,
    Failed,
    ModelCall,
    ModelReplied,
    ToolCall,
    ToolReturned,
)
from runs.engine.facts import (
    Answered,
    CallEdited,
    Exited,
    Fact,
    Notice,
    ToolCalled,
    ToolReported,
)
from runs.engine.kernel import UnexpectedAnswer, no_answer
from runs.engine.machine import COMMON_EXITS, END, BudgetRow, Edge, Machine, Plan, State, Terms, evolve_common
from runs.engine.moves import Ask, Go
from runs.engine.reply import Unread, read
from runs.engine.reporting import reported
from runs.engine.settings import MOST_ROUNDS, MOST_STEP_TEXT, Settings, plan_flaw, sentence_of
from runs.engine.states import Checked
from runs.engine.tools import ToolSpec, inspect_call, is_harmless
from runs.engine.values import Value, canonical, fingerprint
from runs.machines.prompts import planned as words

FINAL = ToolSpec(
    name="final_answer",
    description="Gives the answer to the goal and ends the run.",
    parameters={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The answer, in full."}},
        "required": ["answer"],
    },
    effects="none",
)
"""Built in: the one tool whose success completes a run."""

SkipReason = Literal[
    "action_selection_failed", "tool_not_permitted", "duplicate_action", "plan_tool_mismatch"
]
ReplanReason = Literal["failures", "divergence", "duplicates"]


# --- settings ---------------------------------------------------------------------------------------------------


class PlanRow(Value):
    """One step of a plan: the tool to call, with what, and why."""

    tool: str = Field(min_length=1)
    args: dict[str, Any] = {}
    thought: str = ""

    @property
    def text(self) -> str:
        """All that it says."""
        return f"{self.tool}{self.thought}{canonical(self.args) if self.args else ''}"


class PlannedSettings(Settings):
    """The settings of a `planned` run. Without `plan` the planner is asked for one."""

    plan: tuple[PlanRow, ...] | None = None
    plan_outline: str = Field(default="", max_length=MOST_STEP_TEXT)
    """Told with the rows of `plan`; where there are none, the planner is asked to follow it."""
    planner: Literal["model"] = "model"
    follow: Literal["model", "plan"] = "model"
    retry_buffer: int = Field(default=2, ge=0, le=MOST_ROUNDS)
    replan_failure_threshold: int = Field(default=2, ge=1, le=MOST_ROUNDS)
    max_replans: int = Field(default=3, ge=0, le=MOST_ROUNDS)

    @field_validator("plan")
    @classmethod
    def _not_too_long(cls, plan: tuple[PlanRow, ...] | None) -> tuple[PlanRow, ...] | None:
        if why := plan_flaw([row.text for row in plan or ()]):
            raise ValueError(why)
        return plan


# --- facts ------------------------------------------------------------------------------------------------------


class PlanMade(Fact):
    """The rows to follow from here on, and where they come from."""

    kind: Literal["react.plan"] = "react.plan"
    rows: tuple[PlanRow, ...]
    outline: str = ""
    by: Literal["form", "planner", "person"]
    why: ReplanReason | None = None
    """What brought a new plan; None for the first one."""


class PlanUnread(Fact):
    """The planner's reply is no plan: the rows stay as they are. The raw text is on the exchange."""

    kind: Literal["planned.plan.unread"] = "planned.plan.unread"
    message: str
    why: ReplanReason | None = None


class ReplanBegan(Fact):
    """The planner is to be asked again."""

    kind: Literal["planned.replan.began"] = "planned.replan.began"
    why: ReplanReason


class AttemptBegan(Fact):
    """An entry to `select` that counts."""

    kind: Literal["planned.attempt.began"] = "planned.attempt.began"
    number: int


class ActionSelected(Fact):
    """The model's reply, read: the action that it wants."""

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
    """The action goes to `execute`; it is what the next one is a duplicate of, where it succeeds."""

    kind: Literal["planned.action.entered"] = "planned.action.entered"
    fingerprint: str


# --- state ------------------------------------------------------------------------------------------------------


class Action(Value):
    """The action at hand."""

    tool: str
    args: dict[str, Any] = {}
    mismatch: bool = False


def _plan_flaw(state: PlannedState) -> str:
    return plan_flaw([row.text for row in state.plan])


def _index_flaw(state: PlannedState) -> str:
    """One past the last row is where a plan stands that is done."""
    rows = len(state.plan)
    if state.plan_index <= rows:
        return ""
    return f"this must be from 0 to {rows}, the number of rows in the plan"


def _pending_flaw(state: PlannedState) -> str:
    pending, rows = state.pending_plan_step, len(state.plan)
    if pending is None or pending < rows:
        return ""
    if rows == 0:
        return "the plan has no rows, so none can be pending: leave this empty"
    return f"this must be a row of the plan, from 0 to {rows - 1}"


class PlannedState(State):
    """The control state of a `planned` run."""

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
    """Why the planner is asked again, while it is."""
    diverged: bool = False
    """A divergence has replanned, and no matched success came since."""
    duplicates: int = 0
    """Attempts in a row whose action was a duplicate and the pending row's."""
    decisions: int = 0
    action: Action | None = None
    last_action: str = ""
    """Fingerprint of the last action that entered `execute`."""
    last_succeeded: bool = False

    @property
    def settings(self) -> PlannedSettings:
        """The run's settings."""
        assert isinstance(self.terms.settings, PlannedSettings)
        return self.terms.settings

    @property
    def pending(self) -> PlanRow | None:
        """The row that is to be done next."""
        return None if self.pending_plan_step is None else self.plan[self.pending_plan_step]

    @property
    def may_replan(self) -> bool:
        """Whether a replan is left."""
        return self.replans < self.settings.max_replans


def open_state(terms: Terms) -> PlannedState:
    """The state before the first row."""
    assert isinstance(terms.settings, PlannedSettings)
    length = len(terms.settings.plan or ())
    return PlannedState(terms=terms, max_steps=max(1, length + terms.settings.retry_buffer))


def evolve(state: PlannedState, fact: Fact) -> State:
    """The fold: one case a fact."""
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
    """New rows, followed from the first one. A replan adds attempts, and never takes any away."""
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
    """The attempt made no progress; the first reason stays while its row is pending."""
    reason = state.plan_skip_reason or (why if state.pending else "")
    state = _with(state, retry_count=state.retry_count + 1, plan_skip_reason=reason)
    match why:
        case "action_selection_failed":
            return _with(state, decisions=state.decisions + 1, duplicates=0)
        case "tool_not_permitted":
            return _with(state, action=None, duplicates=0)
        case "duplicate_action":
            again = state.action is not None and _wants(state.pending, state.action)
            return _with(state, action=None, duplicates=state.duplicates + 1 if again else 0)
        case "plan_tool_mismatch":
            assert state.action is not None
            return _with(state, action=state.action.model_copy(update={"mismatch": True}))


def _wants(row: PlanRow | None, action: Action | ActionSelected | RowTaken) -> bool:
    """Whether the action is the row's: same tool, same arguments."""
    return row is not None and _print(row) == _print(action)


def _print(call: PlanRow | Action | ActionSelected | RowTaken) -> str:
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
    """A mismatch was counted as a retry when its row was skipped."""
    counted = state.action is not None and state.action.mismatch
    return _with(
        state, failure_count=state.failure_count + 1, retry_count=state.retry_count + (0 if counted else 1)
    )


# --- nodes ------------------------------------------------------------------------------------------------------

Name = Annotated[str, Field(min_length=1)]


class SelectionReply(Value):
    """What the model is asked to say; names beside these are passed over, and null is nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    thought: str | None = None
    tool: Name
    args: dict[str, Any] | None = None


class PlanReply(Value):
    """What the planner is asked to say."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    outline: str | None = None
    steps: list[SelectionReply]


def plan(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """Takes the form's rows, or asks the planner; a replan always asks."""
    why = state.replanning
    match answer:
        case None if why is None and (rows := state.settings.plan) is not None:
            return Go("planned", (PlanMade(rows=rows, outline=state.settings.plan_outline, by="form"),))
        case None:
            return Ask(ModelCall(role="planner", reply="plan", tail=words.planner_tail(state)))
        case ModelReplied():
            return Go("planned", _plan_of(state, answer))
    raise UnexpectedAnswer("plan", answer)


def _plan_of(state: PlannedState, replied: ModelReplied) -> tuple[Fact, ...]:
    """The planner's rows; an unusable reply leaves those that are there."""
    why = state.replanning
    found = read(replied, PlanReply, lambda reply: all(_is_harmless(state, row) for row in reply.steps))
    if isinstance(found, Unread):
        return PlanUnread(message=found.why, why=why), *found.notices
    rows = _complete(tuple(map(_row, found.reply.steps)))
    if flaw := plan_flaw([f"{row.tool}{row.thought}" for row in rows]):
        return PlanUnread(message=sentence_of(flaw), why=why), *found.notices
    outline = found.reply.outline or ""
    return PlanMade(rows=rows, outline=outline, by="planner", why=why), *found.notices


def _is_harmless(state: PlannedState, reply: SelectionReply) -> bool:
    """Whether the action changes nothing and does not end the run."""
    return reply.tool != FINAL.name and is_harmless(state.terms.tools, reply.tool)


def _row(reply: SelectionReply) -> PlanRow:
    return PlanRow(tool=reply.tool, args=reply.args or {}, thought=reply.thought or "")


def _complete(rows: tuple[PlanRow, ...]) -> tuple[PlanRow, ...]:
    """A planner's rows end with the answer."""
    return rows if rows and rows[-1].tool == FINAL.name else (*rows, PlanRow(tool=FINAL.name))


ROWS: TypeAdapter[tuple[PlanRow, ...]] = TypeAdapter(tuple[PlanRow, ...])

PLAN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plan": {
            "type": "array",
            "items": {"type": "object"},
            "description": "The rows, in order: tool, args, and the thought behind it.",
        }
    },
    "required": ["plan"],
}
"""The plan as who is asked before the first step may change it."""


def shown_plan(state: PlannedState) -> dict[str, Any]:
    """The rows as a person sees them."""
    return {"plan": [row.model_dump() for row in state.plan]}


def changed_plan(args: dict[str, Any]) -> PlanMade | str:
    """A person's plan, completed as the planner's; or what is wrong with it."""
    try:
        rows = _complete(ROWS.validate_python(args.get("plan"), strict=False))
    except ValidationError as fault:
        first = fault.errors()[0]
        row, *rest = first["loc"] or ("",)
        place = f"row {row + 1}" if isinstance(row, int) else "the plan"
        return f"{', '.join((place, *map(str, rest)))}: {first['msg']}."
    if flaw := plan_flaw([row.text for row in rows]):
        return sentence_of(flaw)
    return PlanMade(rows=rows, by="person")


def select(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """Chooses the next action: the pending row as it stands, or what the model says."""
    match answer:
        case None:
            return _attempt(state)
        case ModelReplied():
            found = read(answer, SelectionReply, lambda reply: _is_harmless(state, reply))
            if isinstance(found, Unread):
                skipped = StepSkipped(why="action_selection_failed", message=found.why)
                return Go("skip", (skipped, *found.notices))
            reply = found.reply
            selected = ActionSelected(thought=reply.thought or "", tool=reply.tool, args=reply.args or {})
            judged = _judge(state, (), selected)
            return replace(judged, facts=(*judged.facts, *found.notices))
    raise UnexpectedAnswer("select", answer)


def _attempt(state: PlannedState) -> Ask | Go:
    if state.attempts >= state.max_steps:
        return Go("exhausted")
    began = AttemptBegan(number=state.attempts + 1)
    row, index = state.pending, state.pending_plan_step
    if state.settings.follow == "plan" and row is not None and index is not None and _is_whole(row):
        taken = RowTaken(thought=row.thought, tool=row.tool, args=row.args, index=index)
        return _judge(state, (began,), taken)
    tail = words.select_tail(_with(state, attempts=began.number))
    return Ask(ModelCall(role="decision", reply="selection", tail=tail), (began,))


def _is_whole(row: PlanRow) -> bool:
    """Whether the row can be taken as it stands: a final answer needs its text."""
    return row.tool != FINAL.name or row.args.get("answer") is not None


def _judge(state: PlannedState, began: tuple[Fact, ...], chosen: ActionSelected | RowTaken) -> Go:
    """Whether the action runs; where it does not, why."""
    tool, facts = chosen.tool, (*began, chosen)
    spec = state.terms.tools.get(tool)
    if spec is None or not spec.permitted:
        why = f"There is no tool {tool}." if spec is None else f"This run may not call {tool}."
        return Go("skip", (*facts, StepSkipped(why="tool_not_permitted", message=why)))
    if state.last_succeeded and state.last_action == _print(chosen):
        return _duplicate(state, facts, chosen)
    entered = ActionEntered(fingerprint=_print(chosen))
    row = state.pending
    if row is None or row.tool == tool:
        return Go("action", (*facts, entered))
    message = f"The plan has {row.tool} next, and {tool} was chosen."
    return Go("action", (*facts, StepSkipped(why="plan_tool_mismatch", message=message), entered))


def _duplicate(state: PlannedState, facts: tuple[Fact, ...], chosen: ActionSelected | RowTaken) -> Go:
    """A skip; the second one in a row that the plan itself asks for needs another plan."""
    message = f"{chosen.tool} has just been called with these arguments, and succeeded."
    facts += (StepSkipped(why="duplicate_action", message=message),)
    if state.duplicates and state.may_replan and _wants(state.pending, chosen):
        return Go("replan", (*facts, ReplanBegan(why="duplicates")))
    return Go("skip", facts)


def execute(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """Runs the action, and says what follows from its result."""
    action = state.action
    assert action is not None
    tool = action.tool
    match answer:
        case None:
            return _act(state, action)
        case ToolReturned() | ChildFinished() | Failed():
            return _conclude(state, (), reported(tool, answer))
    raise UnexpectedAnswer("execute", answer)


def _act(state: PlannedState, action: Action) -> Ask | Go:
    call = inspect_call(state.terms.tools, action.tool, action.args)
    notices = tuple(
        Notice(code=flaw.code, message=flaw.message, param=flaw.param) for flaw in (*call.flaws, *call.drops)
    )
    if call.flaws or call.spec is None:
        error = " ".join(flaw.message for flaw in call.flaws)
        return _conclude(state, notices, ToolReported(tool=action.tool, error=error, ran=False))
    spec = call.spec
    called = ToolCalled(tool=spec.name, args=call.args)
    if spec.child:
        return Ask(ChildRun(name=spec.child, goal=str(call.args["goal"])), (*notices, called))
    effect = ToolCall(tool=spec.name, args=call.args, effects=spec.effects, idempotent=spec.idempotent)
    return Ask(effect, (*notices, called))


def _conclude(state: PlannedState, facts: tuple[Fact, ...], report: ToolReported) -> Go:
    """The edge: the answer, another plan, or the next attempt."""
    after, action = evolve(state, report), state.action
    assert isinstance(after, PlannedState) and action is not None
    facts += (report,)
    if report.error is None and action.tool == FINAL.name:
        answer = str(action.args.get("answer", ""))
        return Go("final_answer", (*facts, Answered(text=answer, source="final_answer")))
    why = _replan_reason(after)
    if why is not None:
        return Go("replan", (*facts, ReplanBegan(why=why)))
    return Go("success" if report.error is None else "failure", facts)


def _replan_reason(state: PlannedState) -> ReplanReason | None:
    """Why the planner is asked now; failures come before divergence."""
    if not state.may_replan:
        return None
    if state.failure_count >= state.settings.replan_failure_threshold:
        return "failures"
    mismatch = state.action is not None and state.action.mismatch
    return "divergence" if mismatch and not state.diverged else None


def finish(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """Ends the run: with the answer that was given, else with one made from what is known."""
    match answer:
        case None if state.answer_source == "final_answer":
            return Go("final", (Exited(reason="complete"),))
        case None:
            return Ask(ModelCall(role="fallback", reply="text", tail=words.FALLBACK, at_limit="fail"))
        case ModelReplied(text=text):
            return _fall_back(state, text.strip())
        case Failed():
            return _fall_back(state, "")
    raise UnexpectedAnswer("finish", answer)


def _fall_back(state: PlannedState, text: str) -> Go:
    answered = Answered(text=text or no_answer(state), source="fallback")
    message = f"All {state.max_steps} attempts are used, and no final answer was given."
    return Go("final", (answered, Exited(reason="budget_exhausted", message=message)))


# --- the declaration --------------------------------------------------------------------------------------------


def budget(state: PlannedState) -> tuple[BudgetRow, ...]:
    """Attempts and replans."""
    return (
        BudgetRow(scope="global", name="attempts", used=state.attempts, limit=state.max_steps),
        BudgetRow(scope="global", name="replans", used=state.replans, limit=state.settings.max_replans),
    )


def budget_text(state: PlannedState) -> str:
    """The budget in one line."""
    attempts, replans = state.max_steps - state.attempts, state.settings.max_replans - state.replans
    return (
        f"BUDGET_STATE: attempts left {attempts}/{state.max_steps}, "
        f"replans left {replans}/{state.settings.max_replans}"
    )


PLANNED = Machine(
    name="planned",
    line="Follows a plan step by step, says why a step was skipped, and plans again where steps fail.",
    start="plan",
    deciding="select",
    nodes={"plan": plan, "select": select, "execute": execute, "finish": finish},
    edges=(
        Edge("plan", "planned", "select"),
        Edge("select", "action", "execute"),
        Edge("select", "skip", "select", "this attempt could not run anything"),
        Edge("select", "replan", "plan", "the second duplicate in a row that the plan asks for"),
        Edge("select", "exhausted", "finish", "attempts reached max_steps"),
        Edge("execute", "success", "select"),
        Edge("execute", "failure", "select"),
        Edge("execute", "replan", "plan"),
        Edge("execute", "final_answer", "finish", "a final_answer that succeeded"),
        Edge("finish", "final", END),
    ),
    exit_reasons=("complete", "budget_exhausted", *COMMON_EXITS),
    settings=PlannedSettings,
    state=PlannedState,
    own_facts=(
        PlanMade,
        PlanUnread,
        ReplanBegan,
        AttemptBegan,
        ActionSelected,
        RowTaken,
        StepSkipped,
        ActionEntered,
    ),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.decisions,
    budget=budget,
    budget_text=budget_text,
    system=words.system,
    examples=words.examples,
    block=words.block,
    reply_schema=words.reply_schema,
    built_in=(FINAL,),
    plan=Plan(schema=PLAN_SCHEMA, shown=shown_plan, changed=changed_plan),
)
