"""JSON objects in a model's text: their places and contents.

The form of an object may be repaired (raw line breaks, a trailing comma, Python's literals and quotes, names without
quotes). Its content never is: a cut-off object is not closed, and nothing is left out or made up.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NamedTuple, NoReturn

from runs.engine.values import MAX_DEPTH, MAX_NODES

SEAM = "\x00"
"""Marks the place of removed reasoning: no object reaches across it. No clean text holds this character."""


class Fault(Exception):
    """Why an object can't be read, and its place in the text. `stays_open`: it is cut off there."""

    def __init__(self, why: str, at: int = 0, *, stays_open: bool = False) -> None:
        self.why, self.at, self.stays_open = why, at, stays_open
        super().__init__(why)


class Found(NamedTuple):
    """An object in a text: its place, and its content or its fault."""

    start: int
    end: int
    value: dict[str, Any] | None = None
    fault: Fault | None = None


class Objects(NamedTuple):
    """The outermost objects of a text, in order; `fault` if the rest can't be read."""

    found: tuple[Found, ...]
    fault: Fault | None = None


MOST = 1000
"""Objects of one text that are read."""


def objects_in(text: str) -> Objects:
    """Return the outermost objects of `text`, up to one that stays open; of that one nothing is shown, inner ones
    neither.

    Braces around something else (a set, a formula) are prose.
    """
    found: list[Found] = []
    at, listed = 0, None
    while token := _OUTER.search(text, at):
        start, at = token.span()
        if token[0] == "]":
            listed = None
        elif token[0] == "{":
            end = closing(text, start)
            if end is None:
                return Objects(tuple(found), Fault("the object", start, stays_open=True))
            if len(found) == MOST:
                return Objects(tuple(found), Fault(f"there are more than {MOST} objects", start))
            found += [_found(text, start, end)] if begins_object(text, start) else []
            at = end
        elif listed is None:
            listed = start
    unclosed = None if listed is None else Fault("the list", listed, stays_open=True)
    return Objects(tuple(found), unclosed)


def begins_object(text: str, at: int) -> bool:
    """Return True if the brace there begins an object, by the first sign in it."""
    return _OBJECT.match(text, at) is not None


_OBJECT = re.compile(r"""\{\s*(?:["'}]|[A-Za-z_]\w*\s*:)""")
_OUTER = re.compile(r"\{|\[(?=\s*\{)|\]")
"""A list counts if it begins with an object: a cut-off list is not closed either."""


def closing(text: str, at: int) -> int | None:
    """Return the end of the object at `at`, in one pass that respects texts; None if it stays open."""
    depth = 0
    while token := _INNER.search(text, at):
        at = token.end()
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return at
        elif _begins_text(text, token.start()):
            whole = _TEXT[token[0]].match(text, token.start())
            if whole is None:
                return None
            at = whole.end()
    return None


_INNER = re.compile(r"""[{}"']""")
_TEXT = {
    '"': re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
    "'": re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
}


def _begins_text(text: str, at: int) -> bool:
    """Return True if a quote begins a text, as it does after these signs alone; any other is an apostrophe in prose."""
    before = at - 1
    while text[before].isspace():
        before -= 1
    return text[before] in "{[,:"


def _found(text: str, start: int, end: int) -> Found:
    try:
        return Found(start, end, value=read_object(text[start:end]))
    except Fault as fault:
        return Found(start, end, fault=fault)


def read_object(doc: str) -> dict[str, Any]:
    """Return an object's content, as JSON or after a repair of its form; raises `Fault`."""
    if (seam := doc.find(SEAM)) >= 0:
        raise Fault("reasoning stands in the middle of the object", seam)
    try:
        return _whole(_decode(doc))
    except json.JSONDecodeError as first:
        try:
            return _whole(_decode(_repaired(doc)))
        except json.JSONDecodeError:
            raise Fault(first.msg, first.pos) from None


def _decode(doc: str) -> Any:
    try:
        return _DECODER.decode(doc)
    except RecursionError:
        raise Fault("it is nested too deeply") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number of more digits than Python converts
        raise Fault("a number is too long") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise Fault(f"the name {twice[:80]} is there twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise Fault(f"{name} is no JSON number")


def _float(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _no_number(digits[:40])


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_no_number, parse_float=_float, strict=False
)


def _whole(value: Any) -> dict[str, Any]:
    """Return the object if it can be kept whole; raises `Fault` otherwise."""
    if not isinstance(value, dict):
        raise Fault("it is no object")
    level: list[Any] = [value]
    nodes, depth = 1, 0
    while level:
        inner: list[Any] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one
        nodes, depth = nodes + len(inner), depth + 1
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise Fault(f"it is too large: more than {MAX_NODES} values, or {MAX_DEPTH} deep")
        level = [one for one in inner if isinstance(one, dict | list)]
    return value


_LITERALS = {"True": "true", "False": "false", "None": "null"}
_PARTS = re.compile(
    r"""(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")"""
    r"""|(?P<quoted>'[^'\\]*(?:\\.[^'\\]*)*')"""
    r"""|(?P<comma>,(?=\s*[}\]]))"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<colon>\s*:)?""",
    re.DOTALL,
)


def _repaired(doc: str) -> str:
    """Return `doc` in JSON's spelling. Texts keep every character, and larger faults are left for the decoder."""
    return _PARTS.sub(_respelt, doc)


def _respelt(part: re.Match[str]) -> str:
    if part["quoted"]:
        return '"' + _SIGNS.sub(_sign, part["quoted"][1:-1]) + '"'
    if part["comma"]:
        return ""
    if part["name"]:
        name = part["name"]
        return f'"{name}"{part["colon"]}' if part["colon"] else _LITERALS.get(name, name)
    return part[0]


_SIGNS = re.compile(r'\\.|"', re.DOTALL)


def _sign(sign: re.Match[str]) -> str:
    """Return a quote or an escaped sign of a text in single quotes, as one in double quotes has it."""
    return {'"': '\\"', "\\'": "'"}.get(sign[0], sign[0])
