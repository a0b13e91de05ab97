"""The changes of a prompt against the one before it: the same beginning, new parts, removed parts.

A provider's cache can hold the same beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runs.engine.timeline import Piece
from runs.reading import words
from runs.reading.compactions import word_diff
from runs.reading.filling import words_of
from runs.reading.hidden_text import visible
from runs.reading.prompts import Sent

MOST_WORDS = 12_000
"""Characters of two texts together up to which they are compared word by word."""


@dataclass(frozen=True)
class PartView:
    """One part of a prompt, as it is shown. `tokens` is an estimate."""

    label: str
    tone: str
    side: str
    path: str
    seq: int | None
    """The step of the part."""
    tokens: int
    text: str


class Word(NamedTuple):
    """A stretch of two texts laid over each other: in both, removed, or new."""

    text: str
    where: str


@dataclass(frozen=True)
class PartChange:
    """A part of both prompts, with another text."""

    label: str
    path: str
    words: tuple[Word, ...]


@dataclass(frozen=True)
class PromptChanges:
    """The changes against the prompt before. Tokens are estimates."""

    before: int
    """The step that asked then."""
    same: int
    """Parts that are the same from the beginning on, and their tokens."""
    same_tokens: int
    whole: bool
    """True if nothing is new at all."""
    added: tuple[PartView, ...]
    added_tokens: int
    removed: tuple[PartView, ...]
    removed_tokens: int
    changed: tuple[PartChange, ...]

    @property
    def said(self) -> str:
        """Return the changes in one line."""
        if self.whole:
            return "Same prompt."
        parts = []
        if self.added:
            parts.append(f"+ {words.plural(len(self.added), 'block')}, {self.added_tokens:,} tokens")
        if self.removed:
            parts.append(f"− {words.plural(len(self.removed), 'block')}, {self.removed_tokens:,} tokens")
        if self.changed:
            parts.append(f"{words.plural(len(self.changed), 'block')} changed")
        return "; ".join(parts)

    @property
    def said_same(self) -> str:
        """Return the part that a provider's cache can hold, in one line."""
        if not self.same:
            return "no common beginning"
        return f"the first {self.same_tokens:,} tokens ({words.plural(self.same, 'block')}) are the same"


def part_views(sent: Sent, parts: Sequence[Piece] | None = None) -> tuple[PartView, ...]:
    """Return the parts of a prompt, or some of them, as they are shown."""
    return tuple(_view(sent, part) for part in (sent.parts if parts is None else parts))


def _view(sent: Sent, part: Piece) -> PartView:
    label, tone = words_of(part.what)
    kind, _, number = part.path.partition(":")
    seq = int(number) if kind in ("st", "su") and number.isdigit() else None
    return PartView(label, tone, part.side, part.path, seq, sent.tokens_of([part]), visible(part.text))


def changes(before: Sent, now: Sent) -> PromptChanges:
    """Return the changes in `now`."""
    ours, theirs = before.parts, now.parts
    most = min(len(ours), len(theirs))
    same = next((place for place in range(most) if ours[place] != theirs[place]), most)
    removed, added = _without_common(ours[same:], theirs[same:])
    changed = []
    for part in list(added):
        old = next((one for one in removed if _place(one) == _place(part)), None)
        if old is not None:
            removed.remove(old)
            added.remove(part)
            changed.append(PartChange(words_of(part.what)[0], part.path, _laid_over(old.text, part.text)))
    return PromptChanges(
        before=before.seq,
        same=same,
        same_tokens=now.tokens_of(theirs[:same]),
        whole=ours == theirs,
        added=part_views(now, added),
        added_tokens=now.tokens_of(added),
        removed=part_views(before, removed),
        removed_tokens=now.tokens_of(removed),
        changed=tuple(changed),
    )


def _without_common(ours: Sequence[Piece], theirs: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    """Return the parts of only one of them; the same part twice counts twice."""
    rest = list(ours)
    counts: dict[Piece, int] = {}
    for part in ours:
        counts[part] = counts.get(part, 0) + 1
    added = []
    for part in theirs:
        if counts.get(part):
            counts[part] -= 1
        else:
            added.append(part)
    removed = []
    for part in reversed(rest):
        if counts.get(part):
            counts[part] -= 1
            removed.append(part)
    return removed[::-1], added


def _place(part: Piece) -> tuple[str, str, str]:
    """Return the identity of a part over time: the tail, the sources, a summary, a step's block."""
    return part.what, part.side, part.path


def _laid_over(before: str, after: str) -> tuple[Word, ...]:
    before, after = visible(before), visible(after)
    if len(before) + len(after) > MOST_WORDS:
        before, after = _around(before, after)
    return tuple(Word(text, where) for text, where in word_diff(before, after))


def _around(before: str, after: str) -> tuple[str, str]:
    """Return long texts around the first difference."""
    most = min(len(before), len(after))
    first = next((place for place in range(most) if before[place] != after[place]), most)
    begins = max(0, first - 200)
    half = MOST_WORDS // 2
    lead = "… " if begins else ""
    cut = [
        lead + text[begins : begins + half] + ("…" if len(text) > begins + half else "")
        for text in (before, after)
    ]
    return cut[0], cut[1]
