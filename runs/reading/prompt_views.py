"""One prompt whole, as the inspector and the context page show it: how full, its changes, and every part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from runs.engine.timeline import Piece
from runs.models import Exchange, Run
from runs.reading import words
from runs.reading.filling import Filling, pictured, sizes
from runs.reading.prompt_changes import PartView, PromptChanges, changes, part_views
from runs.reading.prompts import ASKS, Sent, full_terms, limit_of, sent_with_the_one_before

MOST = 200_000
"""Characters of a prompt whose texts are shown at once; of a longer one the beginning, and the newest parts."""

FIRST = 4
"""Parts at the beginning that are always shown: instructions, examples, the goal."""

BESIDE = 6_000
"""Characters of changes, and of parts, that are shown beside a step; the page of the prompt has all of them."""

PARTS_BESIDE = 12

LISTED = 60
"""Prompts listed on the context page."""


@dataclass(frozen=True)
class PromptView:
    """One prompt. `left_out` counts the parts whose texts are not shown."""

    sent: Sent
    filling: Filling
    changes: PromptChanges | None
    """None if it is the first one of its role."""
    parts: tuple[PartView, ...]
    left_out: int

    @property
    def role(self) -> str:
        """Return its role, in words."""
        return words.spoken(self.sent.role)

    @property
    def parts_fit(self) -> bool:
        """Whether the parts have room beside a step."""
        return len(self.parts) <= PARTS_BESIDE and sum(len(part.text) for part in self.parts) <= BESIDE

    @property
    def changes_fit(self) -> bool:
        """Whether the texts of the changes have room beside a step."""
        if self.changes is None:
            return True
        moved = sum(len(part.text) for part in (*self.changes.added, *self.changes.removed))
        laid = sum(len(word.text) for part in self.changes.changed for word in part.words)
        return moved + laid <= BESIDE


@dataclass(frozen=True)
class PromptLine:
    """One prompt in a list. Sizes are 0 if nothing was counted."""

    seq: int
    role: str
    kind: str
    characters: int
    tokens: int
    cached: bool


def prompt_view(run: Run, seq: int) -> PromptView | None:
    """Return the prompt of the ask at `seq`; None if it asked no model."""
    found = sent_with_the_one_before(run, seq)
    if found is None:
        return None
    sent, before = found
    terms = full_terms(run)
    own = terms.settings.context
    parts, left_out = _shown(sent)
    return PromptView(
        sent=sent,
        filling=pictured(sizes(sent.parts), sent.per_character, limit_of(run, terms), own.compact_at),
        changes=changes(before, sent) if before else None,
        parts=parts,
        left_out=left_out,
    )


def _shown(sent: Sent) -> tuple[tuple[PartView, ...], int]:
    """Return every part, those beyond the bound without their texts."""
    views = list(part_views(sent))
    room = MOST
    left_out = 0
    for place in _by_weight(sent.parts):
        room -= len(views[place].text)
        if room < 0 and place >= FIRST:
            views[place] = replace(views[place], text="")
            left_out += 1
    return tuple(views), left_out


def _by_weight(parts: tuple[Piece, ...]) -> Iterator[int]:
    """Yield the first parts, then the newest."""
    yield from range(min(FIRST, len(parts)))
    yield from range(len(parts) - 1, FIRST - 1, -1)


def prompts_of(run: Run, most: int = LISTED) -> list[PromptLine]:
    """Return the newest prompts of the run, newest first."""
    asked = Exchange.objects.filter(run=run, kind__in=ASKS).order_by("-seq")
    columns = ("seq", "name", "kind", "prompt_chars", "input_tokens", "status", "nth")
    return [
        PromptLine(
            seq=seq,
            role=words.spoken(name),
            kind=kind,
            characters=characters,
            tokens=tokens if characters else 0,
            cached=status == Exchange.Status.ANSWERED and nth == 0,
        )
        for seq, name, kind, characters, tokens, status, nth in asked.values_list(*columns)[:most]
    ]


def ask_beside(run: Run, seq: int) -> tuple[int | None, int | None]:
    """Return the asks of a model before and after step `seq`."""
    asked = Exchange.objects.filter(run=run, kind__in=ASKS).values_list("seq", flat=True)
    return asked.filter(seq__lt=seq).order_by("-seq").first(), asked.filter(seq__gt=seq).order_by(
        "seq"
    ).first()
