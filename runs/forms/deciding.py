"""Read a decision from the card's form and take it; the pages and the admin send the same form.

A number stays a number; an approval with changes is an edit. A decision that can't be taken comes back on the card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from runs import actions
from runs.engine.effects import LET_PASS
from runs.engine.settings import LIMIT_NAMES, WHOLE_LIMITS
from runs.models import Interrupt
from runs.reading.arguments import ReadArguments, read_arguments
from runs.reading.cards import Card, card_of
from runs.reading.looking import second_look
from runs.reading.questions import answer_field, questions_of
from runs.reading.rollback import Again, staying
from runs.rights import Person


@dataclass(frozen=True)
class Wanted:
    """A decision as it was filled in. `errors` name the unreadable fields."""

    verdict: str
    args: dict[str, Any] | None
    message: str
    to_step: int | None
    stays_done: int | None
    """The target step of the confirmed rollback, as of the side effects shown."""
    revision: int | None
    fingerprint: str | None
    errors: dict[str, str]
    read: ReadArguments | None = None
    allow_host: bool = False
    """True if an approval allows the host in question for the rest of the run."""


MOST = 10**12
"""A raise of a limit is less than this."""

MESSAGES = {"reject": "reason", "respond": "answer"}
"""The field that holds a verdict's message; the others share `note`."""


ANOTHER_MODEL = "another_model"
"""The button that resumes with the model chosen beside it."""

UNSEEN = "Your answer names no question. Read the current card and answer again."
LOOK_BACK = "Read what the rollback changes, tick the box and roll back again."


class NotTaken(Exception):
    """The decision was not recorded. `card` is the current question, with the input and its errors."""

    def __init__(self, card: Card, status: int) -> None:
        self.card, self.status = card, status
        super().__init__(" ".join(card.errors.values()))


def take(interrupt: Interrupt, data: Mapping[str, str], *, by: Person, channel: str) -> str:
    """Record the decision in a form and return its verdict. Raise `NotTaken`, or `NotAllowed` if `by` may not."""
    wanted = read_decision(interrupt, data)
    unconfirmed = None
    errors = _not_ready(interrupt, wanted, data)
    if not errors and (unconfirmed := _unconfirmed(interrupt, wanted, by)):
        errors = {"stays_done": LOOK_BACK}
    if errors:
        raise NotTaken(_card_again(interrupt, wanted, data, by, errors, unconfirmed), 422)
    try:
        actions.decide(
            interrupt.pk,
            verdict=wanted.verdict,
            by=by,
            channel=channel,
            args=wanted.args,
            message=wanted.message,
            to_step=wanted.to_step,
            allow_host=wanted.allow_host,
            revision=wanted.revision,
            fingerprint=wanted.fingerprint,
        )
    except (actions.Conflict, actions.NotPossible) as why:
        errors = {"conflict": str(why)}
        raise NotTaken(_card_again(interrupt, wanted, data, by, errors), 409) from None
    except actions.BadDecision as bad:
        errors = {_field_of(bad, wanted.verdict): str(bad)}
        raise NotTaken(_card_again(interrupt, wanted, data, by, errors), 422) from None
    return wanted.verdict


def _not_ready(interrupt: Interrupt, wanted: Wanted, data: Mapping[str, str]) -> dict[str, str]:
    """Return the missing or unreadable parts of the form, by field."""
    if wanted.verdict == "rollback" and wanted.to_step is None:
        return {"to_step": "Choose a step to roll back to."}
    if wanted.revision is None or (interrupt.fingerprint and not wanted.fingerprint):
        return {"verdict": UNSEEN}
    why = second_look(interrupt, wanted.verdict, wanted.args)
    return {"sure": why} if why and "sure" not in data else wanted.errors


def _unconfirmed(interrupt: Interrupt, wanted: Wanted, by: Person) -> Again | None:
    """Return the effects of a rollback that are not confirmed yet for this very step.

    None also if the decision can't be taken anyhow: without the right, or after a change since it was seen.
    """
    as_seen = wanted.revision == interrupt.revision and (wanted.fingerprint or "") == interrupt.fingerprint
    if wanted.verdict != "rollback" or wanted.stays_done == wanted.to_step or not as_seen:
        return None
    return staying(interrupt, wanted.to_step) if actions.may_decide(by, interrupt.run) else None


def _field_of(bad: actions.BadDecision, verdict: str) -> str:
    """Return the form's field that a decision's fault is about."""
    field = bad.field
    if field.startswith("args."):
        name = field.removeprefix("args.")
        if verdict == "resume":
            return "model"
        return f"amount.{name}" if name in LIMIT_NAMES else f"arg.{name}"
    if field == "message" and verdict == "respond":
        return "answer"
    return "to_step" if field == "to_step" else "verdict"


def _card_again(
    interrupt: Interrupt,
    wanted: Wanted,
    data: Mapping[str, str],
    by: Person,
    errors: dict[str, str],
    unconfirmed: Again | None = None,
) -> Card:
    """Return the current card, with the input kept."""
    now = Interrupt.objects.select_related("run", "run__owner", "decision", "decision__by").get(
        pk=interrupt.pk
    )
    shown = card_of(now, by)
    read = wanted.read or (read_arguments(now.schema, now.args, data) if shown.editable else None)
    if read is not None:
        fields = tuple(replace(field, error=errors.get(field.field, field.error)) for field in read.fields)
        shown = replace(shown, fields=fields)
    typed = {name: str(value) for name, value in data.items() if name != "csrfmiddlewaretoken"}
    return replace(shown, typed=typed, errors=errors, staying=unconfirmed)


def read_decision(interrupt: Interrupt, data: Mapping[str, str]) -> Wanted:
    """Return the decision in a form. An approval with changed arguments is an edit, and only then."""
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
    if verdict == ANOTHER_MODEL:
        verdict, args = "resume", {"model": data.get("model", "")}
        errors |= {} if args["model"] else {"model": "Choose a model."}
    back = data if verdict == "rollback" else {}
    message = _text(data, MESSAGES.get(verdict, "note"))
    if verdict == "respond" and interrupt.kind == "question":
        message = _answers(interrupt, data) or message
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


def _text(data: Mapping[str, str], field: str) -> str:
    return data.get(field, "").replace("\r\n", "\n").strip()


def _answers(interrupt: Interrupt, data: Mapping[str, str]) -> str:
    """Return the answers to several questions, each under its question; empty if there is none."""
    questions = questions_of([interrupt])[interrupt.pk]
    given = [_text(data, answer_field(number)) for number in range(1, len(questions) + 1)]
    if not any(given):
        return ""
    pairs = zip(questions, given, strict=True)
    return "\n\n".join(f"{question}\n{answer or '(no answer)'}" for question, answer in pairs)


def approved(interrupt: Interrupt, args: Any) -> tuple[str, Any]:
    """Return the verdict that lets the call run with `args`, and the new ones: an edit only if they differ."""
    same = args == interrupt.args and _same_types(args, interrupt.args)
    return ("approve", None) if same else ("edit", args)


def _same_types(one: Any, other: Any) -> bool:
    """Return True if both have the same JSON: 1, 1.0 and true are equal in Python, but not there."""
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
            errors[f"amount.{name}"] = f"Add at most {MOST - 1:,}."
        elif not number > 0:
            errors[f"amount.{name}"] = "Add a number above 0."
        elif name in WHOLE_LIMITS and number != int(number):
            errors[f"amount.{name}"] = f"Add a whole number of {name}."
        else:
            amounts[name] = int(number) if number == int(number) else number
    if not amounts and not errors:
        errors["amount"] = "Enter the amount to add."
    return amounts


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
