"""The node `decision`: asks the model and passes calls on; and the router, the one way out."""

from __future__ import annotations

from dataclasses import replace

from runs.engine.effects import Answer, HumanCall, HumanSaid, ModelCall, ModelReplied
from runs.engine.facts import Answered, Exited, Fact, Notice, UserAnswered
from runs.engine.kernel import UnexpectedAnswer
from runs.engine.moves import Ask, Go
from runs.engine.reply import Read, Unread
from runs.machines.contract import prompts as words
from runs.machines.contract.budgets import DERIVED
from runs.machines.contract.facts import (
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
from runs.machines.contract.replies import STRATEGIES, MapReply, Reply, read_decision, read_plan
from runs.machines.contract.settings import ContractSettings, Hint, Slot, first_double
from runs.machines.contract.state import ContractState, after
from runs.machines.contract.telling import budget_text


def decision(state: ContractState, answer: Answer | None) -> Ask | Go:
    """Ask the model for the next decision, charge it, and pass calls on; every way out goes through the router."""
    match answer:
        case None if state.awaits_coordinator:
            return Ask(ModelCall(role="coordinator", reply="coordinator", tail=words.COORDINATE))
        case None:
            return _next_round(state, ())
        case ModelReplied() if state.awaits_coordinator:
            return _next_round(state, _contract_of(state.settings, answer))
        case ModelReplied():
            found = read_decision(answer, state.terms.tools)
            move = _wrapped_up(state, found) if state.is_wrapup_round else _judged(state, found)
            return replace(move, facts=(*move.facts, *found.notices))
        case HumanSaid(verdict="respond", message=message, by=by):
            return Go("answered", (UserAnswered(text=message, by=by),))
    raise UnexpectedAnswer("decision", answer)


def _next_round(state: ContractState, facts: tuple[Fact, ...]) -> Ask | Go:
    """Return the model call, if the budget or the overdraft has one left."""
    state = after(state, facts)
    if state.must_finish and not state.is_wrapup_round:
        if state.exploit_overdraft_used >= state.overdraft:
            return _routed(state, facts, "max_iterations")
        granted = OverdraftGranted(number=state.exploit_overdraft_used + 1, total=state.overdraft)
        state, facts = after(state, (granted,)), (*facts, granted)
    tail = words.tail(state, budget_text(state))
    return Ask(ModelCall(role="decision", reply="decision", tail=tail, shows=state.shown_artifacts), facts)


def _contract_of(own: ContractSettings, replied: ModelReplied) -> tuple[Fact, ...]:
    """Return the coordinator's contract; an unusable reply means no slots."""
    found = read_plan(replied)
    slots = () if isinstance(found, Unread) else found.reply.slots or ()
    twice = first_double([slot.id for slot in slots])
    if isinstance(found, Unread) or twice:
        why = found.why if isinstance(found, Unread) else f"Two slots are called {twice}."
        notice = Notice(code="coordinator_unusable", message=f"The contract could not be read: {why}")
        return notice, ContractSet(depth=own.depth, plan_shape=own.plan_shape)
    plan = found.reply
    given = {name: hint for name, hint in (plan.hints or {}).items() if hint is not None}
    hints = {name: Hint(**hint.model_dump()) for name, hint in given.items()}
    made = ContractSet(
        slots=tuple(Slot(**slot.model_dump(exclude_none=True)) for slot in slots),
        hints=hints | own.hints,
        depth=next((depth for depth in DERIVED if depth is not None and depth == plan.depth), own.depth),
        plan_shape=plan.plan_shape or own.plan_shape,
    )
    return made, *found.notices


def _judged(state: ContractState, found: Read[Reply] | Unread) -> Ask | Go:
    """Return the move after a decision outside wrap-up."""
    if isinstance(found, Unread):
        return _violated(state, DecisionUnread(message=found.why), "decision_invalid", found.why)
    reply = found.reply
    made = DecisionMade(**reply.model_dump())
    if reply.action == "call_tool" and reply.charged is None:
        why = f"A tool call needs the strategy {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}."
        return _violated(state, made, "decision_invalid_strategy", why)
    facts = (made, *_answer(reply), *_mappings(after(state, (made,)), reply))
    state = after(state, facts)
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
    """Return the questions for a person. Readers show `questions`; `why` has them as records do."""
    questions = tuple(filter(str.strip, reply.questions or ()))
    title = questions[0] if questions else "The agent needs an answer to continue."
    why = "\n".join(filter(None, (*questions[1:], reply.notes))) or "The agent can't decide this alone."
    return HumanCall(about="question", title=title, why=why, questions=questions)


def _violated(state: ContractState, read: Fact, code: str, why: str) -> Go:
    """End the decision; the model is asked again while decision reruns are left."""
    facts = (read, Notice(code=code, message=why))
    if state.budget.whole.left("decision_reruns") == 0:
        return _routed(after(state, facts), facts, "decision_reruns_exhausted")
    return Go("rerun", (*facts, RerunTaken()))


def _answer(reply: Reply) -> tuple[Fact, ...]:
    summary = (reply.completion_summary or "").strip()
    return (Answered(text=summary),) if summary else ()


def _passed_on(state: ContractState, reply: Reply, facts: tuple[Fact, ...]) -> Go:
    """Pass on a tool call; its context reads are charged, or dropped if none is left."""
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
    """Grant a decision that only wants context reads: it needs a read and a rerun."""
    shown = _showable(state, reply)
    if shown is None:
        return _routed(state, facts, "decision_no_progress")
    if state.budget.whole.left("context_reads") == 0:
        return _routed(state, facts, "context_reads_exhausted")
    if state.budget.whole.left("decision_reruns") == 0:
        return _routed(state, facts, "decision_reruns_exhausted")
    return Go("rerun", (*facts, shown, RerunTaken()))


def _showable(state: ContractState, reply: Reply) -> ThingsShown | None:
    """Return the existing part of the things that the decision wants to see; None if nothing exists."""
    artifacts = dict.fromkeys(name for name in reply.show_artifacts or () if name in state.artifacts)
    skills = dict.fromkeys(name for name in reply.show_skills or () if name in state.skills)
    return ThingsShown(artifacts=tuple(artifacts), skills=tuple(skills)) if artifacts or skills else None


def _wrapped_up(state: ContractState, found: Read[Reply] | Unread) -> Go:
    """Map the slots and end, for the reason that led to wrap-up; nothing is charged or a violation."""
    assert state.wrapup_exit_reason is not None
    if isinstance(found, Unread):
        unread = (DecisionUnread(message=found.why),)
        return _routed(after(state, unread), unread, state.wrapup_exit_reason)
    reply = found.reply
    made = DecisionMade(**reply.model_dump())
    facts = (made, *_answer(reply), *_mappings(state, reply))
    again = reply.action == "decision"
    return _routed(
        after(state, facts), facts, "wrapup_no_decision_rerun" if again else state.wrapup_exit_reason
    )


def _routed(state: ContractState, facts: tuple[Fact, ...], reason: str) -> Go:
    """Set the exit reason, or open the one wrap-up turn instead: the one place that does."""
    facts = (*facts, ExitIntended(reason=reason))
    if not state.wrapup_round_used and state.unfilled and state.fillers:
        return Go("wrapup", (*facts, WrapUpBegan(reason=reason)))
    return Go("exit", (*facts, Exited(reason=reason)))


def _mappings(state: ContractState, reply: Reply) -> tuple[Fact, ...]:
    """Return the facts of each entry of `map_slots`: done, or refused with a notice."""
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
