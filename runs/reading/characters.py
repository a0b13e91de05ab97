"""Characters that are invisible, or change how others look, by their effect: one table for all.

`hidden_text` puts a sign in place of each, names and escapes them.
"""

from __future__ import annotations

import unicodedata

CONTROLS = frozenset(map(chr, {*range(0x20), *range(0x7F, 0xA0)} - set(b"\t\n")))
"""C0 and C1: a terminal takes some for an escape. A tab and a newline are visible by their effect."""

DIRECTIONS = frozenset(map(chr, (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))
"""Characters that turn the direction of the text around them."""

LOOKS = frozenset(map(chr, range(0xFE00, 0xFE10)))
"""Variation selectors; outside of emoji they can carry a hidden message."""

BLANKS = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x2800, 0x3164, 0xFFA0),
            *(*range(0x180B, 0x1810), *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)),
        ),
    )
)
"""Letters, marks and unassigned codes drawn as nothing."""

_HIDING = CONTROLS | DIRECTIONS | LOOKS | BLANKS
_CATEGORIES = ("Cf", "Cc", "Co", "Cs", "Zl", "Zp")
"""Other categories without a shape: formats, private use, half pairs, separators of lines."""


def hides(char: str) -> bool:
    """Return True if a character is invisible, or changes how others look."""
    return char not in "\t\n" and (char in _HIDING or unicodedata.category(char) in _CATEGORIES)


def sign_of(char: str) -> str:
    """Return the sign in place of such a character, to make it visible."""
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"
