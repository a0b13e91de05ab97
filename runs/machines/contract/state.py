"""The control state, how it opens, and the fold: one case a fact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from runs.engine.facts import Exited, Fact, ToolCalled, ToolReported, UserAnswered
from runs.engine.machine import State, Terms, evolve_common
from runs.engine.values import Value
from runs.machines.contract.budgets import BudgetState, added, derive
from runs.machines.contract.facts import (
    ArtifactMade,
    ContractJudged,
    ContractSet,
    DecisionMade,
    DecisionUnread,
    ExitIntended,
    OverdraftGranted,
    RerunTaken,
    SlotMapped,
    ThingsShown,
    WrapUpBegan,
)
from runs.machines.contract.replies import Reply
from runs.machines.contract.settings import ContractSettings, Slot, SlotType


class SlotState(Value):
    """A slot, and its artifact."""

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
        """Return True if it can fill a slot at all."""
        return self.kind != "search" and self.error is None and not self.empty


class ContractState(State):
    last_decision: Reply | None = None
    """Without its notes and summary: the log has those."""
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
    """True if the coordinator has answered."""
    decisions: int = 0
    """Replies of role `decision`, valid or not."""
    calling: bool = False
    """A call was reached, and has no result yet."""
    shown_artifacts: tuple[str, ...] = ()
    shown_skills: tuple[str, ...] = ()

    @property
    def settings(self) -> ContractSettings:
        assert isinstance(self.terms.settings, ContractSettings)
        return self.terms.settings

    @property
    def skills(self) -> dict[str, str]:
        """Return the named texts that can be shown: the administrator's, overridden by the run's own."""
        return {**self.terms.skills, **self.settings.skills}

    @property
    def unfilled(self) -> list[str]:
        """Return the slots without an artifact."""
        return [name for name, slot in self.slots.items() if slot.artifact is None]

    @property
    def fillers(self) -> list[str]:
        """Return the artifacts that could fill a slot and fill none."""
        return [name for name, made in self.artifacts.items() if made.mappable and made.slot is None]

    @property
    def must_finish(self) -> bool:
        """Return True if a gating cap is used up."""
        whole = self.budget.whole
        return whole.left("decision_rounds") == 0 or whole.left("tool_calls") == 0

    @property
    def overdraft(self) -> int:
        """Return the overdraft's rounds in all: fixed once granted, else its current size."""
        if self.exploit_overdraft_total:
            return self.exploit_overdraft_total
        left = self.budget.whole.left("exploit_rounds")
        stage = self.budget.stages.get(self.focus_slot or "")
        return left if stage is None else min(left, stage.left("exploit"))

    @property
    def awaits_coordinator(self) -> bool:
        """Return True if the model has yet to make the contract."""
        return self.settings.coordinator == "model" and not self.contract_made


def open_state(terms: Terms) -> ContractState:
    """Return the state before the first step: the form's contract, or none yet."""
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
    """Fold a fact into the state: one case a fact."""
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


def after(state: ContractState, facts: Iterable[Fact]) -> ContractState:
    """Return the state after these facts."""
    for fact in facts:
        evolved = evolve(state, fact)
        assert isinstance(evolved, ContractState)
        state = evolved
    return state


def _spent(state: ContractState, whole: Mapping[str, int], stage: Mapping[str, int]) -> ContractState:
    return state.model_copy(update={"budget": added(state.budget, state.focus_slot, whole, stage)})


def _turned(state: ContractState) -> ContractState:
    """Count a reply, and hide the texts shown for it."""
    turned = {"decisions": state.decisions + 1, "shown_artifacts": (), "shown_skills": ()}
    return state.model_copy(update=turned)


def _decided(state: ContractState, fact: DecisionMade) -> ContractState:
    """Take the decision; outside wrap-up it moves the focus first, and is charged."""
    kept = fact.model_dump(exclude={"kind", "notes", "completion_summary"})
    state = _turned(state).model_copy(update={"last_decision": Reply.model_validate(kept)})
    if fact.focus_slot in state.slots and not state.is_wrapup_round:
        state = state.model_copy(update={"focus_slot": fact.focus_slot})
    return _charged(state, fact.charged, 1)


def _charged(state: ContractState, strategy: str | None, rounds: int) -> ContractState:
    """Charge (or give back) a decision round, and one of its strategy; nothing in wrap-up."""
    if state.is_wrapup_round:
        return state
    whole = {"decision_rounds_used": rounds}
    if strategy is None:
        return _spent(state, whole, {})
    return _spent(state, {**whole, f"{strategy}_rounds_used": rounds}, {f"{strategy}_used": rounds})


def _given_back(state: ContractState) -> ContractState:
    """Give back the round of an answered clarify; its overdraft round, too."""
    asked = state.last_decision
    state = _charged(state, asked.charged if asked else None, -1)
    if not state.allow_exploit_overdraft:
        return state
    return state.model_copy(update={"exploit_overdraft_used": state.exploit_overdraft_used - 1})


def _call_charged(state: ContractState) -> ContractState:
    """Charge a reached call once, whatever its outcome."""
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
