"""A differing value, both sides in pieces: texts by words, long ones cut around the differences."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from runs.reading.aligning import Piece, differing_words
from runs.reading.differences import MISSING, Difference
from runs.reading.hidden_text import escaped

CHARACTERS = 6000
"""Characters shown of a value; around the differences, if it is longer."""

SHORT = 60
"""Characters of a value that fits a line."""

AROUND = 160
"""Characters kept before and after a difference."""


@dataclass(frozen=True)
class ValueView:
    """A differing value, in pieces; `left_missing` if that run has none."""

    name: str
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    left_missing: bool = False
    right_missing: bool = False
    long: bool = False


def value_view(found: Difference) -> ValueView:
    """Return a differing value; texts by words."""
    name, left, right = escaped(found.name), _written(found.left), _written(found.right)
    long = any(len(text) > SHORT or "\n" in text for text in (left, right))
    if found.left is MISSING or found.right is MISSING:
        ours, theirs = ((Piece(_cut(text), changed=False),) for text in (left, right))
        return ValueView(name, ours, theirs, found.left is MISSING, found.right is MISSING, long)
    if left == right:
        left, right = json.dumps(found.left), json.dumps(found.right)
    return ValueView(name, *text_pieces(left, right), long=long)


def _written(value: Any) -> str:
    if value is MISSING:
        return ""
    if isinstance(value, str):
        return escaped(value)
    return escaped(json.dumps(value, ensure_ascii=False, indent=2 if _is_deep(value) else None))


def _is_deep(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    )


def text_pieces(left: str, right: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return two texts in pieces, with the differences marked; long ones are cut around them."""
    ours, theirs = differing_words(*_around(left, right))
    return _shortened(ours), _shortened(theirs)


def _around(left: str, right: str) -> tuple[str, str]:
    """Return both texts, too long ones from shortly before the first difference on."""
    if max(len(left), len(right)) <= CHARACTERS:
        return left, right
    most = min(len(left), len(right))
    first = next((place for place in range(most) if left[place] != right[place]), most)
    begin = max(0, first - AROUND)
    lead = f"… {begin:,} characters the same …\n" if begin else ""
    return lead + left[begin:], lead + right[begin:]


def _shortened(pieces: list[Piece]) -> tuple[Piece, ...]:
    shown: list[Piece] = []
    left = CHARACTERS
    for place, (text, changed) in enumerate(pieces):
        if len(text) > left:
            rest = len(text) - left + sum(len(piece.text) for piece in pieces[place + 1 :])
            return (*shown, Piece(text[:left], changed), Piece(f"… {rest:,} more characters", changed=False))
        shown.append(Piece(text, changed))
        left -= len(text)
    return tuple(shown)


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= CHARACTERS
        else f"{text[:CHARACTERS]}… {len(text) - CHARACTERS:,} more characters"
    )
