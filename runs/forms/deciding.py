"""A decision, read from the card's form: a number stays a number, an approval with changes is an edit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.engine.effects import LET_PASS
from runs.engine.settings import LIMIT_NAMES, WHOLE_LIMITS
from runs.models import Interrupt
from runs.reading.arguments import ReadArguments, read_arguments


@dataclass(frozen=True)
class Wanted:
    """A decision as it was filled in. `errors` say, field by field, what can't be read."""

    verdict: str
    args: dict[str, Any] | None
    message: str
    to_step: int | None
    stays_done: int | None
    """The row whose way back was confirmed, in sight of what stays done."""
    revision: int | None
    fingerprint: str | None
    errors: dict[str, str]
    read: ReadArguments | None = None
    allow_host: bool = False
    """Whether an approval allows the host that was asked about for the rest of the run."""


MOST = 10**12
"""What is added to a limit is less than this."""

MESSAGES = {"reject": "reason", "respond": "answer"}
"""The field that holds a verdict's message; the others share `note`."""


def read_decision(interrupt: Interrupt, data: Mapping[str, str]) -> Wanted:
    """The decision in a form. An approval with changed arguments is an edit, and only then."""
    verdict = data.get("verdict", "")
    errors: dict[str, str] = {}
    args: dict[str, Any] | None = None
    read = None
    if verdict in ("approve", "edit") and "edit" in interrupt.verdicts:
        read = read_arguments(interrupt.schema, interrupt.args, data)
        errors |= {field.field: field.error for field in read.fields if field.error}
        verdict, args = approved(interrupt, read.args)
    if verdict == "top_up":
        args = _amounts(data, errors)
    back = data if verdict == "rollback" else {}
    message = data.get(MESSAGES.get(verdict, "note"), "").replace("\r\n", "\n").strip()
    return Wanted(
        verdict=verdict,
        args=args,
        message=message,
        to_step=_number(back.get("to_step", "")),
        stays_done=_number(back.get("stays_done", "")),
        revision=_number(data.get("revision", "")),
        fingerprint=data.get("fingerprint") or None,
        errors=errors,
        read=read,
        allow_host="allow_host" in data and verdict in LET_PASS,
    )


def approved(interrupt: Interrupt, args: Any) -> tuple[str, Any]:
    """The verdict of who lets the call run with `args`, and the new ones: an edit where they are others, only then."""
    same = args == interrupt.args and _same_types(args, interrupt.args)
    return ("approve", None) if same else ("edit", args)


def _same_types(one: Any, other: Any) -> bool:
    """1, 1.0 and true are equal in Python, and not the same in JSON."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _amounts(data: Mapping[str, str], errors: dict[str, str]) -> dict[str, Any]:
    amounts: dict[str, Any] = {}
    for name in LIMIT_NAMES:
        text = data.get(f"amount.{name}", "").strip()
        if not text:
            continue
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if number >= MOST:
            errors[f"amount.{name}"] = f"Add less: at most {MOST - 1:,}."
        elif not number > 0:
            errors[f"amount.{name}"] = "Add a number above 0."
        elif name in WHOLE_LIMITS and number != int(number):
            errors[f"amount.{name}"] = f"Add a whole number of {name}."
        else:
            amounts[name] = int(number) if number == int(number) else number
    if not amounts and not errors:
        errors["amount"] = "Say how much to add."
    return amounts


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
