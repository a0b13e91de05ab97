"""Questions that a worker opens: a call without a known outcome, a lapsed approval, workers lost on a run."""

from __future__ import annotations

from typing import Literal

from runs.engine import gates
from runs.engine.effects import ChildRun, Compaction, HumanCall, ModelCall, ToolCall
from runs.engine.facts import ApprovalLapsed
from runs.engine.moves import Ask
from runs.engine.presentation import plural
from runs.engine.snapshot import Snapshot

Known = Literal["worker lost", "restored", "cut off", "tool can't tell", "tried before"]
"""The known cause of a call's lost answer."""

_KNOWN: dict[Known, str] = {
    "worker lost": "The worker stopped mid-call; the outcome is unknown.",
    "restored": "This site was restored from a backup made during the call; the outcome is unknown.",
    "cut off": "The call was cut off without an answer; the outcome is unknown.",
    "tool can't tell": "{tool} can't tell whether the call happened.",
    "tried before": "{tool} was tried before and may have happened.",
}


def uncertain(snapshot: Snapshot, *known: Known) -> HumanCall:
    """Ask a person about a call with a lost answer, for the reasons `known`.

    An approval answers for every present gate, and for no later one.
    """
    assert snapshot.pending is not None and isinstance(snapshot.pending.effect, ToolCall)
    call = snapshot.pending.effect
    why = " ".join([*(_KNOWN[one].format(tool=call.tool) for one in known), "A second call may cause harm."])
    title, passed = f"Did {call.tool} happen?", gates.in_force(snapshot)
    return HumanCall(about="may_have_happened", title=title, why=why, holds=call, passed=passed)


def opened_anew(snapshot: Snapshot, question: HumanCall, lapsed: ApprovalLapsed) -> Ask:
    """Return the question with the lapsed answer again, about the call as it would be made now."""
    waits = snapshot.pending.effect if snapshot.pending else None
    why = f"{_lapsed_because(lapsed.verdict, lapsed.by, lapsed.channel)} {question.why}".strip()
    held = waits if isinstance(waits, ToolCall) else question.holds
    return Ask(question.model_copy(update={"why": why, "holds": held}), (lapsed,))


def _lapsed_because(verdict: str, by: str, channel: str) -> str:
    """Return why an answered question opens again."""
    did = {"resume": "Resumed", "top_up": "The limit was raised"}.get(verdict, "Approved")
    if channel == "settings":
        return f"{did} by an answer given at launch, which may not answer this."
    return f"{did} by {by}, who may no longer decide."


def lost_in_a_row(times: int, faults: int) -> str:
    """Return how many workers in a row left a run without a move; `faults` of them met a fault of our own code."""
    if not faults:
        return f"{times} workers in a row stopped while they drove this run."
    return f"{plural(times - faults, 'worker')} stopped and {faults} met a fault while they drove this run."


def lost_too_often(snapshot: Snapshot, times: int, faults: int) -> Ask:
    """Ask a person whether a run goes on after `times` workers in a row were lost on it, or met one of the `faults`."""
    pending = snapshot.pending
    if pending is not None and isinstance(pending.effect, ToolCall) and not pending.effect.repeatable:
        return Ask(uncertain(snapshot, "worker lost").model_copy(update={"lost": times, "faults": faults}))
    match pending.effect if pending else None:
        case Compaction(holds=call, passed=passed):
            holds: ModelCall | ToolCall | ChildRun | None = call
        case ModelCall() | ToolCall() | ChildRun() as call:
            holds, passed = call, gates.in_force(snapshot)
        case _:
            holds, passed = None, ()
    title = f"{lost_in_a_row(times, faults)} Try again?"
    why = f"Each stopped before it could commit a step at {snapshot.node}. Check the worker's log first."
    question = HumanCall(about="manual", title=title, why=why, holds=holds, passed=passed)
    return Ask(question.model_copy(update={"lost": times, "faults": faults}))
