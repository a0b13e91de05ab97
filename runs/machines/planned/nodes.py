"""The nodes of `planned`: pure functions that return the next move."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from runs.engine.effects import (
    Answer,
    ChildFinished,
    Failed,
    ModelCall,
    ModelReplied,
    ToolReturned,
)
from runs.engine.facts import Answered, Exited, Fact, Notice, ToolCalled, ToolReported
from runs.engine.kernel import UnexpectedAnswer, no_answer
from runs.engine.moves import Ask, Go
from runs.engine.reply import Unread, read
from runs.engine.reporting import reported
from runs.engine.settings import plan_flaw, sentence_of
from runs.engine.tools import inspect_call, is_harmless
from runs.engine.values import Value
from runs.machines.planned import prompts as words
from runs.machines.planned.facts import (
    ActionEntered,
    ActionSelected,
    AttemptBegan,
    PlanMade,
    PlanUnread,
    ReplanBegan,
    ReplanReason,
    RowTaken,
    StepSkipped,
)
from runs.machines.planned.settings import FINAL, PlanRow
from runs.machines.planned.state import Action, PlannedState, evolve, print_of, wants

Name = Annotated[str, Field(min_length=1)]


class SelectionReply(Value):
    """A selection as the model replies it; other names are ignored, and null is nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    thought: str | None = None
    tool: Name
    args: dict[str, Any] | None = None


class PlanReply(Value):
    """A plan as the planner replies it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    outline: str | None = None
    steps: list[SelectionReply]


def plan(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """Take the form's plan, or ask the planner; a replan always asks."""
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
    """Return the planner's plan; an unusable reply leaves the current one."""
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
    """Return True if the action changes nothing and does not end the run."""
    return reply.tool != FINAL.name and is_harmless(state.terms.tools, reply.tool)


def _row(reply: SelectionReply) -> PlanRow:
    return PlanRow(tool=reply.tool, args=reply.args or {}, thought=reply.thought or "")


def _complete(rows: tuple[PlanRow, ...]) -> tuple[PlanRow, ...]:
    """Return a planner's plan, with the answer as its last step."""
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
"""The plan's schema, for a person who may change it before the first step."""


def shown_plan(state: PlannedState) -> dict[str, Any]:
    """Return the plan as a person sees it."""
    return {"plan": [row.model_dump() for row in state.plan]}


def changed_plan(args: dict[str, Any]) -> PlanMade | str:
    """Return a person's plan, completed like the planner's; or its fault."""
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
    """Choose the next action: the pending plan step as it stands, or the model's choice."""
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
    tail = words.select_tail(state.model_copy(update={"attempts": began.number}))
    return Ask(ModelCall(role="decision", reply="selection", tail=tail), (began,))


def _is_whole(row: PlanRow) -> bool:
    """Return True if the plan step can be taken as it stands: a final answer needs its text."""
    return row.tool != FINAL.name or row.args.get("answer") is not None


def _judge(state: PlannedState, began: tuple[Fact, ...], chosen: ActionSelected | RowTaken) -> Go:
    """Decide whether the action runs; if not, note why."""
    tool, facts = chosen.tool, (*began, chosen)
    spec = state.terms.tools.get(tool)
    if spec is None or not spec.permitted:
        why = f"There is no tool {tool}." if spec is None else f"This run may not call {tool}."
        return Go("skip", (*facts, StepSkipped(why="tool_not_permitted", message=why)))
    if state.last_succeeded and state.last_action == print_of(chosen):
        return _duplicate(state, facts, chosen)
    entered = ActionEntered(fingerprint=print_of(chosen))
    row = state.pending
    if row is None or row.tool == tool:
        return Go("action", (*facts, entered))
    message = f"The plan has {row.tool} next, and {tool} was chosen."
    return Go("action", (*facts, StepSkipped(why="plan_tool_mismatch", message=message), entered))


def _duplicate(state: PlannedState, facts: tuple[Fact, ...], chosen: ActionSelected | RowTaken) -> Go:
    """Skip a duplicate; a second one in a row from the plan itself needs another plan."""
    message = f"{chosen.tool} has just been called with these arguments, and succeeded."
    facts += (StepSkipped(why="duplicate_action", message=message),)
    if state.duplicates and state.may_replan and wants(state.pending, chosen):
        return Go("replan", (*facts, ReplanBegan(why="duplicates")))
    return Go("skip", facts)


def execute(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """Run the action, and return the move after its result."""
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
    return Ask(spec.effect_with(call.args), (*notices, called))


def _conclude(state: PlannedState, facts: tuple[Fact, ...], report: ToolReported) -> Go:
    """Choose the edge: the answer, another plan, or the next attempt."""
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
    """Return why the planner is asked now; failures come before divergence."""
    if not state.may_replan:
        return None
    if state.failure_count >= state.settings.replan_failure_threshold:
        return "failures"
    mismatch = state.action is not None and state.action.mismatch
    return "divergence" if mismatch and not state.diverged else None


def finish(state: PlannedState, answer: Answer | None) -> Ask | Go:
    """End the run: with the given answer, else with one made from the known results."""
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
