"""Marks stacked on one letter: they are drawn over the lines around it, or over each other, and hide text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

import regex

MOST = 4
"""Marks on one letter that scripts need. Tibetan writes up to eight: its letters below the first one are marks."""

_MARK = r"[[\p{Mn}\p{Me}]--\p{Default_Ignorable_Code_Point}]"
_STACK = regex.compile(rf"(?![\u0f71-\u0fbc]{{{MOST + 1},8}}+(?!{_MARK})){_MARK}{{{MOST + 1},}}+", regex.V1)


class Stack(NamedTuple):
    """A run of marks from `start` up to `end`."""

    start: int
    end: int
    mark: str
    """The mark that it repeats; empty if there are several."""

    @property
    def sign(self) -> str:
        """Return the sign in its place: `⟨U+0301 × 400⟩`."""
        name = f"U+{ord(self.mark):04X}" if self.mark else "marks"
        return f"⟨{name} × {self.end - self.start:,}⟩"

    @property
    def words(self) -> str:
        """Return its length and place."""
        return f"{self.end - self.start:,} at {self.start + 1}"


def stacks(text: str) -> Iterator[Stack]:
    """Yield each stack in `text`."""
    for found in _STACK.finditer(text):
        marks = set(found[0])
        yield Stack(found.start(), found.end(), marks.pop() if len(marks) == 1 else "")


def without_marks_at_end(text: str) -> str:
    """Return `text` without the marks at its end."""
    return text.rstrip("".join(char for char in set(text) if unicodedata.category(char) in ("Mn", "Me")))
