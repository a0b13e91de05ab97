"""Characters in a call that nobody sees, or that make the text around them look different: found, and escaped.

What a person approves must be what runs. So where a call holds such a character, the card says so and shows the text
once more with escapes; rows of one line show escapes only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from runs.reading.characters import hides

SHOWN = 8
"""Characters that a warning names."""

_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_JOINER = "\u200d"
_PICTURES = range(0x1F000, 0x1FB00)
"""Skins, and pictures that are newer than this Python's Unicode."""


def unseen(text: str) -> Iterator[tuple[int, str]]:
    """Each character of `text` that can't be seen, with where it stands."""
    if _PLAIN.fullmatch(text):
        return
    for place, char in enumerate(text):
        if hides(char) and not in_emoji(text, place) and text[place : place + 2] != "\r\n":
            yield place, char


def holds_unseen(value: Any) -> bool:
    """Whether a JSON value holds such a character anywhere, names included."""
    match value:
        case str():
            return next(unseen(value), None) is not None
        case dict():
            return any(holds_unseen(name) or holds_unseen(item) for name, item in value.items())
        case list() | tuple():
            return any(map(holds_unseen, value))
    return False


def warning(text: str) -> str:
    """What stands beside a text that holds such characters; nothing where there is none."""
    found = [f"U+{ord(char):04X} at {place + 1}" for place, char in unseen(text)]
    if not found:
        return ""
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"Holds characters that can’t be seen: {', '.join(found[:SHOWN])}{more}."


def escaped(text: str) -> str:
    """`text` with such characters as escapes: `report\\u202etxt.sh`."""
    found = dict(unseen(text))
    if not found:
        return text
    return "".join(_escape(char) if place in found else char for place, char in enumerate(text))


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def in_emoji(text: str, place: int) -> bool:
    """Whether a joiner or a selector belongs to an emoji, as in a family or a red heart."""
    char, before, after = text[place], text[place - 1 : place], text[place + 1 : place + 2]
    if char in "\ufe0e\ufe0f":
        return _draws(before) or (before in "0123456789#*" and before != "" and after == "\u20e3")
    if char != _JOINER:
        return False
    if before == "\ufe0f":
        before = text[place - 2 : place - 1]
    return _draws(before) and _draws(after)


def _draws(char: str) -> bool:
    """Whether a character is a picture (or the skin of one)."""
    return bool(char) and (unicodedata.category(char) in ("So", "Sm") or ord(char) in _PICTURES)
