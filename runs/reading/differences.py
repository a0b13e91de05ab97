"""What differs between two steps, or two launches: value by value, under names that a reader knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runs.engine.values import canonical
from runs.reading import words
from runs.reading.outlines import Data, wanted_call

LABELS = {"react.decision": "", "react.notice": "note"}
"""What a fact's values are called where the last part of its kind would not do."""


@dataclass(frozen=True)
class Difference:
    """A value that differs; MISSING on the side that has none."""

    name: str
    left: Any
    right: Any


class _Missing:
    """Stands where a run has no such value."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def differences_of(left: Data, right: Data) -> list[Difference]:
    """The values that differ between what two steps (or two launches) hold, objects looked into.

    Arguments and results of two tools have nothing to do with each other: there they are one value.
    """
    whole = _tool_in(left) != _tool_in(right)
    ours, theirs = (dict(_leaves(content, whole)) for content in (left, right))
    names = [*ours, *(name for name in theirs if name not in ours)]
    found = [Difference(name, ours.get(name, MISSING), theirs.get(name, MISSING)) for name in names]
    return [one for one in found if not _is_same(one.left, one.right)]


def _is_same(one: Any, other: Any) -> bool:
    """Equal, and of the same type: 1 is neither 1.0 nor true."""
    if one is MISSING or other is MISSING:
        return one is other
    return canonical(one) == canonical(other)


def _tool_in(content: Data) -> str:
    """The tool that a step calls, or wants."""
    call = content.get("call") or {}
    return str(call.get("tool") or wanted_call(content.get("facts", []))[0])


def _leaves(content: Data, whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    for name, value in content.items():
        match name:
            case "call":
                yield "tool", value["tool"]
                yield from [("arguments", value["args"])] if whole else _inside(value["args"], "")
            case "facts":
                yield from _facts(value, whole)
            case "to":
                yield "next state", value
            case _:
                yield from _inside(value, name)


def _facts(facts: list[Data], whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    """Each fact's values under a name that a reader knows; the second of a kind is numbered."""
    seen: dict[str, int] = {}
    for fact in facts:
        kind = fact["kind"]
        seen[kind] = seen.get(kind, 0) + 1
        number = f" {seen[kind]}" if seen[kind] > 1 else ""
        label = f"{LABELS.get(kind, words.spoken(kind.rpartition('.')[2]))}{number}".strip()
        rest = {name: value for name, value in fact.items() if name != "kind"}
        match kind:
            case "react.decision":
                yield from _decision(rest, label, whole)
            case "react.tool.result" if not number:
                yield from _result(rest, whole)
            case "react.notice":
                yield label, fact["message"]
            case _ if not rest:
                yield label, True
            case _:
                rest = {(name if name not in ("text", "message") else ""): rest[name] for name in rest}
                yield from _inside(rest, label)


def _decision(fact: Data, label: str, whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    for name, value in fact.items():
        if whole and name in ("args", "tool_call"):
            yield "arguments", value
        elif name == "args":
            yield from _inside(value, label)
        else:
            yield from _inside(value, f"{label}.{name}" if label else name)


def _result(fact: Data, whole: bool) -> Iterator[tuple[str, Any]]:  # noqa: FBT001
    if fact.get("error") is not None:
        yield "error", fact["error"]
    elif whole:
        yield "result", fact.get("value")
    else:
        yield from _inside(fact.get("value"), "result")
    yield from _inside({name: fact[name] for name in fact if name not in ("tool", "value", "error")}, "")


def _inside(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Objects by their names; a list is one value."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _inside(item, f"{path}.{name}" if path and name else path or name)
    else:
        yield path, value
