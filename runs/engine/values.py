"""Values that travel through the engine, and the one entrance of foreign data.

Nothing here knows runs. A value is frozen. A stored text is canonical: hashes are taken of the stored text, never of
something read back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict

Json = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

MAX_DEPTH = 64
MAX_NODES = 20_000
MAX_JSON = 1_000_000
"""Most characters of one JSON text, or plan, from a person: a longer one is refused before it is read."""
MAX_TEXT = 400_000
"""Characters kept of one text; the rest is cut with a count."""

SAFE_INT = 2**53
SAFE_FLOAT = 1e300
"""The largest numbers kept as numbers."""


class Value(BaseModel):
    """A frozen value; unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def is_none(value: object) -> bool:
    """Return True if a field has no value: a stored step leaves it out, as steps did before the field existed."""
    return value is None


def clean_text(text: str) -> str:
    """Return `text` without lone surrogates and NUL, at most MAX_TEXT characters (both databases can store it)."""
    text = _storable_text(text)
    if len(text) > MAX_TEXT:
        return f"{text[:MAX_TEXT]}… [{len(text) - MAX_TEXT} characters cut]"
    return text


def _storable_text(text: str) -> str:
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\x00", "\u2400")


def clean(value: Any) -> Any:
    """Return the JSON value nearest to `value` that every database can store and every reader can show."""
    return _Cleaner().clean(value, 0)


def storable(value: Any) -> Any:
    """Return the JSON value nearest to `value` that every database can store, and cut nothing.

    For a person's input, after its length and depth were checked.
    """
    return _Cleaner(whole=True).clean(value, 0)


def depth_of(value: Any) -> int:
    """Return how many lists and objects a JSON value nests, at most MAX_DEPTH + 1."""
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        level = [item for outer in level for item in _items(outer)]
        if not level:
            return depth
    return MAX_DEPTH + 1


def is_too_large(value: Any) -> bool:
    """Return True if `clean` would cut parts off a JSON value: it is too deep, or holds too many values."""
    level, nodes = [value], 0
    for _ in range(MAX_DEPTH + 1):
        nodes += len(level)
        if nodes > MAX_NODES:
            return True
        level = [item for outer in level for item in islice(_items(outer), MAX_NODES + 1)]
    return bool(level)


def _items(value: Any) -> Iterable[Any]:
    match value:
        case dict():
            return value.values()
        case list() | tuple():
            return value
    return ()


class _Cleaner:
    """One walk through a value; counts nodes, so wide values are cut as deep ones are. `whole`: nothing is cut."""

    def __init__(self, *, whole: bool = False) -> None:
        self.nodes = 0
        self.most = math.inf if whole else MAX_NODES
        self.deepest = math.inf if whole else MAX_DEPTH
        self.text = _storable_text if whole else clean_text

    def clean(self, value: Any, depth: int) -> Any:
        self.nodes += 1
        if depth > self.deepest or self.nodes > self.most:
            return "… [cut: too deep or too large]"
        match value:
            case None | bool():
                return value
            case int():
                return value if -SAFE_INT <= value <= SAFE_INT else _digits(value)
            case float():
                return value if math.isfinite(value) and abs(value) <= SAFE_FLOAT else str(value)
            case str():
                return self.text(value)
            case bytes():
                return self.text(value.decode("utf-8", "replace"))
            case dict():
                return self._object(value, depth)
            case list() | tuple() | set() | frozenset():
                return self._array(value, depth)
        return clean_text(_shown(value)[:2000])

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, item in value.items():
            if self.nodes > self.most:
                kept["…"] = "[cut: too large]"
                break
            kept[_key(key)] = self.clean(item, depth + 1)
        return kept

    def _array(self, value: Any, depth: int) -> list[Any]:
        kept = []
        for item in value:
            if self.nodes > self.most:
                kept.append("… [cut: too large]")
                break
            kept.append(self.clean(item, depth + 1))
        return kept


def _key(key: Any) -> str:
    match key:
        case str():
            return clean_text(key)
        case bytes():
            return clean_text(key.decode("utf-8", "replace"))
        case int() if not isinstance(key, bool):
            return _digits(key)
    return clean_text(_shown(key)[:2000])


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except Exception as fault:  # a foreign object may raise anything here
        return f"[{type(value).__name__}: can't be shown ({type(fault).__name__})]"


def _digits(value: int) -> str:
    return str(value) if value.bit_length() < 14_000 else f"an integer of {value.bit_length()} bits"


_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def canonical(value: Any) -> str:
    """Return the one spelling of a clean JSON value: sorted keys, no blanks."""
    return _encode(value)


def fingerprint(tool: str, arguments: Any) -> str:
    """Return 16 hex digits for a call: its tool and its canonical arguments."""
    return hashlib.sha256(f"{tool}\n{canonical(arguments)}".encode()).hexdigest()[:16]


def add_cost(one: float, other: float) -> float:
    """Return the sum of two costs in USD, to ten places, so a sum of many does not drift."""
    return round(one + other, 10)
