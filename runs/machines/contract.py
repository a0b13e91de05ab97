"""`contract`: fills typed slots under hard and advisory budgets, with overdraft and one wrap-up round.

Pure functions: the settings, the budget, the facts, the state and its fold, the four nodes, and the words for the
model. Source: spec/machines.md, "contract" (seeds 000 and 002).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError, field_validator

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
from runs.engine.facts import Answered, Exited, Fact, Notice, ToolCalled, ToolReported, UserAnswered
from runs.engine.kernel import Fatal, UnexpectedAnswer
from runs.engine.machine import (
    COMMON_EXITS,
    END,
    ArtifactRow,
    Block,
    BudgetRow,
    Edge,
    Machine,
    State,
    Terms,
    evolve_common,
)
from runs.engine.moves import Ask, Go
from runs.engine.settings import MOST_ROUNDS, Settings
from runs.engine.tools import InspectedCall, inspect_call
from runs.engine.values import Json, Value, canonical, parse_object
from runs.machines.prompts import contract as words

STRATEGIES = ("explore", "exploit", "render")
ACTIONS = ("call_tool", "decision", "clarify", "complete", "exit")
KINDS = ("inline", "file", "search")

ROUNDS_WITHOUT_SLOTS = 12
LEAST_CONTEXT_READS = 3
RERUNS = 2

ERROR_SHOWN = 500
"""Characters of an artifact's error that the state keeps."""

SlotType = Literal["inline", "file"]
Depth = Literal["shallow", "medium", "deep"]
Model = TypeVar("Model", bound=Value)


# --- settings ---------------------------------------------------------------------------------------------------


class Slot(Value):
    """One thing that the run is to deliver."""

    id: str = Field(min_length=1, max_length=60)
    type: SlotType
    description: str = ""
    format: str = ""


class Hint(Value):
    """Rounds and reads for one slot; a number that is given always wins, and a negative one is 0."""

    explore: int | None = None
    exploit: int | None = None
    render: int | None = None
    ctx_reads: int | None = None


class Caps(Value):
    """Caps of the global budget that replace the derived ones."""

    max_decision_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_tool_calls: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_explore_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_exploit_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_render_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_decision_reruns: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_context_reads: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)


class ContractSettings(Settings):
    """The settings of a `contract` run."""

    contract: tuple[Slot, ...] = ()
    hints: dict[str, Hint] = {}
    depth: Depth | None = None
    plan_shape: Literal["single_step", "single_deliverable", "multi_step"] | None = None
    """Only `multi_step` changes the budget."""
    coordinator: Literal["form", "model"] | None = None
    """`model`: one model call makes the contract, in place of the form."""
    budget: Caps = Caps()
    skills: dict[str, str] = {}

    @field_validator("contract")
    @classmethod
    def _named_once(cls, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        if twice := _first_double([slot.id for slot in slots]):
            raise ValueError(f"two slots are called {twice}; give each a name of its own")
        return slots


def _first_double(names: list[str]) -> str:
    return next((name for place, name in enumerate(names) if name in names[:place]), "")


# --- budget -----------------------------------------------------------------------------------------------------


class GlobalBudget(Value):
    """What the whole run may use. Rounds and calls gate; explore, exploit and render are advisory."""

    max_decision_rounds: int
    decision_rounds_used: int = 0
    max_tool_calls: int
    tool_calls_used: int = 0
    max_explore_rounds: int
    explore_rounds_used: int = 0
    max_exploit_rounds: int
    exploit_rounds_used: int = 0
    max_render_rounds: int
    render_rounds_used: int = 0
    max_decision_reruns: int = RERUNS
    decision_reruns_used: int = 0
    max_context_reads: int
    context_reads_used: int = 0

    def left(self, name: str) -> int:
        """What is left of a cap, by the name after `max_`; never below 0."""
        return max(0, int(getattr(self, f"max_{name}")) - int(getattr(self, f"{name}_used")))


class StageBudget(Value):
    """What one slot should use; all of it advisory."""

    max_explore: int
    explore_used: int = 0
    max_exploit: int
    exploit_used: int = 0
    max_render: int
    render_used: int = 0
    max_context_reads: int
    context_reads_used: int = 0

    def left(self, name: str) -> int:
        """What is left of a cap, by the name after `max_`; never below 0."""
        return max(0, int(getattr(self, f"max_{name}")) - int(getattr(self, f"{name}_used")))


class BudgetState(Value):
    """Both levels, with the seed's names."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)
    whole: GlobalBudget = Field(alias="global")
    stages: dict[str, StageBudget] = {}


DERIVED: dict[Depth | None, Hint] = {
    None: Hint(explore=2, exploit=3, render=0, ctx_reads=0),
    "shallow": Hint(explore=1, exploit=2, render=1, ctx_reads=0),
    "medium": Hint(explore=2, exploit=3, render=2, ctx_reads=1),
    "deep": Hint(explore=3, exploit=4, render=2, ctx_reads=2),
}
"""Rounds and reads of a file slot by depth; an inline slot renders nothing."""


def derive(
    slots: Iterable[Slot], hints: Mapping[str, Hint], depth: Depth | None, plan_shape: str | None, caps: Caps
) -> BudgetState:
    """The budget that a contract gets (spec/machines.md, "Budget derivation")."""
    stages = {slot.id: _stage(slot, hints.get(slot.id, Hint()), depth, plan_shape) for slot in slots}
    explore = sum(stage.max_explore for stage in stages.values())
    exploit = sum(stage.max_exploit for stage in stages.values())
    render = sum(stage.max_render for stage in stages.values())
    reads = sum(stage.max_context_reads for stage in stages.values())
    rounds = explore + exploit + render or ROUNDS_WITHOUT_SLOTS
    whole = GlobalBudget(
        max_decision_rounds=rounds,
        max_tool_calls=rounds,
        max_explore_rounds=explore,
        max_exploit_rounds=exploit,
        max_render_rounds=render,
        max_context_reads=max(reads, LEAST_CONTEXT_READS),
    )
    given = {name: cap for name, cap in caps.model_dump().items() if cap is not None}
    return BudgetState(whole=whole.model_copy(update=given), stages=stages)


def _stage(slot: Slot, hint: Hint, depth: Depth | None, plan_shape: str | None) -> StageBudget:
    table = DERIVED[depth].model_dump()
    if slot.type == "inline":
        table["render"] = 0
    if plan_shape == "multi_step":
        table["exploit"] += 1
    table.update({name: max(0, number) for name, number in hint.model_dump().items() if number is not None})
    return StageBudget(
        max_explore=table["explore"],
        max_exploit=table["exploit"],
        max_render=table["render"],
        max_context_reads=table["ctx_reads"],
    )


def _added(budget: BudgetState, slot: str | None, whole: Mapping[str, int], stage: Mapping[str, int]) -> Any:
    """The budget with these amounts added to the global one and to the stage of `slot`."""
    stages = budget.stages
    if slot in stages and stage:
        stages = {**stages, slot: _plus(stages[slot], stage)}
    return budget.model_copy(update={"whole": _plus(budget.whole, whole), "stages": stages})


def _plus(level: Model, amounts: Mapping[str, int]) -> Model:
    return level.model_copy(update={name: getattr(level, name) + amount for name, amount in amounts.items()})


# --- replies ----------------------------------------------------------------------------------------------------


class Output(Value):
    """An artifact that a call declares."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: str | None = None
    kind: str | None = None


class CallReply(Value):
    """The call that a decision asks for; `protocol_verify` judges it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool_id: str | None = None
    params: Json = Field(default_factory=dict)
    out_artifacts: tuple[Output, ...] | None = None
    reason: str | None = None

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What it declares; an output without a kind is `inline`."""
        given = self.out_artifacts or ()
        return tuple(one.model_copy(update={"kind": "inline"}) if one.kind is None else one for one in given)


class MapReply(Value):
    """One artifact that is to fill one slot."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    slot: str | None = None
    artifact: str | None = None
    draft: bool | None = None
    gaps: str | tuple[str, ...] | None = None


class Reply(Value):
    """What the model is asked to say; names beside these are passed over, and null is as good as absent."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    action: str | None = None
    strategy: str | None = None
    focus_slot: str | None = None
    notes: str | None = None
    tool_call: CallReply | None = None
    show_artifacts: tuple[str, ...] | None = None
    show_skills: tuple[str, ...] | None = None
    map_slots: tuple[MapReply, ...] | None = None
    questions: tuple[str, ...] | None = None
    completion_summary: str | None = None

    @property
    def call(self) -> CallReply:
        """The call, as far as there is one."""
        return self.tool_call or CallReply()

    @property
    def charged(self) -> str | None:
        """The strategy that a round is charged to."""
        return self.strategy if self.strategy in STRATEGIES else None


class SlotReply(Value):
    """A slot as the coordinator writes it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    id: str = Field(min_length=1, max_length=60)
    type: SlotType
    description: str | None = None
    format: str | None = None


class HintReply(Hint):
    """A hint as the coordinator writes it."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PlanReply(Value):
    """What the coordinator is asked to say."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    slots: tuple[SlotReply, ...] | None = None
    depth: str | None = None
    plan_shape: str | None = None
    hints: dict[str, HintReply | None] | None = None


def _read(shape: type[Model], text: str) -> Model | str:
    """The reply, or what is wrong with it."""
    found = parse_object(text)
    if found is None:
        return "The reply holds no JSON object."
    try:
        return shape.model_validate_json(canonical(found), strict=True)
    except ValidationError as fault:
        first = fault.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the reply"
        return f"{place}: {first['msg']}."


def _read_decision(text: str) -> Reply | str:
    """The decision, or what is wrong with it; strategy `exit` makes the action `exit`."""
    reply = _read(Reply, text)
    if isinstance(reply, str):
        return reply
    if reply.strategy == "exit":
        return reply.model_copy(update={"action": "exit"})
    if reply.action not in ACTIONS:
        wrong = f"There is no action {reply.action}." if reply.action else "The reply names no action."
        return f"{wrong} Use one of {', '.join(ACTIONS)}."
    return reply


# --- facts ------------------------------------------------------------------------------------------------------


class ContractSet(Fact):
    """The coordinator's contract, and what its budget follows from."""

    kind: Literal["contract.set"] = "contract.set"
    slots: tuple[Slot, ...] = ()
    hints: dict[str, Hint] = {}
    depth: Depth | None = None
    plan_shape: str | None = None


class OverdraftGranted(Fact):
    """One more round, past the caps, for exploiting."""

    kind: Literal["contract.overdraft.granted"] = "contract.overdraft.granted"
    number: int
    total: int


class DecisionMade(Reply, Fact):
    """The model's decision, read; it is charged, but for the wrap-up round."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["react.decision"] = "react.decision"


class DecisionUnread(Fact):
    """A reply that is no decision; the raw text is on the exchange, and the round is charged."""

    kind: Literal["contract.decision.unread"] = "contract.decision.unread"
    message: str


class RerunTaken(Fact):
    """One decision rerun is used."""

    kind: Literal["contract.rerun.taken"] = "contract.rerun.taken"


class ThingsShown(Fact):
    """One context read is used: these are shown whole in the next decision's prompt."""

    kind: Literal["contract.shown"] = "contract.shown"
    artifacts: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class SlotMapped(Fact):
    """An artifact fills a slot; it leaves the one that it filled, and what was in this one leaves it."""

    kind: Literal["contract.slot.mapped"] = "contract.slot.mapped"
    slot: str
    artifact: str
    draft: bool = False
    gaps: str = ""


class ArtifactMade(Fact):
    """An artifact, or a new version of one, is in the registry."""

    kind: Literal["contract.artifact.made"] = "contract.artifact.made"
    name: str
    artifact_kind: str
    error: str | None = None
    empty: bool = False


class ExitIntended(Fact):
    """Why the run should end, if the router agrees."""

    kind: Literal["contract.exit.intended"] = "contract.exit.intended"
    reason: str


class WrapUpBegan(Fact):
    """One more round, to put what was made into the slots; `reason` is restored after it."""

    kind: Literal["contract.wrapup.began"] = "contract.wrapup.began"
    reason: str


class ContractJudged(Fact):
    """Which slots are filled at the end."""

    kind: Literal["contract.judged"] = "contract.judged"
    filled: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()


# --- state ------------------------------------------------------------------------------------------------------


class SlotState(Value):
    """A slot, and what fills it."""

    type: SlotType
    description: str = ""
    format: str = ""
    artifact: str | None = None
    draft: bool = False
    gaps: str = ""


class Artifact(Value):
    """An entry of the registry; the value itself is in the log."""

    kind: str
    error: str | None = None
    empty: bool = False
    slot: str | None = None

    @property
    def mappable(self) -> bool:
        """Whether it can fill a slot at all."""
        return self.kind != "search" and self.error is None and not self.empty


class ContractState(State):
    """The control state of a `contract` run, with the seed's names."""

    last_decision: Reply | None = None
    """Without its notes and summary, which are in the log."""
    pending_exit_reason: str | None = None
    wrapup_round_used: bool = False
    is_wrapup_round: bool = False
    wrapup_exit_reason: str | None = None
    """The reason that led to wrap-up."""
    allow_exploit_overdraft: bool = False
    exploit_overdraft_used: int = 0
    exploit_overdraft_total: int = 0
    """Fixed at the first grant."""
    focus_slot: str | None = None
    slots: dict[str, SlotState] = {}
    artifacts: dict[str, Artifact] = {}
    budget: BudgetState
    contract_made: bool = False
    """Whether the coordinator has been heard."""
    decisions: int = 0
    """Replies of role `decision`, valid or not."""
    calling: bool = False
    """A call was reached, and nothing has come of it yet."""
    shown_artifacts: tuple[str, ...] = ()
    shown_skills: tuple[str, ...] = ()

    @property
    def settings(self) -> ContractSettings:
        """The run's settings."""
        assert isinstance(self.terms.settings, ContractSettings)
        return self.terms.settings

    @property
    def skills(self) -> dict[str, str]:
        """The named texts that can be shown: the administrator's, and the run's own before them."""
        return {**self.terms.skills, **self.settings.skills}

    @property
    def unfilled(self) -> list[str]:
        """The slots that nothing fills."""
        return [name for name, slot in self.slots.items() if slot.artifact is None]

    @property
    def fillers(self) -> list[str]:
        """The artifacts that could fill a slot and fill none."""
        return [name for name, made in self.artifacts.items() if made.mappable and made.slot is None]

    @property
    def must_finish(self) -> bool:
        """Whether a gating cap is used up."""
        whole = self.budget.whole
        return whole.left("decision_rounds") == 0 or whole.left("tool_calls") == 0

    @property
    def overdraft(self) -> int:
        """How many rounds the overdraft has in all: fixed once granted, else what it would be now."""
        if self.exploit_overdraft_total:
            return self.exploit_overdraft_total
        left = self.budget.whole.left("exploit_rounds")
        stage = self.budget.stages.get(self.focus_slot or "")
        return left if stage is None else min(left, stage.left("exploit"))

    @property
    def awaits_coordinator(self) -> bool:
        """Whether the contract has yet to be made by the model."""
        return self.settings.coordinator == "model" and not self.contract_made


def open_state(terms: Terms) -> ContractState:
    """The state before the first row: the form's contract, or none yet."""
    own = terms.settings
    assert isinstance(own, ContractSettings)
    slots = () if own.coordinator == "model" else own.contract
    budget = derive(slots, own.hints, own.depth, own.plan_shape, own.budget)
    return ContractState(
        terms=terms, slots=_slots(slots), focus_slot=slots[0].id if slots else None, budget=budget
    )


def _slots(slots: Iterable[Slot]) -> dict[str, SlotState]:
    return {
        slot.id: SlotState(type=slot.type, description=slot.description, format=slot.format) for slot in slots
    }


def evolve(state: ContractState, fact: Fact) -> State:
    """The fold: one case a fact."""
    match fact:
        case ContractSet(slots=slots, hints=hints, depth=depth, plan_shape=shape):
            budget = derive(slots, hints, depth, shape, state.settings.budget)
            focus = slots[0].id if slots else None
            made = {"slots": _slots(slots), "focus_slot": focus, "budget": budget, "contract_made": True}
            return state.model_copy(update=made)
        case OverdraftGranted(number=number, total=total):
            granted = {"exploit_overdraft_used": number, "exploit_overdraft_total": total}
            pending = state.pending_exit_reason
            pending = None if pending == "max_iterations" else pending
            return state.model_copy(
                update={**granted, "allow_exploit_overdraft": True, "pending_exit_reason": pending}
            )
        case DecisionMade():
            return _decided(state, fact)
        case DecisionUnread():
            return _charged(_turned(state), None, 1)
        case UserAnswered():
            return _given_back(state)
        case RerunTaken():
            return _spent(state, {"decision_reruns_used": 1}, {})
        case ThingsShown(artifacts=artifacts, skills=skills):
            read = {"context_reads_used": 1}
            shown = {"shown_artifacts": artifacts, "shown_skills": skills}
            return _spent(state, read, read).model_copy(update=shown)
        case SlotMapped():
            return _mapped(state, fact)
        case ArtifactMade(name=name, artifact_kind=kind, error=error, empty=empty):
            slot = state.artifacts[name].slot if name in state.artifacts else None
            made_now = Artifact(kind=kind, error=error, empty=empty, slot=slot)
            return state.model_copy(update={"artifacts": {**state.artifacts, name: made_now}})
        case ToolCalled():
            return state.model_copy(update={"calling": True})
        case ToolReported():
            return _call_charged(state)
        case ExitIntended(reason=reason):
            return state.model_copy(update={"pending_exit_reason": reason})
        case WrapUpBegan(reason=reason):
            begun = {"is_wrapup_round": True, "wrapup_round_used": True, "wrapup_exit_reason": reason}
            off = {"allow_exploit_overdraft": False, "pending_exit_reason": None}
            return state.model_copy(update={**begun, **off})
        case ContractJudged(unfilled=unfilled) if unfilled and state.exit_reason == "complete":
            return state.model_copy(update={"exit_reason": "incomplete_contract"})
        case Exited(reason="fatal_error") if state.calling:
            return evolve_common(_call_charged(state), fact)
    return evolve_common(state, fact)


def _spent(state: ContractState, whole: Mapping[str, int], stage: Mapping[str, int]) -> ContractState:
    return state.model_copy(update={"budget": _added(state.budget, state.focus_slot, whole, stage)})


def _turned(state: ContractState) -> ContractState:
    """After a reply: it counts, and what was shown for it is shown no more."""
    turned = {"decisions": state.decisions + 1, "shown_artifacts": (), "shown_skills": ()}
    return state.model_copy(update=turned)


def _decided(state: ContractState, fact: DecisionMade) -> ContractState:
    """The decision at hand; outside wrap-up it moves the focus first, and is charged."""
    kept = fact.model_dump(exclude={"kind", "notes", "completion_summary"})
    state = _turned(state).model_copy(update={"last_decision": Reply.model_validate(kept)})
    if fact.focus_slot in state.slots and not state.is_wrapup_round:
        state = state.model_copy(update={"focus_slot": fact.focus_slot})
    return _charged(state, fact.charged, 1)


def _charged(state: ContractState, strategy: str | None, rounds: int) -> ContractState:
    """With a decision round, and one of its strategy, charged (or given back); nothing is in wrap-up."""
    if state.is_wrapup_round:
        return state
    whole = {"decision_rounds_used": rounds}
    if strategy is None:
        return _spent(state, whole, {})
    return _spent(state, {**whole, f"{strategy}_rounds_used": rounds}, {f"{strategy}_used": rounds})


def _given_back(state: ContractState) -> ContractState:
    """A clarify that was answered is free; so is its overdraft round."""
    asked = state.last_decision
    state = _charged(state, asked.charged if asked else None, -1)
    if not state.allow_exploit_overdraft:
        return state
    return state.model_copy(update={"exploit_overdraft_used": state.exploit_overdraft_used - 1})


def _call_charged(state: ContractState) -> ContractState:
    """A call that was reached is charged once, whatever came of it."""
    return _spent(state, {"tool_calls_used": 1}, {}).model_copy(update={"calling": False})


def _mapped(state: ContractState, fact: SlotMapped) -> ContractState:
    artifacts = {
        name: made.model_copy(update={"slot": None}) if made.slot == fact.slot else made
        for name, made in state.artifacts.items()
    }
    artifacts[fact.artifact] = artifacts[fact.artifact].model_copy(update={"slot": fact.slot})
    emptied = {"artifact": None, "draft": False, "gaps": ""}
    slots = {
        name: slot.model_copy(update=emptied) if slot.artifact == fact.artifact else slot
        for name, slot in state.slots.items()
    }
    filled = {"artifact": fact.artifact, "draft": fact.draft, "gaps": fact.gaps}
    slots[fact.slot] = slots[fact.slot].model_copy(update=filled)
    return state.model_copy(update={"artifacts": artifacts, "slots": slots})


def _after(state: ContractState, facts: Iterable[Fact]) -> ContractState:
    """The state with these conclusions drawn."""
    for fact in facts:
        after = evolve(state, fact)
        assert isinstance(after, ContractState)
        state = after
    return state


# --- decision ---------------------------------------------------------------------------------------------------


def decision(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Asks the model what to do next, charges it, and passes calls on; every way out goes through the router."""
    match answer:
        case None if state.awaits_coordinator:
            return Ask(ModelCall(role="coordinator", reply="coordinator", tail=words.COORDINATE))
        case None:
            return _next_round(state, ())
        case ModelReplied(text=text) if state.awaits_coordinator:
            return _next_round(state, _contract_of(state.settings, text))
        case ModelReplied(text=text):
            reply = _read_decision(text)
            return _wrapped_up(state, reply) if state.is_wrapup_round else _judged(state, reply)
        case HumanSaid(verdict="respond", message=message, by=by):
            return Go("answered", (UserAnswered(text=message, by=by),))
    raise UnexpectedAnswer("decision", answer)


def _next_round(state: ContractState, facts: tuple[Fact, ...]) -> Ask | Go:
    """The model call, where the budget or the overdraft has one left."""
    state = _after(state, facts)
    if state.must_finish and not state.is_wrapup_round:
        if state.exploit_overdraft_used >= state.overdraft:
            return _routed(state, facts, "max_iterations")
        granted = OverdraftGranted(number=state.exploit_overdraft_used + 1, total=state.overdraft)
        state, facts = _after(state, (granted,)), (*facts, granted)
    tail = words.tail(state, budget_text(state))
    return Ask(ModelCall(role="decision", reply="decision", tail=tail, shows=state.shown_artifacts), facts)


def _contract_of(own: ContractSettings, text: str) -> tuple[Fact, ...]:
    """The coordinator's contract; an unusable reply means no slots."""
    plan = _read(PlanReply, text)
    slots = () if isinstance(plan, str) else plan.slots or ()
    twice = _first_double([slot.id for slot in slots])
    if isinstance(plan, str) or twice:
        why = plan if isinstance(plan, str) else f"Two slots are called {twice}."
        notice = Notice(code="coordinator_unusable", message=f"The contract could not be read: {why}")
        return notice, ContractSet(depth=own.depth, plan_shape=own.plan_shape)
    given = {name: hint for name, hint in (plan.hints or {}).items() if hint is not None}
    hints = {name: Hint(**hint.model_dump()) for name, hint in given.items()}
    return (
        ContractSet(
            slots=tuple(Slot(**slot.model_dump(exclude_none=True)) for slot in slots),
            hints=hints | own.hints,
            depth=next((depth for depth in DERIVED if depth is not None and depth == plan.depth), own.depth),
            plan_shape=plan.plan_shape or own.plan_shape,
        ),
    )


def _judged(state: ContractState, reply: Reply | str) -> Ask | Go:
    """What follows from a decision outside wrap-up (steps 5 to 10 of the specification)."""
    if isinstance(reply, str):
        return _violated(state, DecisionUnread(message=reply), "decision_invalid", reply)
    made = DecisionMade(**reply.model_dump())
    if reply.action == "call_tool" and reply.charged is None:
        why = f"A tool call needs the strategy {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}."
        return _violated(state, made, "decision_invalid_strategy", why)
    facts = (made, *_answer(reply), *_mappings(_after(state, (made,)), reply))
    state = _after(state, facts)
    match reply.action:
        case "call_tool":
            return _passed_on(state, reply, facts)
        case "decision":
            return _looked_closer(state, reply, facts)
        case "clarify" if state.settings.on_clarify == "ask":
            return Ask(_question(reply), facts)
        case "clarify":
            return _routed(state, facts, "clarify")
    return _routed(state, facts, "complete")


def _question(reply: Reply) -> HumanCall:
    """The questions for a person; the card shows title and why, so that all of them stand there."""
    questions = tuple(filter(str.strip, reply.questions or ()))
    title = questions[0] if questions else "The agent asks before it goes on."
    why = "\n".join(filter(None, (*questions[1:], reply.notes))) or "The agent can't decide this by itself."
    return HumanCall(about="question", title=title, why=why, questions=questions)


def _violated(state: ContractState, read: Fact, code: str, why: str) -> Go:
    """The decision ends here; it is asked for again while decision reruns are left."""
    facts = (read, Notice(code=code, message=why))
    if state.budget.whole.left("decision_reruns") == 0:
        return _routed(_after(state, facts), facts, "decision_reruns_exhausted")
    return Go("rerun", (*facts, RerunTaken()))


def _answer(reply: Reply) -> tuple[Fact, ...]:
    summary = (reply.completion_summary or "").strip()
    return (Answered(text=summary),) if summary else ()


def _passed_on(state: ContractState, reply: Reply, facts: tuple[Fact, ...]) -> Go:
    """A tool call; what it wants to see beside is charged, or dropped where no read is left."""
    if state.allow_exploit_overdraft and reply.strategy != "exploit":
        return _routed(state, facts, "exploit_overdraft_blocked")
    shown = _showable(state, reply)
    if shown is None:
        return Go("call_tool", facts)
    if state.budget.whole.left("context_reads") == 0:
        dropped = Notice(code="context_read_dropped", message="No context read is left: nothing is shown.")
        return Go("call_tool", (*facts, dropped))
    return Go("call_tool", (*facts, shown))


def _looked_closer(state: ContractState, reply: Reply, facts: tuple[Fact, ...]) -> Go:
    """A decision that only wants to see something first: it needs a read and a rerun."""
    shown = _showable(state, reply)
    if shown is None:
        return _routed(state, facts, "decision_no_progress")
    if state.budget.whole.left("context_reads") == 0:
        return _routed(state, facts, "context_reads_exhausted")
    if state.budget.whole.left("decision_reruns") == 0:
        return _routed(state, facts, "decision_reruns_exhausted")
    return Go("rerun", (*facts, shown, RerunTaken()))


def _showable(state: ContractState, reply: Reply) -> ThingsShown | None:
    """What exists of what the decision wants to see; None where nothing does."""
    artifacts = dict.fromkeys(name for name in reply.show_artifacts or () if name in state.artifacts)
    skills = dict.fromkeys(name for name in reply.show_skills or () if name in state.skills)
    return ThingsShown(artifacts=tuple(artifacts), skills=tuple(skills)) if artifacts or skills else None


def _wrapped_up(state: ContractState, reply: Reply | str) -> Go:
    """The wrap-up round maps and ends, with the reason that led to it; nothing is charged or a violation."""
    assert state.wrapup_exit_reason is not None
    if isinstance(reply, str):
        unread = (DecisionUnread(message=reply),)
        return _routed(_after(state, unread), unread, state.wrapup_exit_reason)
    made = DecisionMade(**reply.model_dump())
    facts = (made, *_answer(reply), *_mappings(state, reply))
    again = reply.action == "decision"
    return _routed(
        _after(state, facts), facts, "wrapup_no_decision_rerun" if again else state.wrapup_exit_reason
    )


def _routed(state: ContractState, facts: tuple[Fact, ...], reason: str) -> Go:
    """The router: the one place that sets the exit reason, or opens the one wrap-up round instead."""
    facts = (*facts, ExitIntended(reason=reason))
    if not state.wrapup_round_used and state.unfilled and state.fillers:
        return Go("wrapup", (*facts, WrapUpBegan(reason=reason)))
    return Go("exit", (*facts, Exited(reason=reason)))


def _mappings(state: ContractState, reply: Reply) -> tuple[Fact, ...]:
    """Each entry of `map_slots`: done, or refused with a notice."""
    declared: set[str | None] = set()
    if reply.action == "call_tool":
        declared = {output.name for output in reply.call.outputs}
    return tuple(_mapping(state, entry, declared) for entry in reply.map_slots or ())


def _mapping(state: ContractState, entry: MapReply, declared: set[str | None]) -> Fact:
    slot, artifact = state.slots.get(entry.slot or ""), state.artifacts.get(entry.artifact or "")
    if slot is None:
        return Notice(code="unknown_slot", message=f"There is no slot {entry.slot}.")
    if entry.artifact in declared:
        return Notice(
            code="future_artifact", message=f"{entry.artifact} is made by this very call; map it later."
        )
    if artifact is None:
        return Notice(code="unknown_artifact", message=f"There is no artifact {entry.artifact}.")
    if not artifact.mappable:
        why = artifact.error or ("it has no value" if artifact.empty else "search results fill no slot")
        return Notice(code="not_mappable", message=f"{entry.artifact} can't fill a slot: {why}.")
    draft = bool(entry.draft)
    if artifact.kind != slot.type and not (artifact.kind == "inline" and draft):
        fits = "needs a file, or an inline artifact as a draft" if slot.type == "file" else "takes no file"
        return Notice(
            code="incompatible", message=f"{entry.slot} {fits}; {entry.artifact} is {artifact.kind}."
        )
    gaps = entry.gaps if isinstance(entry.gaps, str) else " ".join(entry.gaps or ())
    return SlotMapped(slot=str(entry.slot), artifact=str(entry.artifact), draft=draft, gaps=gaps)


# --- the call ---------------------------------------------------------------------------------------------------


def protocol_verify(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Holds the call against its tool: faults block it, what is only dropped does not."""
    if answer is not None:
        raise UnexpectedAnswer("protocol_verify", answer)
    call = _call_of(state)
    faults = [(flaw.code, flaw.message, flaw.param) for flaw in _inspected(state).flaws]
    if not isinstance(call.params, dict) and all(code != "bad_params" for code, _, _ in faults):
        faults.append(("bad_params", "The arguments of a call must be an object.", ""))
    if wrong := _outputs_fault(call):
        faults.append(("missing_out_artifacts_spec", wrong, ""))
    faults.sort(key=lambda fault: BLOCKING.index(fault[0]))
    dropped = [(drop.code, drop.message, drop.param) for drop in _inspected(state).drops]
    notices = tuple(
        Notice(code=code, message=message, param=param) for code, message, param in (*faults, *dropped)
    )
    return Go("violation" if faults else "ok", notices)


BLOCKING = (
    "missing_tool_id",
    "unknown_tool_id",
    "tool_not_allowed",
    "bad_params",
    "missing_out_artifacts_spec",
    "missing_required",
    "type_mismatch",
)
"""The faults that block a call, in the order in which they are told."""


def _call_of(state: ContractState) -> CallReply:
    assert state.last_decision is not None
    return state.last_decision.call


def _inspected(state: ContractState) -> InspectedCall:
    call = _call_of(state)
    return inspect_call(state.terms.tools, call.tool_id, call.params)


def _outputs_fault(call: CallReply) -> str:
    """What is wrong with the declared outputs; empty where nothing is."""
    if not call.outputs:
        return "A call must declare what it makes: out_artifacts with a name and a kind."
    if any(not output.name or output.kind not in KINDS for output in call.outputs):
        return f"Each of out_artifacts needs a name and a kind: {', '.join(KINDS[:-1])} or {KINDS[-1]}."
    return ""


def tool_execution(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Runs the call and registers what it declared, with its error where it failed."""
    tool = str(_call_of(state).tool_id)
    match answer:
        case None:
            return _run(state)
        case ToolReturned(value=value, ran=ran, files=files):
            names = tuple(file.name for file in files)
            return _done(state, ToolReported(tool=tool, value=value, ran=ran, files=names))
        case ChildFinished(answer=str(text), status="succeeded" | "stopped"):
            return _done(state, ToolReported(tool=tool, value=text))
        case ChildFinished(status=status):
            return _done(
                state, ToolReported(tool=tool, error=f"The child run ended {status}, without an answer.")
            )
        case Failed(message=why, ran=ran):
            return _done(state, ToolReported(tool=tool, error=why, ran=ran))
    raise UnexpectedAnswer("tool_execution", answer)


def _run(state: ContractState) -> Ask:
    call = _inspected(state)
    spec = call.spec
    if spec is None or call.flaws:
        raise Fatal(f"The tool {_call_of(state).tool_id} is not what it was when the call was checked.")
    called = ToolCalled(tool=spec.name, args=call.args)
    if spec.child:
        return Ask(ChildRun(name=spec.child, goal=str(call.args["goal"])), (called,))
    held = ToolCall(tool=spec.name, args=call.args, effects=spec.effects, idempotent=spec.idempotent)
    return Ask(held, (called,))


def _done(state: ContractState, reported: ToolReported) -> Go:
    outputs = _call_of(state).outputs
    names = tuple(str(output.name) for output in outputs)
    made = (
        ArtifactMade(
            name=str(output.name),
            artifact_kind=str(output.kind),
            error=None if reported.error is None else (reported.error or "It failed.")[:ERROR_SHOWN],
            empty=part_of(reported.value, names, str(output.name)) is None,
        )
        for output in outputs
    )
    return Go("done", (reported.model_copy(update={"outputs": names}), *made))


def part_of(value: Json, names: tuple[str, ...], name: str) -> Json:
    """What one output gets of a result: of several the member of its name where there is one, else the whole."""
    if len(set(names)) > 1 and isinstance(value, dict) and name in value:
        return value[name]
    return value


def exit_node(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Judges the contract; `complete` with an unfilled slot is not."""
    if answer is not None:
        raise UnexpectedAnswer("exit", answer)
    filled = tuple(name for name in state.slots if name not in state.unfilled)
    return Go("final", (ContractJudged(filled=filled, unfilled=tuple(state.unfilled)),))


# --- the declaration --------------------------------------------------------------------------------------------


GLOBAL_LINES = (
    ("decisions", "decision_rounds", "decision_rounds"),
    ("tools", "tool_calls", "tool_calls"),
    ("explore", "explore", "explore_rounds"),
    ("exploit", "exploit", "exploit_rounds"),
    ("render", "render", "render_rounds"),
    ("decision_reruns", "decision_reruns", "decision_reruns"),
    ("context_reads", "context_reads", "context_reads"),
)
"""Of the global budget: the word of BUDGET_STATE, the name of the budget line, the name in GlobalBudget."""

STAGE_NAMES = ("explore", "exploit", "render", "context_reads")


def budget(state: ContractState) -> tuple[BudgetRow, ...]:
    """The global budget, then each stage's."""
    return (
        *(_row("global", line, state.budget.whole, name) for _, line, name in GLOBAL_LINES),
        *(
            _row(f"stage:{slot}", name, stage, name)
            for slot, stage in state.budget.stages.items()
            for name in STAGE_NAMES
        ),
    )


def _row(scope: str, line: str, level: GlobalBudget | StageBudget, name: str) -> BudgetRow:
    used, limit = getattr(level, f"{name}_used"), getattr(level, f"max_{name}")
    return BudgetRow(scope=scope, name=line, used=used, limit=limit)


def budget_text(state: ContractState) -> str:
    """BUDGET_STATE: one or two lines, the second where a slot is current (spec/machines.md)."""
    whole = [_left(state, state.budget.whole, name, word) for word, _, name in GLOBAL_LINES]
    if state.is_wrapup_round:
        whole.append("wrapup active")
    elif state.allow_exploit_overdraft:
        whole.append(f"exploit_overdraft {state.exploit_overdraft_used}/{state.exploit_overdraft_total}")
    lines = [f"BUDGET_STATE: global({', '.join(whole)})"]
    stage = state.budget.stages.get(state.focus_slot or "")
    if stage is not None:
        parts = ", ".join(_left(state, stage, name, name) for name in STAGE_NAMES)
        lines.append(f"        stage[{state.focus_slot}]({parts})")
    return "\n".join(lines)


def _left(state: ContractState, level: GlobalBudget | StageBudget, name: str, word: str) -> str:
    left = 0 if state.is_wrapup_round else level.left(name)
    return f"{word} left {left}/{getattr(level, f'max_{name}')}"


def artifacts(state: ContractState) -> tuple[ArtifactRow, ...]:
    """The registry."""
    return tuple(
        ArtifactRow(name=name, kind=made.kind, error=made.error, slot=made.slot)
        for name, made in state.artifacts.items()
    )


def block(fact: Fact) -> Block | None:
    """How a fact reads; of a tool's result the beginning, and the whole for a prompt that shows it."""
    if isinstance(fact, ToolReported):
        return words.result(fact, {name: part_of(fact.value, fact.outputs, name) for name in fact.outputs})
    return words.block(fact)


def ok(state: ContractState) -> bool | None:
    """Whether every slot is filled; None where there is none."""
    return not state.unfilled if state.slots else None


def succeeded(state: ContractState) -> bool:
    """With slots: all of them are filled, whatever the reason."""
    return not state.unfilled if state.slots else state.exit_reason == "complete"


CONTRACT = Machine(
    name="contract",
    line="Fills the slots of a contract, under budgets; what was made is put into the slots before the run ends.",
    start="decision",
    deciding="decision",
    nodes={
        "decision": decision,
        "protocol_verify": protocol_verify,
        "tool_execution": tool_execution,
        "exit": exit_node,
    },
    edges=(
        Edge("decision", "call_tool", "protocol_verify", "the decision calls a tool and no exit is pending"),
        Edge("decision", "rerun", "decision", "an accepted `decision`, or a violation that forces a rerun"),
        Edge("decision", "answered", "decision", "`clarify` that a person answered"),
        Edge("decision", "wrapup", "decision", "the router opened the wrap-up round"),
        Edge("decision", "exit", "exit", "the router resolved an exit reason"),
        Edge("protocol_verify", "ok", "tool_execution"),
        Edge("protocol_verify", "violation", "decision"),
        Edge("tool_execution", "done", "decision"),
        Edge("exit", "final", END),
    ),
    exit_reasons=(
        "complete",
        "clarify",
        "max_iterations",
        "context_reads_exhausted",
        "decision_no_progress",
        "decision_reruns_exhausted",
        "wrapup_no_decision_rerun",
        "exploit_overdraft_blocked",
        "incomplete_contract",
        *COMMON_EXITS,
    ),
    settings=ContractSettings,
    state=ContractState,
    own_facts=(
        ContractSet,
        OverdraftGranted,
        DecisionMade,
        DecisionUnread,
        RerunTaken,
        ThingsShown,
        SlotMapped,
        ArtifactMade,
        ExitIntended,
        WrapUpBegan,
        ContractJudged,
    ),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.decisions,
    budget=budget,
    budget_text=budget_text,
    system=words.system,
    examples=words.examples,
    block=block,
    reply_schema=words.reply_schema,
    artifacts=artifacts,
    succeeded=succeeded,
    ok=ok,
)
