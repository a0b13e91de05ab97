"""Long runs of blanks and of line breaks: they push the text after them out of sight."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import regex

from runs.reading.characters import CONTROLS, DIRECTIONS, hides

BLANKS = 32
BREAKS = 8
"""So many in a row are a gap: more than code is indented by, and more than the breaks between paragraphs."""

ODD = regex.compile(r"[\p{Cf}\p{Default_Ignorable_Code_Point}\u2800\p{Zs}--\x20]", regex.V1)
"""Blanks beside the usual one, and characters without width."""


class Gap(NamedTuple):
    """A run of blanks, line breaks, or both, from `start` up to `end`."""

    start: int
    end: int
    blanks: int
    breaks: int

    @property
    def sign(self) -> str:
        """Return the sign in its place: `⟨␣ × 10,000⟩`."""
        signs = (("⏎", self.breaks), ("␣", self.blanks))
        return f"⟨{' '.join(f'{sign} × {count:,}' for sign, count in signs if count)}⟩"

    @property
    def words(self) -> str:
        """Return its kind and length in words."""
        parts = ((self.breaks, "line breaks"), (self.blanks, "blanks"))
        return " and ".join(f"{count:,} {what}" for count, what in parts if count)


def gaps(text: str) -> Iterator[Gap]:
    """Yield each gap in `text`."""
    chars = set() if text.isascii() else set(text) - CONTROLS - DIRECTIONS
    odd = "".join(char for char in chars if is_odd(char))
    if not odd and text.count("\n") < BREAKS and text.count(" ") + text.count("\t") < BLANKS:
        return  # there can't be one, and the search in millions of characters takes a while
    blank = f"[ \\t{re.escape(odd)}]"
    for found in re.finditer(f"(?:\\r?\\n{blank}*){{{BREAKS},}}|{blank}{{{BLANKS},}}", text):
        breaks = found[0].count("\n")
        yield Gap(found.start(), found.end(), len(found[0].replace("\r\n", "\n")) - breaks, breaks)


def is_odd(char: str) -> bool:
    """Return True if a character is a blank of another kind, or invisible."""
    return hides(char) or ODD.match(char) is not None
