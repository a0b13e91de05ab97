"""A control state as values for a person to set, and those of them that follow from the settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from runs.engine.machine import Machine, State
from runs.engine.settings import MOST, MOST_ROUNDS, sentence_of
from runs.engine.values import Value

KEPT_BY_GATES = ("interrupts_asked", "data_read", "hosts_allowed", "script_call")
"""Values that gates and kernel decide by; only the run's own facts write them."""

WRITTEN_AT_THE_END = ("exit_reason", "answer", "answer_source")
"""Values written only at the end of a run."""


def control_values(machine: Machine) -> tuple[str, ...]:
    """Return the names of the values that may be set, in the order of the machine's declaration."""
    withheld = ("terms", *WRITTEN_AT_THE_END, *KEPT_BY_GATES)
    return tuple(name for name in machine.state.model_fields if name not in withheld)


@dataclass(frozen=True, slots=True)
class Checked:
    """A further check of a control value that a person sets, beside its type.

    It returns a fault of the whole state, in words without a full stop; nothing if there is none. The fold never
    checks: a log with such a value stays readable.
    """

    flaw: Callable[[Any], str]


def refused(before: State, after: State) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the faulty values in `after`, each with a sentence. Faults already in `before` are not the person's."""
    known = dict(_numbers(State, before, ()))
    for place, number in _numbers(State, after, ()):
        most = MOST_ROUNDS if isinstance(number, int) else MOST
        if number != known.get(place) and not 0 <= number <= most:
            what = "a whole number" if isinstance(number, int) else "a number"
            yield place, f"This must be {what} from 0 to {most:,.0f}, not {str(number)[:80]}."
    for name, field in type(after).model_fields.items():
        for check in (one for one in field.metadata if isinstance(one, Checked)):
            if (why := check.flaw(after)) and why != check.flaw(before):
                yield (name,), sentence_of(why)


def taken_for_another(
    given: Any, taken: Any, place: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each value that was given as another type: true for 1, "5" for 5. Each with a sentence."""
    match given, taken:
        case dict(), dict():
            for key in given.keys() & taken.keys():
                yield from taken_for_another(given[key], taken[key], (*place, str(key)))
        case list(), list():
            for index, (one, other) in enumerate(zip(given, taken, strict=False)):
                yield from taken_for_another(one, other, (*place, str(index)))
        case bool() | int() | float() | str(), bool() | int() | float():
            if isinstance(given, str) or isinstance(given, bool) != isinstance(taken, bool):
                what = {bool: "true or false", int: "a whole number"}.get(type(taken), "a number")
                yield place, f"This must be {what}, not {json.dumps(given)[:80]}."


def _numbers(kind: Any, value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int | float]]:
    """Yield the numbers that the types declare, each with its place; a tool's arguments are no numbers of the state."""
    if kind is Any:
        return
    match value:
        case bool():
            return
        case int() | float():
            yield place, value
        case Value():
            for name, field in type(value).model_fields.items():
                if not field.exclude:
                    yield from _numbers(field.annotation, getattr(value, name), (*place, field.alias or name))
        case dict():
            for key, item in value.items():
                yield from _numbers(_of_items(kind, dict), item, (*place, str(key)))
        case tuple() | list():
            for index, item in enumerate(value):
                yield from _numbers(_of_items(kind, type(value)), item, (*place, str(index)))


def _of_items(kind: Any, container: type) -> Any:
    """Return the type of a container's items, also if it is one of several types."""
    for one in (kind, *get_args(kind)):
        if get_origin(one) is container:
            return get_args(one)[1 if container is dict else 0]
    return Any


def carried(before: dict[str, Any], after: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """Return `now`, with values untouched since the old settings opened them set as the new settings open them.

    So a larger budget counts at once, and everything used or made since stays.
    """
    found = {}
    for name, opened in after.items():
        value = _merged(before.get(name), opened, now.get(name))
        if value != now.get(name):
            found[name] = value
    return found


def _merged(before: Any, after: Any, now: Any) -> Any:
    if before == after:
        return now
    if now == before:
        return after
    if isinstance(before, dict) and isinstance(after, dict) and isinstance(now, dict):
        names = [name for name in {**now, **after} if name in now or name not in before]
        merged = {
            name: _merged(before.get(name), after.get(name, before.get(name)), now.get(name))
            for name in names
        }
        return {name: value for name, value in merged.items() if name in now or name in after}
    return now
