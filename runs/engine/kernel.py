"""What comes next? One pure function, asked again and again.

`decide` returns a run's next move and the cost of its last answer; `advance` returns the run after that move. Answers
with the same meaning in every machine end here and never reach a node. No I/O, no clock, no randomness. See
docs/runtime.md, "The kernel".
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from runs.engine import context, gates, outward, scripts
from runs.engine.effects import (
    Answer,
    ChildRun,
    Compaction,
    ContextOverflowed,
    Effect,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    ScriptCalled,
    Summarised,
    ToolCall,
    ToolReturned,
)
from runs.engine.facts import (
    Answered,
    CallEdited,
    Exited,
    Fact,
    Notice,
    Rewound,
)
from runs.engine.machine import END, Machine, State
from runs.engine.moves import Ask, Compact, Go, Move, Rewind, Stop
from runs.engine.settings import LIMIT_REASONS
from runs.engine.settling import Again, Decision, Ready, cost_of, found_out, read_less, settle, stop
from runs.engine.snapshot import Held, Pending, Snapshot, Totals, Window
from runs.engine.timeline import blocks_of
from runs.engine.tools import check_arguments
from runs.engine.unended import unended

FINISH = "No more calls can be made. Say in plain text what was found out, and what is still open."
"""The tail of the one call that ends a run at a limit."""

MARGIN = 1.25
"""Factor by which a prompt may exceed its estimate, for limits."""

RULES_CHANGED = "The site's rules changed after this call was allowed."
"""Why a question opens about a passed call."""


class Fatal(Exception):
    """A node can't go on; the kernel stops the run with `fatal_error`."""

    def __init__(self, message: str, facts: tuple[Fact, ...] = ()) -> None:
        self.message = message
        self.facts = facts
        super().__init__(message)


class UnexpectedAnswer(Fatal):
    """A node got an answer to something that it did not ask."""

    def __init__(self, node: str, answer: Answer | None) -> None:
        super().__init__(f"{node} can't take the answer {answer.kind if answer else 'none'}.")


def decide(machine: Machine, snapshot: Snapshot, answer: Answer | None) -> Decision:
    """Return the next move, given the answer to the pending ask (None: nothing is pending)."""
    settled = settle(machine, snapshot, answer)
    read = outward.newly_read(snapshot.state, snapshot.pending, answer)
    try:
        match settled:
            case Ready(answer=ready, totals=totals):
                state = machine.fold(snapshot.state, read)
                move = _next(machine, snapshot._replace(state=state, totals=totals), ready)
            case Again(ask=ask, totals=totals):
                move = _through(machine, snapshot._replace(pending=None, totals=totals), ask, ())
            case Decision(move=move, totals=totals):
                pass
            case _:
                move, totals = settled, snapshot.totals
    except Fatal as fault:
        exited = Exited(reason="fatal_error", message=fault.message)
        move, totals = Stop("fatal_error", (*fault.facts, exited)), snapshot.totals
        if isinstance(settled, Ready | Again):
            totals = settled.totals
    beside = cost_of(answer) + read + found_out(snapshot, answer) + read_less(answer)
    if not isinstance(move, Rewind):  # a rewind has its own: the restored state is told why
        beside += _feedback(machine, snapshot, answer)
    return Decision(replace(move, facts=(*beside, *move.facts)) if beside else move, totals)


def _next(machine: Machine, snapshot: Snapshot, answer: Answer | None) -> Move:
    """Return the next move after a settled answer."""
    effect = snapshot.pending.effect if snapshot.pending else None
    match effect, answer:
        case None, None if snapshot.held is not None:
            held = snapshot.held
            return _through(machine, snapshot._replace(held=None), Ask(held.call), held.passed)
        case None, None:
            return _enter(machine, snapshot)
        case Compaction() as compaction, _:
            return _compacted(machine, snapshot, compaction, answer)
        case HumanCall() as call, HumanSaid() as said:
            return _heard(machine, snapshot, call, said)
        case _, ScriptCalled() as call:
            return _of_script(machine, snapshot, call)
        case ModelCall(closes=reason), _ if reason:
            text = answer.text.strip() if isinstance(answer, ModelReplied) else ""
            text = text or no_answer(snapshot.state)
            return Stop(reason, (Answered(text=text, source="fallback"), Exited(reason=reason)))
    return _ask_node(machine, snapshot, answer)


def no_answer(state: State) -> str:
    """Return the fixed sentence in place of a missing answer."""
    return f"The run ended without an answer to: {state.terms.goal}"


def _enter(machine: Machine, snapshot: Snapshot, told: tuple[Fact, ...] = ()) -> Move:
    """Ask a node for the first time; the deciding one only after the "every N steps" gate. `told` comes before all."""
    if snapshot.node == machine.deciding:
        match gates.on_entry(machine, snapshot):
            case gates.Hold(call=call, facts=facts):
                return Ask(call, told + facts)
            case gates.End(reason=reason, message=message, rule=rule):
                return Stop(reason, (*told, Exited(reason=reason, message=message, rule=rule)))
            case gates.Pass(facts=facts):
                return _ask_node(machine, snapshot, None, told + facts)
    return _ask_node(machine, snapshot, None, told)


def _ask_node(
    machine: Machine, snapshot: Snapshot, answer: Answer | None, facts: tuple[Fact, ...] = ()
) -> Move:
    """Return the node's move; an effect goes through the gates first. `facts` come before the node's.

    An answer to a script's call goes to the script, not to the node.
    """
    state = machine.fold(snapshot.state, facts)
    if (told := scripts.answered(state, answer)) is not None:
        facts, state = (*facts, told), machine.fold(state, (told,))
        if not isinstance(answer, Failed) or answer.blame != "fatal":
            resumes = Ask(scripts.resumed(told.script))
            gated = _through(machine, snapshot._replace(state=state), resumes, (gates.ALL,))
            return replace(gated, facts=facts + gated.facts)
    move = machine.nodes[snapshot.node](state, answer)
    match move:
        case Ask():
            gated = _through(machine, snapshot._replace(state=state), move, ())
            return replace(gated, facts=facts + gated.facts) if facts else gated
        case Go():
            move = replace(move, facts=facts + move.facts) if facts else move
            _check_edge(machine, snapshot, move)
            return move
    raise Fatal(f"{snapshot.node} made a move that is not its own.")


def _of_script(machine: Machine, snapshot: Snapshot, call: ScriptCalled) -> Move:
    """Return the call that a script makes, through the gates; its faults are the script's to hear."""
    assert snapshot.pending is not None
    withheld = {scripts.PYTHON, *(spec.name for spec in machine.built_in)}
    effect, facts = scripts.judged(snapshot.state, snapshot.pending, call, withheld)
    if isinstance(effect, Failed):
        return _ask_node(machine, snapshot, effect, facts)
    state = machine.fold(snapshot.state, facts)
    gated = _through(machine, snapshot._replace(state=state), Ask(effect), ())
    return replace(gated, facts=facts + gated.facts)


def _check_edge(machine: Machine, snapshot: Snapshot, move: Go) -> None:
    target = machine.targets.get((snapshot.node, move.edge))
    if target is None:
        raise Fatal(f"{snapshot.node} asked for the edge {move.edge}, which is not declared.", move.facts)
    if target == END and machine.fold(snapshot.state, move.facts).exit_reason is None:
        raise Fatal(f"{snapshot.node} ended the run without a reason.", move.facts)


def _through(machine: Machine, snapshot: Snapshot, ask: Ask, passed: tuple[str, ...]) -> Move:
    """Return `ask`, or the move that the gates put in its place."""
    ask = _weighed(machine, snapshot, ask)
    match gates.on_effect(snapshot, ask.effect, passed):
        case gates.Pass(facts=facts):
            return _within_window(
                machine, snapshot, replace(ask, facts=ask.facts + facts) if facts else ask, passed
            )
        case gates.Hold(call=call, facts=facts):
            return Ask(call, ask.facts + facts)
        case gates.Refuse(answer=answer):
            return _ask_node(machine, snapshot, answer, ask.facts)
        case gates.End(reason=reason, message=message, rule=rule):
            return Stop(reason, (*ask.facts, Exited(reason=reason, message=message, rule=rule)))


def _weighed(machine: Machine, snapshot: Snapshot, ask: Ask) -> Ask:
    """Return a model call with its largest usage, if a limit needs to know."""
    window, call = snapshot.window, ask.effect
    if window is None or window.price is None or not (snapshot.limits or snapshot.shared):
        return ask
    if not isinstance(call, ModelCall) or call.at_limit == "pass":
        return ask
    estimate = context.size(machine, snapshot.state.terms, _told(machine, snapshot, window, ask), call)
    estimate = math.ceil(estimate * MARGIN)
    reply = gates.reply_within(snapshot, estimate, window.price, call.room)
    return replace(ask, effect=call.model_copy(update={"input_tokens": estimate, "reply_tokens": reply}))


def _told(machine: Machine, snapshot: Snapshot, window: Window, ask: Ask) -> Window:
    """Return the window with the blocks of the ask's own facts."""
    told = blocks_of(machine, ask.facts, snapshot.head + 1)
    return replace(window, blocks=[*window.blocks, *told]) if told else window


def _within_window(machine: Machine, snapshot: Snapshot, ask: Ask, passed: tuple[str, ...]) -> Ask:
    """Return `ask`, or the compaction that must come before it. The ask's own facts are told first."""
    window = snapshot.window
    if window is None or not isinstance(ask.effect, ModelCall):
        return ask
    window = _told(machine, snapshot, window, ask)
    match context.fit(machine, snapshot.state.terms, window, ask.effect, snapshot.head):
        case Compaction() as compaction:
            return replace(ask, effect=compaction.model_copy(update={"passed": passed}))
        case call, facts:
            return replace(ask, effect=call, facts=ask.facts + facts)


def _compacted(machine: Machine, snapshot: Snapshot, compaction: Compaction, answer: Answer | None) -> Move:
    """Put a summary in place of older blocks; without a usable one everything stays as it is."""
    window = snapshot.window
    match answer:
        case Summarised() if window is not None and not context.still_apt(window, compaction):
            return _through(machine, snapshot, Ask(compaction.holds), compaction.passed)
        case Summarised(ended=ended) if ended != "stop":
            why = unended(answer)
        case Summarised(unfit=why) if why:
            pass
        case Summarised(text=text) if text.strip() and window is not None:
            terms = snapshot.state.terms
            made = context.summarised(machine, terms, window, compaction, text.strip(), snapshot.head)
            if made.tokens_after < made.tokens_before:
                return Compact((made, *machine.summary_kept(made.text)))
            why = "The summary was not shorter than the steps it replaces."
        case Failed(message=why) | ContextOverflowed(message=why):
            pass
        case _:
            why = "The summary was empty."
    notice = Notice(code="compaction_failed", message=f"{why} The context is unchanged.".lstrip())
    through = snapshot._replace(window=None)
    return _through(machine, through, Ask(compaction.holds, (notice,)), compaction.passed)


def _heard(machine: Machine, snapshot: Snapshot, call: HumanCall, said: HumanSaid) -> Move:
    """Return the next move after a person's decision."""
    match said.verdict, call.about:
        case "abort", _:
            return stop("aborted", said.message)
        case "rollback", _:
            if said.to_step is None:
                raise Fatal("A rollback needs a step to roll back to.")
            return rewind(machine, snapshot, said.to_step, said.by, said.message)
        case "reject", "plan":
            return stop("aborted", said.message)
        case "edit", "plan" if machine.plan is not None:
            changed = machine.plan.changed(said.args or {})
            if isinstance(changed, str):
                changed = Notice(code="plan_unfit", message=f"The changed plan can't be used: {changed}")
            return _enter(machine, snapshot, (changed,))
        case "top_up", "limit":
            return _release(machine, snapshot, call, call.holds, gates.answered_by(call, said))
        case "finish", "limit":
            closing = ModelCall(role="fallback", reply="text", tail=FINISH, at_limit="pass")
            return Ask(closing.model_copy(update={"closes": _limit_reason(call)}))
        case _, "every_n_steps" | "plan" | "manual":
            if call.holds is None:
                return _enter(machine, snapshot)
            return _release(machine, snapshot, call, call.holds, gates.answered_by(call, said))
        case _, "tool_call" | "may_have_happened":
            return _heard_of_call(machine, snapshot, call, said)
        case "respond", "question" if call.holds is not None:
            told = {"answer": said.message, "by": said.by}
            return _ask_node(machine, snapshot, ToolReturned(value=told, ran=False))
    return _ask_node(machine, snapshot, said)


def _heard_of_call(machine: Machine, snapshot: Snapshot, call: HumanCall, said: HumanSaid) -> Move:
    """Apply a verdict on a held call: release, change, refuse, or answer for it."""
    ran = call.about == "may_have_happened"
    match said.verdict:
        case "approve":
            allowed = outward.newly_allowed(call, said)
            return _release(machine, snapshot, call, call.holds, gates.answered_by(call, said), allowed)
        case "edit" if isinstance(call.holds, ToolCall | ChildRun):
            return _edited(machine, snapshot, call, call.holds, said)
        case "respond":
            answer: Answer = ToolReturned(value=said.message, ran=ran)
        case "reject":
            answer = Failed(blame="recoverable", message=said.message or "Refused by a person.", ran=ran)
        case _:
            raise Fatal(f"{said.verdict} is not an answer to a question of kind {call.about}.")
    return _ask_node(machine, snapshot, answer)


def _edited(
    machine: Machine, snapshot: Snapshot, call: HumanCall, held: ToolCall | ChildRun, said: HumanSaid
) -> Move:
    """Return the held call with new arguments: checked as any call, then through the other gates."""
    spec = snapshot.state.terms.tools.get(held.tool)
    args = said.args or {}
    notices: tuple[Fact, ...] = ()
    if spec is not None:
        checked = check_arguments(spec, args)
        args = checked.args
        notices = tuple(
            Notice(code=fault.code, message=fault.message, param=fault.param)
            for fault in (*checked.faults, *checked.drops)
        )
        if checked.faults:
            why = " ".join(fault.message for fault in checked.faults)
            refused = Failed(
                blame="recoverable", message=f"The call that a person wrote can't run. {why}", ran=False
            )
            return _ask_node(machine, snapshot, refused, notices)
    told = CallEdited(tool=held.tool, args=args, by=said.by, message=said.message, script=held.script)
    changed: dict[str, Any] = {"goal": str(args.get("goal", ""))}
    if isinstance(held, ToolCall):
        changed = {"args": args, "resumes": 0}
        changed |= {"effects": spec.effects_with(args)} if spec and spec.reads_if else {}
    passed = gates.answered_by(call, said)
    facts = (*notices, told, *outward.newly_allowed(call, said))
    return _release(machine, snapshot, call, held.model_copy(update=changed), passed, facts)


def _release(
    machine: Machine,
    snapshot: Snapshot,
    call: HumanCall,
    effect: Effect | None,
    passed: tuple[str, ...],
    facts: tuple[Fact, ...] = (),
) -> Move:
    """Ask for the held effect, through the gates again."""
    if effect is None:
        raise Fatal(f"The question of kind {call.about} holds no call.")
    state = machine.fold(snapshot.state, facts)
    return _through(machine, snapshot._replace(state=state), Ask(effect, facts), passed)


def _limit_reason(call: HumanCall) -> str:
    return next(reason for name, reason in LIMIT_REASONS.items() if name == call.limit)


def rewind(machine: Machine, snapshot: Snapshot, to: int, by: str = "", message: str = "") -> Rewind:
    """Return the move back to the state after step `to`."""
    back = Rewound(
        from_seq=snapshot.head, to_seq=to, kept=machine.kept(snapshot.state), by=by, message=message
    )
    said = HumanSaid(verdict="rollback", to_step=to, message=message, by=by)
    return Rewind(to, (back, *machine.feedback(None, said)))


def looked_at_again(machine: Machine, snapshot: Snapshot, passed: tuple[str, ...]) -> Move:
    """Return the next move for a call asked under other rules and not made yet: the gates look again.

    `passed` names the gates answered for it. If all let it pass it is asked as it was.
    """
    pending = snapshot.pending
    assert pending is not None and isinstance(pending.effect, ToolCall)
    call = pending.effect
    calls = {**snapshot.calls, call.fingerprint: snapshot.calls.get(call.fingerprint, 1) - 1}
    again = Ask(call, attempt=pending.attempt)
    move = _through(machine, snapshot._replace(pending=None, calls=calls), again, passed)
    if not isinstance(move, Ask) or not isinstance(move.effect, HumanCall):
        return move
    asks = move.effect
    if asks.about == "tool_call" and not gates.asks_after_restore(asks):
        return replace(move, effect=asks.model_copy(update={"why": f"{RULES_CHANGED} {asks.why}"}))
    return move


def asked_anew(machine: Machine, snapshot: Snapshot) -> Move:
    """Return the next move for a pending model call that the limits leave no room for, or that has another model now.

    The gates look again: a shorter reply, a question, or the end. What was answered for another model holds no more.
    """
    assert snapshot.pending is not None and isinstance(snapshot.pending.effect, ModelCall)
    call = snapshot.pending.effect
    passed = () if call.switched else (gates.ALL,)
    ask = Ask(call.model_copy(update={"switched": False}))
    return _through(machine, snapshot._replace(pending=None), ask, passed)


def _feedback(machine: Machine, snapshot: Snapshot, answer: Answer | None) -> tuple[Fact, ...]:
    """Return the part of a person's words kept by the machine's state."""
    call = snapshot.pending.effect if snapshot.pending else None
    return (
        machine.feedback(call, answer)
        if isinstance(call, HumanCall) and isinstance(answer, HumanSaid)
        else ()
    )


def advance(machine: Machine, snapshot: Snapshot, move: Move, totals: Totals) -> Snapshot:
    """Return the run after a move other than a rewind, which needs the log."""
    state = machine.fold(snapshot.state, move.facts)
    seq = snapshot.head + 1
    match move:
        case Ask(effect=effect, attempt=attempt):
            pending = Pending(effect, seq, attempt)
            return snapshot._replace(state=state, head=seq, pending=pending, held=None, totals=totals)
        case Compact():
            held = held_by(snapshot.pending.effect if snapshot.pending else None)
            return snapshot._replace(state=state, head=seq, pending=None, held=held, totals=totals)
        case Go(edge=edge):
            node = machine.targets[(snapshot.node, edge)]
            return snapshot._replace(node=node, state=state, head=seq, pending=None, totals=totals)
        case Stop():
            return snapshot._replace(node=END, state=state, head=seq, pending=None, held=None, totals=totals)
    raise TypeError("a rewind is advanced by the log, which knows the state it goes back to")


def held_by(effect: Effect | None) -> Held | None:
    """Return the call behind a compaction."""
    return Held(effect.holds, effect.passed) if isinstance(effect, Compaction) else None


def rewound(machine: Machine, snapshot: Snapshot, move: Rewind, node: str, state: State) -> Snapshot:
    """Return the run after a rewind to a step that left it at `node` with `state`."""
    state = machine.fold(state, move.facts)
    return snapshot._replace(node=node, state=state, head=snapshot.head + 1, pending=None, held=None)


def status_of(machine: Machine, state: State) -> str:
    """Return the final status for an exit reason (docs/machines.md, "What all machines share")."""
    match state.exit_reason:
        case "fatal_error" | "tool_error" | "model_error":
            return "failed"
        case "aborted":
            return "cancelled"
    return "succeeded" if machine.succeeded(state) else "stopped"
