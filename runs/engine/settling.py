"""Charge an answer, and say what it means in every machine: it reaches a node, is asked for again, or ends the run."""

from __future__ import annotations

from typing import NamedTuple

from runs.engine.effects import (
    Answer,
    ChildFinished,
    ChildRun,
    ContextOverflowed,
    Effect,
    Failed,
    HumanCall,
    HumanSaid,
    ModelCall,
    ModelReplied,
    Summarised,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.facts import FOUND_OUT, Exited, Fact, Notice, Spent
from runs.engine.machine import Machine
from runs.engine.moves import Ask, Move, Stop
from runs.engine.outages import ATTEMPTS, is_patient, tries, waits_out
from runs.engine.reasoning import heard
from runs.engine.snapshot import Pending, Snapshot, Totals
from runs.engine.unended import unended, unended_for_good, unended_told

DELAYS_S = (1.0, 2.0)
"""Seconds before the second and the third attempt."""

MORE_ROOM = 2
"""Factor on a reply's usual length after one cut off for its length."""


class Decision(NamedTuple):
    """The next move, and the run's totals once the answer is charged."""

    move: Move
    totals: Totals


class Ready(NamedTuple):
    """An answer that may reach a node, and the totals with it."""

    answer: Answer | None
    totals: Totals


class Again(NamedTuple):
    """A call to ask and pay again, so the gates look at it again; and the totals with it."""

    ask: Ask
    totals: Totals


def settle(machine: Machine, snapshot: Snapshot, answer: Answer | None) -> Move | Decision | Ready | Again:
    """Handle failures: retry later, turn into an answer for the node, or end the run."""
    pending, totals = snapshot.pending, snapshot.totals
    if isinstance(answer, Failed):
        totals = totals.after(answer)
    match pending.effect if pending else None, answer:
        case ModelCall() as call, ModelReplied() as replied if pending and replied.ended != "stop":
            return _unended(snapshot, pending, call, replied)
        case ModelCall() as call, ModelReplied() as replied:
            return Ready(heard(replied, prose=call.reply == "text"), totals.after(replied))
        case ModelCall() as call, ContextOverflowed(message=why):
            if call.sanitize:
                too_long = f"The prompt is too long for the model, even without old results. {why}".strip()
                if call.closes or call.at_limit == "fail":
                    return Ready(Failed(blame="fatal", message=too_long), totals)
                return stop("model_error", too_long)
            notice = Notice(
                code="context_overflow", message="The prompt was too long; old tool results are left out."
            )
            return Ask(call.model_copy(update={"sanitize": True, "room": 1}), (notice,))
        case ModelCall() as call, Failed() as failed if pending and (
            waits := waits_out(snapshot, pending, call, failed)
        ):
            return Decision(waits, totals)
        case effect, Failed(blame="transient", message=why) as failed if (
            effect and pending and tries(pending) < ATTEMPTS and not is_patient(effect, failed)
        ):
            return Decision(_retry(pending, effect, why), totals)
        case ModelCall(closes="") as call, Failed(message=why) if call.at_limit != "fail":
            return Decision(stop("model_error", why), totals)
        case HumanCall(about="may_have_happened"), HumanSaid(verdict="respond" | "reject"):
            return Ready(answer, totals._replace(tool_calls=totals.tool_calls + 1))
        case ToolCall() | ChildRun(), Failed() as failed:
            totals = totals.after_call_failed(failed)
            if failed.blame == "fatal" and snapshot.node not in machine.takes_fatal:
                return Decision(stop("fatal_error", failed.message), totals)
            if failed.blame == "transient":
                failed = failed.model_copy(update={"blame": "recoverable"})
            return Ready(failed, totals)
        case _, Failed():
            return Ready(answer, totals)
    return Ready(answer, totals.after(answer))


def _retry(pending: Pending, effect: Effect, why: str) -> Ask:
    """Return the next attempt at a call after a passing failure, with a delay."""
    number = tries(pending) + 1
    notice = Notice(code="retried", message=f"{why} Attempt {number} of {ATTEMPTS}.".strip())
    return Ask(effect, (notice,), DELAYS_S[number - 2], pending.attempt + 1)


def _unended(
    snapshot: Snapshot, pending: Pending, call: ModelCall, replied: ModelReplied
) -> Decision | Ready | Again:
    """Charge a cut-off reply and ask for it again; it is never read, even if it looks whole.

    Retried after a length once, with more room; after a content filter once; after an error as after any passing
    failure.
    """
    totals = snapshot.totals.after(replied)
    if replied.ended == "error" and tries(pending) < ATTEMPTS:
        return Again(_retry(pending, call, unended(replied)), totals)
    if replied.ended != "error" and not call.cut:
        room = MORE_ROOM if replied.ended == "length" else call.room
        notice = Notice(code=f"reply_{replied.ended}", message=unended_told(replied))
        return Again(Ask(call.model_copy(update={"cut": True, "room": room}), (notice,)), totals)
    why = unended_for_good(replied, limited=_is_limited(snapshot, call))
    if call.closes or call.at_limit == "fail":
        return Ready(Failed(blame="fatal", message=why), totals)
    return Decision(stop("model_error", why), totals)


def _is_limited(snapshot: Snapshot, call: ModelCall) -> bool:
    """Return True if a limit of the run left the reply less room than the model gives."""
    price = snapshot.window.price if snapshot.window else None
    return price is not None and 0 < call.reply_tokens < price.reply_tokens * call.room


def stop(reason: str, message: str) -> Stop:
    """Return the move that ends the run."""
    return Stop(reason, (Exited(reason=reason, message=message),))


def cost_of(answer: Answer | None) -> tuple[Fact, ...]:
    """Return the cost of an answer as a fact; none if it cost nothing."""
    match answer:
        case ModelReplied(usage=usage) | Summarised(usage=usage) | Failed(usage=usage) if usage != Usage():
            return (Spent(**usage.model_dump()),)
        case ChildFinished(cost_usd=cost) if cost:
            return (Spent(cost_usd=cost),)
    return ()


def found_out(snapshot: Snapshot, answer: Answer | None) -> tuple[Fact, ...]:
    """Return the fact that the tool was asked about its call afterwards; none if the call itself was answered."""
    call = snapshot.pending.effect if snapshot.pending else None
    if not (isinstance(call, ToolCall) and isinstance(answer, ToolReturned) and answer.by_asking):
        return ()
    why = f"The outcome of {call.tool} was unknown. The tool was asked and says that the call happened."
    return (Notice(code=FOUND_OUT, message=why),)


def read_less(answer: Answer | None) -> tuple[Fact, ...]:
    """Return the fact that the server read far less than was sent: some cut long prompts without a word."""
    if not isinstance(answer, ModelReplied) or not answer.sent_tokens:
        return ()
    read, sent = answer.usage.input_tokens, answer.sent_tokens
    why = f"The model server read {read:,} tokens of a prompt of about {sent:,}, and left the rest out."
    cure = "Start the server with a longer context, or lower the context length in the model's profile."
    return (Notice(code="read_less", message=f"{why} {cure}"),)
