"""The one reader of a model's reply, for every role and machine: the one object that fits the role.

The kernel removes the reasoning before (`reasoning`). An unreadable reply is refused with place and cause. See
docs/machines.md, "What all machines share".
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
"""Code of the notice on a reply with more than one action."""

REST_SHOWN = 4_000
"""Most unread characters kept in the notice."""


class Read(NamedTuple, Generic[Shape]):
    """A read reply. `notices` tell the model about its unread parts."""

    reply: Shape
    notices: tuple[Notice, ...] = ()


class Unread(NamedTuple):
    """Why a reply can't be read. `found` is its object, if of the wrong shape."""

    why: str
    notices: tuple[Notice, ...] = ()
    found: dict[str, Any] = {}


def read(
    replied: ModelReplied, shape: type[Shape], harmless: Callable[[Shape], bool]
) -> Read[Shape] | Unread:
    """Return the one object of the reply that fits `shape`.

    If several do, the first counts if it is `harmless`: it changes nothing and ends nothing.
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
    """Return the objects meant for the role, by their names; unreadable ones count, too.

    A lone object is taken for the reply whatever it holds, so the model learns its fault.
    """
    wanted = _names(shape)
    fitting = [one for one in objects.found if wanted & _names_in(text, one)]
    readable = [one for one in objects.found if one.value is not None]
    return fitting or (readable if len(objects.found) == 1 else [])


def _names(shape: type[Shape]) -> set[str]:
    """Return the names that mark an object for the role: the required ones, or all if none is required."""
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
    """Return why the reply has nothing for the role: by its longest object, if that can't be read."""
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
