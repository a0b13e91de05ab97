"""`checklist`: the model acknowledges a plan in its notes, step by step, and may complete once every step is.

Pure functions: the settings, the facts, the state and its fold, the three nodes, and the words for the model.
See docs/machines.md, "checklist".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, field_validator

from runs.engine.effects import (
    Answer,
    ChildFinished,
    ChildRun,
    Failed,
    HumanCall,
    HumanSaid,
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
    UserAnswered,
)
from runs.engine.kernel import UnexpectedAnswer
from runs.engine.machine import (
    COMMON_EXITS,
    END,
    ArtifactRow,
    BudgetRow,
    Edge,
    Machine,
    State,
    Terms,
    evolve_common,
)
from runs.engine.moves import Ask, Go
from runs.engine.reply import Read, Unread, read
from runs.engine.reporting import reported
from runs.engine.settings import MOST_ROUNDS, Settings, plan_flaw
from runs.engine.states import Checked
from runs.engine.tools import InspectedCall, Reads, ToolSpec, inspect_call, is_harmless
from runs.engine.values import Json, Value
from runs.machines.prompts import checklist as words

Strategy = Literal["explore", "exploit"]
Status = Literal["pending", "done", "failed"]

ACTIONS = ("call_tool", "complete", "clarify", "exit")

MARKS: dict[str, Status] = {"✓": "done", "✗": "failed"}
"""What a mark at the beginning of a line makes of a step; in progress (→ …) and pending (□) change nothing."""

MARKED = re.compile(r"^\s*(?:[-*]\s*)?([✓✗])\s*(?:\[([0-9]{1,6})\]|([0-9]{1,6})[.:](?![0-9]))")

PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg"})
"""Files that are made to be looked at: artifacts of kind `display`."""


def _infra(
    name: str, description: str, required: dict[str, Any], optional: dict[str, Any], reads: Reads = ""
) -> ToolSpec:
    parameters = {"type": "object", "properties": required | optional, "required": list(required)}
    return ToolSpec(name=name, description=description, parameters=parameters, effects="none", reads=reads)


INFRA: dict[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        _infra(
            "react.read",
            "Shows earlier blocks (st:NUMBER), summaries (su:NUMBER) or files (fi:NAME) again; those of an earlier "
            "run by the path that react.memory_read gives (run:ID/st:NUMBER).",
            {"paths": {"type": "array", "items": {"type": "string"}}},
            {},
            reads="private",
        ),
        _infra(
            "react.memory_read",
            "Finds earlier blocks of this run and of earlier runs by words, each with its path for react.read.",
            {"query": {"type": "string"}},
            {"top_k": {"type": "integer", "minimum": 1, "maximum": 50}},
            reads="private",
        ),
        _infra(
            "react.memory_hide",
            "Shows a short replacement in place of a block or a summary from now on.",
            {"path": {"type": "string"}, "replacement": {"type": "string"}},
            {},
        ),
    )
}
"""The tools that work on the run's own record: no calls of the world, so not charged, not limited, not counted."""


# --- settings ---------------------------------------------------------------------------------------------------


class ChecklistSettings(Settings):
    """The settings of a `checklist` run."""

    plan: tuple[str, ...] = ()
    planner: Literal["model"] | None = None
    plan_gate: bool = True
    exploration_budget: int = Field(default=3, ge=0, le=MOST_ROUNDS)
    exploitation_budget: int = Field(default=3, ge=0, le=MOST_ROUNDS)
    max_iterations: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_consecutive_violations: int = Field(default=2, ge=0, le=MOST_ROUNDS)

    @field_validator("plan")
    @classmethod
    def _says_something(cls, plan: tuple[str, ...]) -> tuple[str, ...]:
        for number, text in enumerate(plan, 1):
            if not text.strip():
                raise ValueError(
                    f"step {number} of the plan is empty; say what is to be done, or leave it out"
                )
        if why := plan_flaw(plan):
            raise ValueError(why)
        return plan

    @property
    def iterations(self) -> int:
        """How many decisions the run may take."""
        if self.max_iterations is not None:
            return self.max_iterations
        return max(2, self.exploration_budget + self.exploitation_budget + 2)


# --- facts ------------------------------------------------------------------------------------------------------


class DecisionMade(Fact):
    """A reply of the model, as far as it can be read. `accepted` is false where it is a violation."""

    kind: Literal["react.decision"] = "react.decision"
    accepted: bool
    action: str = ""
    strategy: str = ""
    notes: str = ""
    tool: str = ""
    args: dict[str, Any] = {}
    summary: str = ""
    questions: tuple[str, ...] = ()


class PlanMade(Fact):
    """The steps of the run; none where the model's plan could not be used, and `why` says why."""

    kind: Literal["react.plan"] = "react.plan"
    source: Literal["form", "model"]
    steps: tuple[str, ...]
    why: str = ""


class Mark(Value):
    """One step of the plan that was acknowledged."""

    number: int
    status: Status


class PlanAcknowledged(Fact):
    """Steps that another status was noted for."""

    kind: Literal["react.plan.ack"] = "react.plan.ack"
    marks: tuple[Mark, ...]


class InfraAnswered(Fact):
    """What came of a call of an infra tool."""

    kind: Literal["react.infra.result"] = "react.infra.result"
    tool: str
    value: Json = None
    error: str | None = None


# --- state ------------------------------------------------------------------------------------------------------


class PlanStep(Value):
    """One step of the plan, and how far it is."""

    text: str
    status: Status = "pending"


class Call(Value):
    """The call that was decided on and has no result yet; an infra call has no strategy."""

    tool: str
    args: dict[str, Any]
    strategy: Strategy | None = None


def _plan_flaw(state: ChecklistState) -> str:
    return plan_flaw([step.text for step in state.plan])


class ChecklistState(State):
    """The control state of a `checklist` run: the budget stands at its top."""

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
    """Whether the plan is in the log, or was asked for."""
    call: Call | None = None
    called: tuple[str, ...] = ()
    """The tools that have run, each once."""
    artifacts: dict[str, Literal["file", "display"]] = {}

    @property
    def settings(self) -> ChecklistSettings:
        """The run's settings."""
        assert isinstance(self.terms.settings, ChecklistSettings)
        return self.terms.settings

    def left(self, strategy: Strategy) -> int:
        """How many calls of the strategy may still be decided."""
        if strategy == "explore":
            return max(0, self.exploration_budget - self.explore_used)
        return max(0, self.exploitation_budget - self.exploit_used)

    def count(self, status: Status) -> int:
        """How many steps of the plan are `status`."""
        return sum(step.status == status for step in self.plan)


def _steps(texts: tuple[str, ...]) -> tuple[PlanStep, ...]:
    return tuple(PlanStep(text=text) for text in texts)


def open_state(terms: Terms) -> ChecklistState:
    """The state before the first row."""
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
    """The fold: one case a fact."""
    match fact:
        case PlanMade(steps=steps):
            return state.model_copy(update={"plan": _steps(steps), "plan_told": True})
        case DecisionMade():
            return _decided(state, fact)
        case PlanAcknowledged(marks=marks):
            return state.model_copy(update={"plan": _marked(state.plan, marks)})
        case UserAnswered():
            return state.model_copy(update={"decision_rounds_used": state.decision_rounds_used - 1})
        case CallEdited(args=args) if state.call:
            return state.model_copy(update={"call": state.call.model_copy(update={"args": args})})
        case InfraAnswered():
            return state.model_copy(update={"call": None})
        case ToolReported():
            return _reported(state, fact)
    return evolve_common(state, fact)


def _marked(plan: tuple[PlanStep, ...], marks: tuple[Mark, ...]) -> tuple[PlanStep, ...]:
    status = {mark.number: mark.status for mark in marks}
    return tuple(
        step.model_copy(update={"status": status.get(number, step.status)})
        for number, step in enumerate(plan, 1)
    )


def _decided(state: ChecklistState, fact: DecisionMade) -> State:
    call = None
    if fact.accepted and fact.tool:
        strategy = _strategy_of(fact.strategy) if fact.tool not in INFRA else None
        call = Call(tool=fact.tool, args=fact.args, strategy=strategy)
    return state.model_copy(
        update={
            "decision_rounds_used": state.decision_rounds_used + 1,
            "decisions": state.decisions + 1,
            "violations": 0 if fact.accepted else state.violations + 1,
            "call": call,
        }
    )


def _strategy_of(text: str) -> Strategy | None:
    match text:
        case "explore" | "exploit":
            return text
    return None


def _reported(state: ChecklistState, fact: ToolReported) -> State:
    """A call that was reached is charged to its strategy, however it went."""
    changes: dict[str, Any] = {"call": None}
    match state.call.strategy if state.call else None:
        case "explore":
            changes["explore_used"] = state.explore_used + 1
        case "exploit":
            changes["exploit_used"] = state.exploit_used + 1
    if fact.ran and fact.tool not in state.called:
        changes["called"] = (*state.called, fact.tool)
    if fact.files:
        changes["artifacts"] = state.artifacts | {name: _kind_of(name) for name in fact.files}
    return state.model_copy(update=changes)


def _kind_of(name: str) -> Literal["file", "display"]:
    return "display" if PurePosixPath(name).suffix.lower() in PICTURES else "file"


# --- the model's replies ----------------------------------------------------------------------------------------


class CallReply(Value):
    """The call that a decision asks for. What `params` may be is looked at with the call, not here."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool_id: str | None = None
    params: Json = {}


class DecisionReply(Value):
    """What the model is asked to say; names beside these are passed over, and null is the same as nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    action: str | None = None
    strategy: str | None = None
    notes: str | None = None
    tool_call: CallReply | None = None
    completion_summary: str | None = None
    final_answer: str | None = None
    questions: list[str] | None = None

    @property
    def summary(self) -> str:
        """The completion summary, under either of its names."""
        return (self.completion_summary or "").strip() or (self.final_answer or "").strip()

    @property
    def asks(self) -> tuple[str, ...]:
        """The questions that say something."""
        return tuple(question.strip() for question in self.questions or () if question.strip())


class PlanReply(Value):
    """What the planner is asked to say."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    steps: list[str]


def read_decision(replied: ModelReplied, tools: Mapping[str, ToolSpec]) -> Read[DecisionReply] | Unread:
    """The decision in a reply, or what is wrong with it."""

    def harmless(reply: DecisionReply) -> bool:
        called = reply.tool_call.tool_id if reply.tool_call else None
        return reply.action == "clarify" or (reply.action == "call_tool" and is_harmless(tools, called))

    return read(replied, DecisionReply, harmless)


def read_plan(replied: ModelReplied) -> tuple[Fact, ...]:
    """The plan in a planner's reply; an unusable one is no plan. It calls nothing, so the first of several counts."""
    found = read(replied, PlanReply, lambda plan: True)
    if isinstance(found, Unread):
        why = f"The planner's reply can't be used: {found.why}"
        return PlanMade(source="model", steps=(), why=why), *found.notices
    steps = tuple(step.strip() for step in found.reply.steps if step.strip())
    if why := plan_flaw(steps):
        return (PlanMade(source="model", steps=(), why=f"The planner's reply can't be used: {why}."),)
    return PlanMade(source="model", steps=steps), *found.notices


def acknowledged(plan: tuple[PlanStep, ...], notes: str) -> tuple[Mark, ...]:
    """The steps whose status the notes change; of several marks of a step the last one counts."""
    said: dict[int, Status] = {}
    for line in notes.splitlines():
        if found := MARKED.match(line):
            said[int(found[2] or found[3])] = MARKS[found[1]]
    return tuple(
        Mark(number=number, status=said[number])
        for number, step in enumerate(plan, 1)
        if said.get(number, step.status) != step.status
    )


# --- nodes ------------------------------------------------------------------------------------------------------


def decision(state: ChecklistState, answer: Answer | None) -> Ask | Go:
    """Asks the model what to do, judges its reply, and works on the run's own record."""
    match answer:
        case None:
            return _begin(state)
        case ModelReplied() if _wants_plan(state):
            made = read_plan(answer)
            planned = CHECKLIST.fold(state, made)
            assert isinstance(planned, ChecklistState)
            return Ask(_decision_call(planned), made)
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


def _wants_plan(state: ChecklistState) -> bool:
    return state.settings.planner == "model" and not state.settings.plan and not state.plan_told


def _decision_call(state: ChecklistState) -> ModelCall:
    return ModelCall(role="decision", reply="decision", tail=words.tail(state))


class Violation(NamedTuple):
    """What keeps a decision from being done."""

    code: str
    message: str


def _judge(state: ChecklistState, found: Read[DecisionReply] | Unread) -> Ask | Go:
    """What follows from a decision: its acknowledgements count, also where it is a violation."""
    notes = (found.found.get("notes") if isinstance(found, Unread) else found.reply.notes) or ""
    marks = acknowledged(state.plan, notes) if isinstance(notes, str) else ()
    acks = (*((PlanAcknowledged(marks=marks),) if marks else ()), *found.notices)
    if isinstance(found, Unread):
        made = DecisionMade(accepted=False, notes=notes if isinstance(notes, str) else "")
        return _reject(state, (made, *acks), Violation("decision_invalid", found.why))
    reply = found.reply
    noted = state.model_copy(update={"plan": _marked(state.plan, marks)})
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
    """The first thing that is wrong with a decision (docs/machines.md, "checklist")."""
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
    strategy = _strategy_of(reply.strategy or "")
    if strategy is None:
        return Violation("invalid_strategy", "A call needs the strategy explore or exploit.")
    if state.left(strategy) == 0:
        return Violation("strategy_budget_exhausted", f"The budget of {strategy} is used up.")
    return None


def _reject(state: ChecklistState, facts: tuple[Fact, ...], violation: Violation) -> Go:
    """Back to the model, with a notice; too many in a row end the run."""
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
    """What a valid decision leads to."""
    if call is not None and call.spec is not None:
        notices = tuple(Notice(code=drop.code, message=drop.message, param=drop.param) for drop in call.drops)
        if call.spec.name not in INFRA:
            return Go("call_tool", (*facts, *notices))
        infra = ToolCall(tool=call.spec.name, args=call.args, effects="none", infra=True)
        return Ask(infra, (*facts, *notices))
    if reply.action == "clarify" and state.settings.on_clarify == "exit":
        return Go("exit", (*facts, Exited(reason="clarify", message=" ".join(reply.asks))))
    if reply.action == "clarify":
        why = "The model needs to know more before it goes on."
        return Ask(HumanCall(about="question", title=reply.asks[0], why=why, questions=reply.asks), facts)
    return Go("exit", (*facts, Answered(text=reply.summary), Exited(reason="complete")))


def tool_execution(state: ChecklistState, answer: Answer | None) -> Ask | Go:
    """Runs the call; a fatal error ends the run by an edge of its own."""
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
    if spec.child:
        return Ask(ChildRun(name=spec.child, goal=str(call.args["goal"])), (called,))
    effect = ToolCall(tool=spec.name, args=call.args, effects=spec.effects, idempotent=spec.idempotent)
    return Ask(effect, (called,))


def exit_(state: ChecklistState, answer: Answer | None) -> Go:
    """The last row; the reason is known."""
    if answer is not None:
        raise UnexpectedAnswer("exit", answer)
    return Go("final")


# --- the declaration --------------------------------------------------------------------------------------------


def budget(state: ChecklistState) -> tuple[BudgetRow, ...]:
    """Calls of each strategy, and decisions."""
    lines = (
        ("explore", state.explore_used, state.exploration_budget),
        ("exploit", state.exploit_used, state.exploitation_budget),
        ("iterations", state.decision_rounds_used, state.max_iterations),
    )
    return tuple(BudgetRow(scope="global", name=name, used=used, limit=limit) for name, used, limit in lines)


def artifacts(state: ChecklistState) -> tuple[ArtifactRow, ...]:
    """The files that the run's tools made."""
    return tuple(ArtifactRow(name=name, kind=kind) for name, kind in state.artifacts.items())


def reply_schema(name: str, state: ChecklistState) -> dict[str, Any] | None:
    """The JSON schema of a reply."""
    return words.reply_schema(name, state, frozenset(INFRA))


CHECKLIST = Machine(
    name="checklist",
    line="Works through a plan, ticks off each step in its notes, and may complete once every step is ticked off.",
    start="decision",
    deciding="decision",
    nodes={"decision": decision, "tool_execution": tool_execution, "exit": exit_},
    edges=(
        Edge("decision", "call_tool", "tool_execution", "validated external tool"),
        Edge("decision", "infra", "decision", "react.read, react.memory_read, react.memory_hide"),
        Edge("decision", "violation", "decision", "rejected"),
        Edge("decision", "answered", "decision", "clarify that a person answered"),
        Edge("decision", "exit", "exit"),
        Edge("tool_execution", "done", "decision"),
        Edge("tool_execution", "exit", "exit", "fatal tool error: tool_error"),
        Edge("exit", "final", END),
    ),
    exit_reasons=(
        "complete",
        "clarify",
        "max_iterations",
        "protocol_violation",
        "tool_error",
        *COMMON_EXITS,
    ),
    settings=ChecklistSettings,
    state=ChecklistState,
    own_facts=(DecisionMade, PlanMade, PlanAcknowledged, InfraAnswered),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.decisions,
    budget=budget,
    budget_text=words.active_state,
    system=words.system,
    examples=words.examples,
    block=words.block,
    names_paths=words.names_paths,
    reply_schema=reply_schema,
    artifacts=artifacts,
    takes_fatal=frozenset({"tool_execution"}),
    built_in=tuple(INFRA.values()),
)
