"""The nodes of `checklist`: pure functions that return the next move."""

from __future__ import annotations

from typing import NamedTuple

from runs.engine.effects import (
    Answer,
    ChildFinished,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    ToolCall,
    ToolReturned,
)
from runs.engine.facts import Answered, Exited, Fact, Notice, ToolCalled, ToolReported, UserAnswered
from runs.engine.kernel import UnexpectedAnswer
from runs.engine.moves import Ask, Go
from runs.engine.reply import Read, Unread
from runs.engine.reporting import reported
from runs.engine.tools import InspectedCall, inspect_call
from runs.machines.checklist import prompts as words
from runs.machines.checklist.facts import DecisionMade, InfraAnswered, PlanAcknowledged, PlanMade
from runs.machines.checklist.infra import INFRA
from runs.machines.checklist.replies import (
    ACTIONS,
    CallReply,
    DecisionReply,
    acknowledged,
    read_decision,
    read_plan,
)
from runs.machines.checklist.state import Call, ChecklistState, evolve, marked, strategy_of


def decision(state: ChecklistState, answer: Answer | None) -> Ask | Go:
    """Ask the model, judge its reply, and work on the run's own record."""
    match answer:
        case None:
            return _begin(state)
        case ModelReplied() if _wants_plan(state):
            made = read_plan(answer)
            return Ask(_decision_call(_folded(state, made)), made)
        case ModelReplied():
            return _judge(state, read_decision(answer, state.terms.tools))
        case HumanSaid(verdict="respond", message=message, by=by):
            return Go("answered", (UserAnswered(text=message, by=by),))
        case ToolReturned(value=value) if state.call:
            return Go("infra", (InfraAnswered(tool=state.call.tool, value=value),))
        case Failed(message=why) if state.call:
            return Go("infra", (InfraAnswered(tool=state.call.tool, error=why),))
    raise UnexpectedAnswer("decision", answer)


def _begin(state: ChecklistState) -> Ask | Go:
    if state.decision_rounds_used >= state.max_iterations:
        return Go("exit", (Exited(reason="max_iterations"),))
    if _wants_plan(state):
        return Ask(ModelCall(role="planner", reply="plan", tail=words.PLAN_TAIL))
    told: tuple[Fact, ...] = ()
    if state.plan and not state.plan_told:
        told = (PlanMade(source="form", steps=state.settings.plan),)
    return Ask(_decision_call(state), told)


def _folded(state: ChecklistState, facts: tuple[Fact, ...]) -> ChecklistState:
    for fact in facts:
        after = evolve(state, fact)
        assert isinstance(after, ChecklistState)
        state = after
    return state


def _wants_plan(state: ChecklistState) -> bool:
    return state.settings.planner == "model" and not state.settings.plan and not state.plan_told


def _decision_call(state: ChecklistState) -> ModelCall:
    return ModelCall(role="decision", reply="decision", tail=words.tail(state))


class Violation(NamedTuple):
    """The fault that rejects a decision."""

    code: str
    message: str


def _judge(state: ChecklistState, found: Read[DecisionReply] | Unread) -> Ask | Go:
    """Return the move after a decision: its acknowledgements count, even if it is a violation."""
    notes = (found.found.get("notes") if isinstance(found, Unread) else found.reply.notes) or ""
    marks = acknowledged(state.plan, notes) if isinstance(notes, str) else ()
    acks = (*((PlanAcknowledged(marks=marks),) if marks else ()), *found.notices)
    if isinstance(found, Unread):
        made = DecisionMade(accepted=False, notes=notes if isinstance(notes, str) else "")
        return _reject(state, (made, *acks), Violation("decision_invalid", found.why))
    reply = found.reply
    noted = state.model_copy(update={"plan": marked(state.plan, marks)})
    call = _inspected(state, reply) if reply.action == "call_tool" else None
    violation = _violation(noted, reply, call)
    made = _made(reply, call, violation)
    if violation:
        return _reject(state, (made, *acks), violation)
    return _follow(reply, call, state, (made, *acks))


def _made(reply: DecisionReply, call: InspectedCall | None, violation: Violation | None) -> DecisionMade:
    asked = reply.tool_call if reply.action == "call_tool" else None
    raw = asked.params if asked and isinstance(asked.params, dict) else {}
    return DecisionMade(
        accepted=violation is None,
        action=reply.action or "",
        strategy=reply.strategy or "",
        notes=reply.notes or "",
        tool=(asked.tool_id or "") if asked else "",
        args=call.args if call and not violation else raw,
        summary=reply.summary,
        questions=reply.asks,
    )


def _inspected(state: ChecklistState, reply: DecisionReply) -> InspectedCall:
    asked = reply.tool_call or CallReply()
    return inspect_call(state.terms.tools, asked.tool_id, asked.params)


def _violation(state: ChecklistState, reply: DecisionReply, call: InspectedCall | None) -> Violation | None:
    """Return the first fault of a decision (docs/machines.md, "checklist")."""
    if reply.action not in ACTIONS:
        return Violation("invalid_action", f"action must be one of {', '.join(ACTIONS)}.")
    if reply.summary and reply.action not in ("complete", "exit"):
        return Violation("completion_summary_not_allowed", "completion_summary belongs to complete alone.")
    if call is not None:
        return _call_violation(state, reply, call)
    if reply.action == "clarify":
        return None if reply.asks else Violation("questions_required", "clarify needs questions.")
    if not reply.summary:
        return Violation("completion_summary_required", "complete needs a completion_summary.")
    if state.settings.plan_gate and state.count("pending"):
        numbers = ", ".join(
            f"[{number}]" for number, step in enumerate(state.plan, 1) if step.status == "pending"
        )
        why = f"Steps {numbers} are not acknowledged: begin a line of notes with ✓ [n] (done) or ✗ [n] (failed)."
        return Violation("plan_not_completed", why)
    return None


def _call_violation(state: ChecklistState, reply: DecisionReply, call: InspectedCall) -> Violation | None:
    if call.flaws:
        return Violation(call.flaws[0].code, call.flaws[0].message)
    assert call.spec is not None
    if call.spec.name in INFRA:
        return None
    strategy = strategy_of(reply.strategy or "")
    if strategy is None:
        return Violation("invalid_strategy", "A call needs the strategy explore or exploit.")
    if state.left(strategy) == 0:
        return Violation("strategy_budget_exhausted", f"The budget of {strategy} is used up.")
    return None


def _reject(state: ChecklistState, facts: tuple[Fact, ...], violation: Violation) -> Go:
    """Send the decision back to the model, with a notice; too many in a row end the run."""
    number, most = state.violations + 1, state.settings.max_consecutive_violations
    counted = f"{violation.message} (Violation {number} in a row; {most + 1} end the run.)"
    notice = Notice(code=f"protocol_violation.{violation.code}", message=counted)
    if number <= most:
        return Go("violation", (*facts, notice))
    exited = Exited(reason="protocol_violation", message=violation.message)
    return Go("exit", (*facts, notice, exited))


def _follow(
    reply: DecisionReply, call: InspectedCall | None, state: ChecklistState, facts: tuple[Fact, ...]
) -> Ask | Go:
    """Return the move that a valid decision leads to."""
    if call is not None and call.spec is not None:
        notices = tuple(Notice(code=drop.code, message=drop.message, param=drop.param) for drop in call.drops)
        if call.spec.name not in INFRA:
            return Go("call_tool", (*facts, *notices))
        infra = ToolCall(tool=call.spec.name, args=call.args, effects="none", infra=True)
        return Ask(infra, (*facts, *notices))
    if reply.action == "clarify" and state.settings.on_clarify == "exit":
        return Go("exit", (*facts, Exited(reason="clarify", message=" ".join(reply.asks))))
    if reply.action == "clarify":
        why = "The model needs more information to continue."
        return Ask(HumanCall(about="question", title=reply.asks[0], why=why, questions=reply.asks), facts)
    return Go("exit", (*facts, Answered(text=reply.summary), Exited(reason="complete")))


def tool_execution(state: ChecklistState, answer: Answer | None) -> Ask | Go:
    """Run the call; a fatal error ends the run by an edge of its own."""
    call = state.call
    assert call is not None
    match answer:
        case None:
            return _run(state, call)
        case Failed(blame="fatal", message=why):
            return Go("exit", (reported(call.tool, answer), Exited(reason="tool_error", message=why)))
        case ToolReturned() | ChildFinished() | Failed():
            return Go("done", (reported(call.tool, answer),))
    raise UnexpectedAnswer("tool_execution", answer)


def _run(state: ChecklistState, call: Call) -> Ask | Go:
    spec = state.terms.tools.get(call.tool)
    if spec is None:  # the installation has lost it since the decision
        return Go("done", (ToolReported(tool=call.tool, error=f"There is no tool {call.tool}.", ran=False),))
    called = ToolCalled(tool=call.tool, args=call.args)
    return Ask(spec.effect_with(call.args), (called,))


def exit_(state: ChecklistState, answer: Answer | None) -> Go:
    """End the run; the reason is known."""
    if answer is not None:
        raise UnexpectedAnswer("exit", answer)
    return Go("final")
