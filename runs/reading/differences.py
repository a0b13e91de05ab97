"""The differences of two steps, or two launches: value by value, under names for readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from runs.engine.values import canonical
from runs.reading import words
from runs.reading.outlines import Data, wanted_call
from runs.reading.speaking import reads_of

LABELS = {"react.notice": "note"}
"""Names for a fact's values if the last part of its kind would not do."""


@dataclass(frozen=True)
class Difference:
    """A differing value; MISSING on the side that has none."""

    name: str
    left: Any
    right: Any


class Where(NamedTuple):
    """A value's unique place in a step, whatever the value is called."""

    path: tuple[str, ...]
    name: str
    longer: str
    """Its name if another value of the steps has the short one."""


Leaf = tuple[Where, Any]


class _Missing:
    """Stands for a value that a run lacks."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def differences_of(left: Data, right: Data, machine: str = "") -> list[Difference]:
    """Return the differing values of two steps of `machine` (or two launches), inside objects too.

    Arguments and results of two different tools count as one value each.
    """
    whole = _tool_in(left, machine) != _tool_in(right, machine)
    found = _differing(dict(_leaves(left, machine, whole)), dict(_leaves(right, machine, whole)))
    # Values without a name for readers (the order of facts, the code of a notice) are still differences.
    return found or _differing(dict(_inside(left, (), "")), dict(_inside(right, (), "")))


def _differing(ours: dict[Where, Any], theirs: dict[Where, Any]) -> list[Difference]:
    places = [*ours, *(where for where in theirs if where not in ours)]
    times = Counter(where.name for where in places)
    found = []
    for where in places:
        left, right = ours.get(where, MISSING), theirs.get(where, MISSING)
        if not _is_same(left, right):
            name = where.name if times[where.name] == 1 else where.longer
            found.append(Difference(name, left, right))
    return found


def _is_same(one: Any, other: Any) -> bool:
    """Return True if both are equal and of the same type: 1 is neither 1.0 nor true."""
    if one is MISSING or other is MISSING:
        return one is other
    return canonical(one) == canonical(other)


def _tool_in(content: Data, machine: str) -> str:
    """Return the tool that a step calls, or wants."""
    call = content.get("call") or {}
    return str(call.get("tool") or wanted_call(machine, content.get("facts", [])).tool)


def _leaves(content: Data, machine: str, whole: bool) -> Iterator[Leaf]:  # noqa: FBT001
    for name, value in content.items():
        match name:
            case "call":
                yield Where((name, "tool"), "tool", "tool"), value["tool"]
                yield from _arguments(value["args"], (name, "args"), "", whole)
            case "facts":
                yield from _facts(value, machine, whole)
            case "to":
                yield Where((name,), "next state", "next state"), value
            case _:
                yield from _inside(value, (name,), name)


def _facts(facts: list[Data], machine: str, whole: bool) -> Iterator[Leaf]:  # noqa: FBT001
    """Yield each fact's values under a name for readers; the second of a kind is numbered."""
    seen: dict[str, int] = {}
    replies = {kind for kind, reads in reads_of(machine).items() if reads.reply}
    for fact in facts:
        kind = fact["kind"]
        seen[kind] = seen.get(kind, 0) + 1
        number = f" {seen[kind]}" if seen[kind] > 1 else ""
        plain = "" if kind in replies else LABELS.get(kind, words.spoken(kind.rpartition(".")[2]))
        label = f"{plain}{number}".strip()
        path, longer = ("facts", kind, str(seen[kind])), f"{kind}{number}"
        rest = {name: value for name, value in fact.items() if name != "kind"}
        match kind:
            case _ if kind in replies:
                yield from _decision(rest, path, label, whole)
            case "react.tool.result" if not number:
                yield from _result(rest, path, whole)
            case "react.notice":
                yield Where((*path, "message"), label, longer), fact["message"]
            case _ if not rest:
                yield Where(path, label, longer), True
            case _:
                for name, value in rest.items():
                    said = label if name in ("text", "message") else _joined(label, name)
                    yield from _inside(value, (*path, name), said, _joined(longer, name))


def _decision(fact: Data, path: tuple[str, ...], label: str, whole: bool) -> Iterator[Leaf]:  # noqa: FBT001
    for name, value in fact.items():
        if name == "args" or (whole and name == "tool_call"):
            yield from _arguments(value, (*path, name), label, whole)
        else:
            yield from _inside(value, (*path, name), _joined(label, name))


def _arguments(args: Any, path: tuple[str, ...], label: str, whole: bool) -> Iterator[Leaf]:  # noqa: FBT001
    """Yield arguments by their bare names, or all of them as one value; nothing for a call without any."""
    longer = _joined(label, "arguments")
    if whole:
        yield Where(path, "arguments", longer), args
    elif args != {}:
        yield from _inside(args, path, label, longer)


def _result(fact: Data, path: tuple[str, ...], whole: bool) -> Iterator[Leaf]:  # noqa: FBT001
    value, error = fact.get("value"), fact.get("error")
    if error is not None:
        yield Where((*path, "error"), "error", "error"), error
    if error is None or value is not None:
        if whole:
            yield Where((*path, "value"), "result", "result"), value
        else:
            yield from _inside(value, (*path, "value"), "result")
    for name, value in fact.items():
        if name not in ("tool", "value", "error"):
            yield from _inside(value, (*path, name), name)


def _inside(value: Any, path: tuple[str, ...], name: str, longer: str = "") -> Iterator[Leaf]:
    """Yield objects by their names; a list is one value. Without a longer name it has the short one."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _inside(item, (*path, key), _joined(name, key), _joined(longer or name, key))
    else:
        yield Where(path, name or longer, longer or name), value


def _joined(name: str, key: str) -> str:
    return ".".join(filter(None, (name, key)))
