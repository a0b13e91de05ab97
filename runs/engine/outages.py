"""What becomes of a model call whose server is away or wants something of a person: a wait, then a question."""

from __future__ import annotations

from runs.engine import gates
from runs.engine.effects import Effect, Failed, HumanCall, ModelCall
from runs.engine.facts import Notice
from runs.engine.moves import Ask
from runs.engine.snapshot import Pending, Snapshot

LONGEST_WAIT_S = 60.0
"""Seconds to which the waits grow, where the server asks for none."""


def is_patient(effect: Effect, failed: Failed) -> bool:
    """Return whether the failure is waited out, in place of the few attempts that others have."""
    return isinstance(effect, ModelCall) and failed.patience_s > 0


def waits_out(snapshot: Snapshot, pending: Pending, call: ModelCall, failed: Failed) -> Ask | None:
    """Return the same call after a wait, or the question once patience is over; None where neither is wanted."""
    if failed.asks:
        return None if call.closes else _question(snapshot, call, failed)
    if not failed.patience_s:
        return None
    wait = max(failed.wait_s, min(2.0 ** min(pending.attempt - 1, 10), LONGEST_WAIT_S))
    waited = round(call.waited_s + wait, 3)
    if waited > failed.patience_s:
        return None if call.closes else _question(snapshot, call, failed)
    message = f"{failed.message} Next try in {wait:g} s, then up to {failed.patience_s - waited:g} s more."
    again = call.model_copy(update={"waited_s": waited})
    return Ask(again, (Notice(code="retried", message=message),), wait, pending.attempt + 1)


def _question(snapshot: Snapshot, call: ModelCall, failed: Failed) -> Ask:
    """Ask a person, who may mend the profile first. A call that is let go on has all its patience again."""
    mended = call.model_copy(update={"waited_s": 0.0})
    question = HumanCall(
        about="manual",
        title="The model can't be called. Try again?",
        why=f"{failed.message} Continue when that is fixed. To use another model, fork this run.",
        holds=mended,
        passed=gates.in_force(snapshot),
    )
    return Ask(question)
