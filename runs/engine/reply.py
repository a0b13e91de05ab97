"""The one reader of what a model says, for every role and machine: the one object that fits the role.

The kernel has taken the reasoning off before (`reasoning`). A reply that can't be read is refused with place and cause.
See docs/machines.md, "What all machines share".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import ValidationError

from runs.engine.effects import ModelReplied
from runs.engine.facts import Notice
from runs.engine.objects import Fault, Found, Objects, objects_in
from runs.engine.values import MAX_TEXT, Value, clean

Shape = TypeVar("Shape", bound=Value)

ONE_ACTION = "one_action_per_reply"
"""Code of the notice on a reply that held more than one action."""

REST_SHOWN = 4_000
"""Characters of what was not read that the notice keeps."""


class Read(NamedTuple, Generic[Shape]):
    """A reply that was read. `notices` tell the model what else stood there and was not read."""

    reply: Shape
    notices: tuple[Notice, ...] = ()


class Unread(NamedTuple):
    """A reply that can't be read, and why. `found` is its object, where that is of another shape than is wanted."""

    why: str
    notices: tuple[Notice, ...] = ()
    found: dict[str, Any] = {}


def read(
    replied: ModelReplied, shape: type[Shape], harmless: Callable[[Shape], bool]
) -> Read[Shape] | Unread:
    """The one object of the reply that fits `shape`.

    Where several do, the first counts if it is `harmless`: it changes nothing and ends nothing.
    """
    text = replied.text
    if len(text) > MAX_TEXT:
        return Unread(f"The reply is too long: {MAX_TEXT:,} characters are read at most.")
    if not text.strip():
        return Unread("The reply holds only reasoning." if replied.reasoning else "The reply is empty.")
    objects = objects_in(text)
    if objects.fault is not None:
        return Unread(_told(text, objects.fault, objects.fault.at))
    fitting = _fitting(text, objects, shape)
    match fitting:
        case []:
            return Unread(_nothing(text, objects, shape))
        case [one]:
            return _validated(text, one, shape)
    first = _validated(text, fitting[0], shape)
    if isinstance(first, Read) and harmless(first.reply):
        return Read(first.reply, (_one_action(len(fitting), text[fitting[0].end :], first_counts=True),))
    why = f"The reply holds {len(fitting)} actions, and the first is not one that changes nothing. None was taken."
    return Unread(why, (_one_action(len(fitting), text, first_counts=False),))


def _fitting(text: str, objects: Objects, shape: type[Shape]) -> list[Found]:
    """The objects that are meant for the role, by their names: those that can't be read count, too.

    A lone object is taken for the reply whatever it holds, so that the model is told what is wrong with it.
    """
    wanted = _names(shape)
    fitting = [one for one in objects.found if wanted & _names_in(text, one)]
    readable = [one for one in objects.found if one.value is not None]
    return fitting or (readable if len(objects.found) == 1 else [])


def _names(shape: type[Shape]) -> set[str]:
    """The names that tell an object for the role: those that it must have, or, where it need not have any, all."""
    fields = shape.model_fields
    return {name for name, field in fields.items() if field.is_required()} or set(fields)


def _names_in(text: str, one: Found) -> set[str]:
    if one.value is not None:
        return set(one.value)
    return {found[1] for found in _NAMED.finditer(text, one.start, one.end)}


_NAMED = re.compile(r"""["']([A-Za-z_]{1,60})["']\s*:""")


def _validated(text: str, one: Found, shape: type[Shape]) -> Read[Shape] | Unread:
    if one.value is None:
        assert one.fault is not None
        return Unread(_told(text, one.fault, one.start + one.fault.at))
    found = clean(one.value)
    try:
        return Read(shape.model_validate_json(json.dumps(found), strict=True))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the reply"
        return Unread(f"{place}: {first['msg']}.", found=found)


def _nothing(text: str, objects: Objects, shape: type[Shape]) -> str:
    """Why there is nothing for the role in the reply: by its longest object, where that can't be read."""
    if not objects.found:
        return "The reply holds no JSON object."
    longest = max(objects.found, key=lambda one: one.end - one.start)
    if longest.fault is not None:
        return _told(text, longest.fault, longest.start + longest.fault.at)
    wanted = f" with {' and '.join(sorted(_names(shape)))}" if _names(shape) else ""
    return f"The reply holds {len(objects.found)} objects, and one{wanted} was asked for."


def _told(text: str, fault: Fault, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    if fault.stays_open:
        return f"The reply is cut off: {fault.why} that begins at line {line} is never closed."
    return f"The reply is not valid JSON, line {line}, column {at - text.rfind(chr(10), 0, at)}: {fault.why}."


def _one_action(number: int, unread: str, *, first_counts: bool) -> Notice:
    which = "Only the first was read" if first_counts else "None was taken"
    message = f"One action goes with one reply. Your last reply held {number}. {which}; wait for each result."
    rest = unread.strip()
    if len(rest) > REST_SHOWN:
        rest = f"{rest[:REST_SHOWN]}… [{len(rest) - REST_SHOWN} characters more]"
    return Notice(code=ONE_ACTION, message=message, rest=rest)
