"""The second look before an approval: one rule for the card, and for answers given in advance."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from runs.engine.effects import LET_PASS
from runs.models import Interrupt
from runs.reading.arguments import ArgumentField, fields_of
from runs.reading.hidden_text import holds_unseen
from runs.reading.restored import doubt_of

_SECOND_LOOK = "Read this call, then tick the box to approve it."
_READ_ALL = "Read all of it, then tick the box to approve it."
_LOOK_WHETHER = "Check whether this was already done, then tick the box to approve it."
_LOOK_FIRST = "Check whether it happened, then tick the box to run it again."


def second_look(interrupt: Interrupt, verdict: str, args: Any) -> str:
    """Return the points to check before approving: doubts after a restore, a risk, hidden text, or too long an
    argument.

    `args` are those of an edit, else None. Empty if there is nothing to check.
    """
    if not lets_act(interrupt, verdict):
        return ""
    uncertain = interrupt.kind == "may_have_happened"
    if doubt_of(interrupt):
        return _LOOK_FIRST if uncertain else _LOOK_WHETHER
    shown = interrupt.args if verdict != "edit" else args if isinstance(args, dict) else {}
    fields = fields_of(interrupt.schema, shown)
    risky = verdict in LET_PASS and is_risky(interrupt)
    if uncertain and (risky or hides(interrupt, fields) or any(field.long for field in fields)):
        return _LOOK_FIRST
    if any(field.long for field in fields):
        return _READ_ALL
    return _SECOND_LOOK if risky or hides(interrupt, fields) else ""


def hides(interrupt: Interrupt, fields: Iterable[ArgumentField]) -> bool:
    """Return True if something hides in the call: in its tool's name, in an argument, or in an argument's name."""
    return holds_unseen(interrupt.tool) or any(
        field.hidden or (field.shape == "json" and _hides_in_json(field.value)) for field in fields
    )


def _hides_in_json(text: str) -> bool:
    """Return True if something hides in JSON as an escape."""
    try:
        return "\\" in text and holds_unseen(json.loads(text))
    except (ValueError, RecursionError):
        return False


def lets_act(interrupt: Interrupt, verdict: str) -> bool:
    """Return True if the verdict releases the held call, or lets the run act."""
    return verdict in LET_PASS or (verdict == "top_up" and interrupt.holds_a_deed)


def is_risky(interrupt: Interrupt) -> bool:
    """Return True if the held call is risky."""
    return interrupt.risk == "high" or interrupt.effects == "execute"
