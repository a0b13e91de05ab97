"""What is looked at twice before somebody approves it: one rule for the card, and for an answer given beforehand."""

from __future__ import annotations

from typing import Any

from runs.engine.effects import LET_PASS
from runs.models import Interrupt
from runs.reading.restored import doubts_of
from runs.reading.unseen import holds_unseen
from runs.store import holds_a_deed

_SECOND_LOOK = "Look at this call once more, and tick the box to approve it."
_LOOK_WHETHER = "Look whether this was done already, and tick the box to approve it."
_LOOK_FIRST = "Look first whether it has happened, and tick the box to run it again."


def second_look(interrupt: Interrupt, verdict: str, args: Any) -> str:
    """What is to be looked at before approving: what a restore made doubtful, and a call that does much or hides some.

    `args` are those of an edit, else None. Empty where nothing is.
    """
    if not lets_act(interrupt, verdict):
        return ""
    uncertain = interrupt.kind == "may_have_happened"
    if doubts_of([interrupt]):
        return _LOOK_FIRST if uncertain else _LOOK_WHETHER
    hides = holds_unseen(interrupt.args if args is None else args)
    if not (uncertain or interrupt.kind == "tool_call") or not (is_risky(interrupt) or hides):
        return ""
    return _LOOK_FIRST if uncertain else _SECOND_LOOK


def lets_act(interrupt: Interrupt, verdict: str) -> bool:
    """Whether the verdict lets the call go that is held back, or the run act."""
    return verdict in LET_PASS or (verdict == "top_up" and holds_a_deed(interrupt))


def is_risky(interrupt: Interrupt) -> bool:
    """Whether the call that is held does much."""
    return interrupt.risk == "high" or interrupt.effects == "execute"
