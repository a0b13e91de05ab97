"""Handle a model call to an unavailable or refusing server: wait, then use the fallback, else ask a person."""

from __future__ import annotations

from runs.engine import gates
from runs.engine.effects import Effect, Failed, HumanCall, ModelCall
from runs.engine.facts import ModelChanged, Notice
from runs.engine.moves import Ask
from runs.engine.snapshot import Pending, Snapshot

ATTEMPTS = 3
"""Attempts in all at a call with a passing failure."""

LONGEST_WAIT_S = 60.0
"""Longest wait in seconds, if the server asks for none."""

AFRESH = {"waited_s": 0.0, "waits": 0}
"""The values of a call that has not waited yet."""

SWITCH_S = 0.1
"""Seconds until the fallback is called: another slice of the run reaches it."""


def is_patient(effect: Effect, failed: Failed) -> bool:
    """Return True if the failure is waited out, in place of the usual few attempts."""
    return isinstance(effect, ModelCall) and failed.patience_s > 0


def tries(pending: Pending) -> int:
    """Return the number of the attempt, without those at an unavailable server."""
    return pending.attempt - (pending.effect.waits if isinstance(pending.effect, ModelCall) else 0)


def waits_out(snapshot: Snapshot, pending: Pending, call: ModelCall, failed: Failed) -> Ask | None:
    """Return the same call after a wait or to the fallback, or the question once patience is over; None for neither."""
    if failed.asks:
        return None if call.closes else _question(snapshot, call, failed)
    if not failed.patience_s:
        return _switched(call, failed) if failed.fallback and tries(pending) >= ATTEMPTS else None
    wait = max(failed.wait_s, min(2.0 ** min(call.waits, 10), LONGEST_WAIT_S))
    waited = round(call.waited_s + wait, 3)
    if waited > failed.patience_s:
        if failed.fallback:
            return _switched(call, failed)
        return None if call.closes else _question(snapshot, call, failed)
    message = f"{failed.message} Next try in {wait:g} s, then up to {failed.patience_s - waited:g} s more."
    again = call.model_copy(update={"waited_s": waited, "waits": call.waits + 1})
    return Ask(again, (Notice(code="retried", message=message),), wait, pending.attempt + 1)


def _switched(call: ModelCall, failed: Failed) -> Ask:
    """Ask the fallback, which has all its own patience. The gates look again first: its prices differ."""
    changed = ModelChanged(before=failed.model, model=failed.fallback, why=failed.message)
    return Ask(call.model_copy(update={**AFRESH, "switched": True}), (changed,), SWITCH_S)


def _question(snapshot: Snapshot, call: ModelCall, failed: Failed) -> Ask:
    """Ask a person, who may mend the profile first. A call resumed by them has its whole patience again."""
    mended = call.model_copy(update=AFRESH)
    question = HumanCall(
        about="manual",
        title="The model can't be called. Try again?",
        why=f"{failed.message} Try again when that is fixed, or use another model.",
        holds=mended,
        passed=gates.in_force(snapshot),
        model=failed.model,
    )
    return Ask(question)
