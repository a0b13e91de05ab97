"""The contents of the model's window now: each part of the prompt with its size, and the free room.

Sizes are the kernel's own estimate, so the bar is full when the kernel compacts. The page asks after every step. So
counts are kept, and only the new steps are read.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

from runs.engine import context
from runs.engine.effects import EFFECT, ModelCall
from runs.engine.machine import Block, Machine, Terms
from runs.engine.sources import Source, with_found
from runs.engine.timeline import (
    EARLIER,
    PLAN,
    PROMPT,
    SUMMARY,
    Piece,
    blocks_of,
    folded,
    pieces,
    sources_text,
)
from runs.machines import CATALOGUE
from runs.models import Exchange, Run, Step
from runs.reading import words
from runs.reading.compactions import CompactionView
from runs.reading.prompts import full_terms, limit_of
from runs.store import loading

AGENT = ("Agent", "think")


def _own(tone: str) -> dict[str, tuple[str, str]]:
    """Return the machines' own blocks of a colour, by the kind of fact."""
    facts = [item for machine in CATALOGUE.values() for item in machine.presentation.facts.items()]
    parts = {kind: AGENT if reads.reply else reads.part for kind, reads in facts}
    return {kind: part for kind, part in parts.items() if part[1] == tone}


LABELS: dict[str, tuple[str, str]] = {
    "system": ("Instructions", "system"),
    "examples": ("Worked examples", "system"),
    EARLIER: ("Earlier runs", "summary"),
    PROMPT: ("Goal", "goal"),
    PLAN: ("Plan", "goal"),
    SUMMARY: ("Summaries", "summary"),
    **_own("think"),
    "react.tool.result": ("Tool results", "call"),
    **_own("call"),
    "user.answer": ("Answers by people", "ask"),
    "react.tool.edited": ("Changes by people", "ask"),
    **_own("other"),
    "react.notice": ("Notes", "other"),
    "sources": ("Sources", "sources"),
    "shown": ("Shown in full", "sources"),
    "tail": ("State of this turn", "tail"),
    "originals": ("To be summarised", "call"),
}
"""Each part in words, and its colour; in the order of the bar. Other kinds come before the sources."""

_LAST = ("sources", "shown", "tail", "originals")
_ORDER = {what: place for place, what in enumerate(LABELS)}

WIDTH = 1000.0
"""Of the bar, in its own units."""


# --- the picture --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One part of the prompt. `share` is per cent of the prompt; `begins` and `width` are places on the bar."""

    what: str
    label: str
    tone: str
    count: int
    """Number of blocks."""
    characters: int
    tokens: int
    share: float
    begins: float
    width: float


@dataclass(frozen=True)
class Counted:
    """The provider's last count of a prompt, beside the estimate at four characters a token."""

    seq: int
    tokens: int
    characters: int

    @property
    def estimate(self) -> int:
        """Return the tokens, estimated from the characters alone."""
        return context.tokens(self.characters, 1 / context.CHARACTERS_PER_TOKEN)

    @property
    def per_character(self) -> float:
        """Return the tokens per character, as the kernel computes them."""
        return context.ratio(self.tokens, self.characters)


@dataclass(frozen=True)
class Filling:
    """How full the window is. Tokens are estimates; the parts add up to the whole."""

    parts: tuple[Part, ...]
    tokens: int
    limit: int | None
    """Tokens allowed in a prompt; None for no bound."""
    compacts_at: int | None
    """Tokens above which older turns are compacted."""
    counted: Counted | None = None
    """None if no provider has counted: a scripted model reads no prompt."""

    @property
    def filled(self) -> float | None:
        """Return the per cent of the limit."""
        return round(self.tokens / self.limit * 100, 1) if self.limit else None

    @property
    def mark(self) -> float:
        """Return the place of the compaction threshold, on the bar."""
        return WIDTH * min(1.0, (self.compacts_at or 0) / self._scale)

    @property
    def end(self) -> float:
        """Return the place of the limit, on the bar."""
        return WIDTH * (self.limit or 0) / self._scale

    @property
    def over(self) -> bool:
        """Return True if the prompt is longer than allowed."""
        return self.limit is not None and self.tokens > self.limit

    @property
    def tone(self) -> str:
        """Return a colour that helps, beside the words."""
        full = self.compacts_at is not None and self.tokens > self.compacts_at
        return "bad" if self.over else "warn" if full else "busy"

    @property
    def _scale(self) -> int:
        return max(1, self.tokens, self.limit or 0)


class Sizes(NamedTuple):
    """Characters and blocks of one part."""

    characters: int
    blocks: int


def sizes(parts: Iterable[Piece]) -> dict[str, Sizes]:
    """Return the size of each part."""
    characters: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for part in parts:
        characters[part.what] += len(part.text)
        counts[part.what] += 1
    return {what: Sizes(characters[what], counts[what]) for what in characters}


def pictured(
    found: Mapping[str, Sizes],
    per_character: float,
    limit: int | None = None,
    compact_at: float = 1.0,
    counted: Counted | None = None,
) -> Filling:
    """Return the parts in their order, with their places on the bar."""
    whole = context.tokens(sum(part.characters for part in found.values()), per_character)
    scale = max(1, whole, limit or 0)
    parts = []
    characters = before = 0
    for what in sorted(found, key=_place):
        label, tone = words_of(what)
        characters += found[what].characters
        upto = context.tokens(characters, per_character)
        parts.append(
            Part(
                what=what,
                label=label,
                tone=tone,
                count=found[what].blocks,
                characters=found[what].characters,
                tokens=upto - before,
                share=round((upto - before) / max(1, whole) * 100, 1),
                begins=round(WIDTH * before / scale, 1),
                width=round(WIDTH * (upto - before) / scale, 1),
            )
        )
        before = upto
    at = int(limit * compact_at) if limit else None
    return Filling(tuple(parts), whole, limit, at, counted)


def _place(what: str) -> tuple[int, str]:
    if what in _LAST:
        return len(_ORDER) + _ORDER[what], what
    return _ORDER.get(what, len(_ORDER)), what


def words_of(what: str) -> tuple[str, str]:
    """Return a part's name in words, and its colour."""
    if what in LABELS:
        return LABELS[what]
    return words.spoken(what.partition(".")[2].replace(".", " ")).capitalize(), "other"


# --- of a run, now ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kept:
    """The counts of a run as of its step `head`."""

    head: int
    terms: Terms
    call: ModelCall
    asked: int
    """The step of that call."""
    counted: Counted | None
    sizes: dict[str, Sizes]
    sources: tuple[Source, ...] = ()


KEPT: OrderedDict[tuple[int, Any], _Kept] = OrderedDict()
_lock = Lock()
_RUNS = 256


def filling_of(run: Run) -> Filling | None:
    """Return the filling of the window of `run`; None before its first model call."""
    kept = _now(run)
    if kept is None:
        return None
    per_character = kept.counted.per_character if kept.counted else 1 / context.CHARACTERS_PER_TOKEN
    own = kept.terms.settings.context
    return pictured(kept.sizes, per_character, limit_of(run, kept.terms), own.compact_at, kept.counted)


@dataclass(frozen=True)
class RoomNeeded:
    """The room for the steps behind a summary after a revert; in estimated tokens."""

    originals: int
    prompt: int
    """The next prompt with them in the summary's place."""
    limit: int | None

    @property
    def fits(self) -> bool:
        """Return True if the model could read them all."""
        return self.limit is None or self.prompt <= self.limit


def room_needed(run: Run, view: CompactionView) -> RoomNeeded | None:
    """Return the room for the originals of `view`; None before the run's first model call."""
    filling = filling_of(run)
    if filling is None:
        return None
    per_character = filling.counted.per_character if filling.counted else 1 / context.CHARACTERS_PER_TOKEN

    def size(*texts: str) -> int:
        return context.tokens(sum(map(len, texts)), per_character)

    added = size(*(one.text for one in view.originals if not one.pinned)) - size(view.text)
    return RoomNeeded(size(*(one.text for one in view.originals)), filling.tokens + added, filling.limit)


def sources_of(run: Run) -> tuple[Source, ...]:
    """Return the sources found by the run's searches so far, in the order of their numbers."""
    kept = _now(run)
    return kept.sources if kept is not None else ()


def _now(run: Run) -> _Kept | None:
    """Return the kept counts of the run, brought up to its head."""
    key = (run.pk, run.created_at)
    with _lock:
        kept = KEPT.get(key)
    if kept is None or kept.head > run.head:
        kept = _begun(run)
    elif kept.head < run.head:
        kept = _gone_on(run, kept)
    if kept is None:
        return None
    with _lock:
        KEPT[key] = kept
        KEPT.move_to_end(key)
        while len(KEPT) > _RUNS:
            KEPT.popitem(last=False)
    return kept


def _begun(run: Run) -> _Kept | None:
    """Return the counts from the first step on."""
    calls = Exchange.objects.filter(run=run, kind="model_call", seq__lte=run.head).order_by("-seq")
    newest = calls.values_list("seq", "request_json").first()
    if newest is None:
        return None
    counts = calls.filter(prompt_chars__gt=0, input_tokens__gt=0)
    found = counts.values_list("seq", "input_tokens", "prompt_chars").first()
    call = _call(newest[1])
    counted = Counted(*found) if found else None
    return _counted_anew(run, _Kept(run.head, full_terms(run), call, newest[0], counted, {}))


def _counted_anew(run: Run, kept: _Kept) -> _Kept:
    machine = CATALOGUE[run.machine]
    blocks = loading.load_window(run, machine, run.head)
    found = sizes(pieces(machine, kept.terms, blocks, kept.call))
    return replace(kept, head=run.head, sizes=found, sources=folded(blocks).sources)


def _asked_since(run: Run, kept: _Kept) -> _Kept:
    """Return the counts with the newest call, and the provider's counts meanwhile."""
    calls = Exchange.objects.filter(run=run, kind="model_call", seq__gte=kept.asked, seq__lte=run.head)
    rows = calls.order_by("seq").values_list("seq", "request_json", "input_tokens", "prompt_chars")
    found = list(rows)
    counts = [(seq, tokens, characters) for seq, _, tokens, characters in found if tokens and characters]
    counted = Counted(*counts[-1]) if counts else kept.counted
    if found[-1][0] == kept.asked:
        return replace(kept, counted=counted)
    return replace(kept, counted=counted, asked=found[-1][0], call=_call(found[-1][1]))


def _call(request: str) -> ModelCall:
    call = EFFECT.validate_json(request)
    assert isinstance(call, ModelCall)
    return call


def _gone_on(run: Run, before: _Kept) -> _Kept:
    """Return the counts with the new steps, if each of them only adds; else counted anew."""
    kept = _asked_since(run, before)
    machine = CATALOGUE[run.machine]
    rows = list(Step.objects.filter(run=run, seq__gt=before.head, seq__lte=run.head).order_by("seq"))
    changed = any(row.kind in (Step.Kind.REWIND, Step.Kind.COMPACTION) for row in rows)
    if changed or not _alike(before.call, kept.call):
        return _counted_anew(run, kept)
    read = machine.facts.validate_json
    told = [row for row in rows if row.facts_json != "[]"]
    blocks = [block for row in told for block in blocks_of(machine, read(row.facts_json), row.seq)]
    if any(block.act is not None or block.covers or block.kind == PLAN for block in blocks):
        return _counted_anew(run, kept)
    return _added(machine, kept, blocks, run.head)


def _alike(before: ModelCall, now: ModelCall) -> bool:
    """Return True if prompts for `now` and `before` differ only at the end."""
    plain = not (before.shows or now.shows or before.sanitize or now.sanitize)
    return plain and before.longest == now.longest


def _added(machine: Machine, kept: _Kept, blocks: list[Block], head: int) -> _Kept:
    bare = kept.call.model_copy(update={"tail": "", "shows": ()})
    new = sizes(
        part
        for part in pieces(machine, kept.terms, blocks, bare)
        if part.what not in ("system", "examples", PROMPT, "sources")
    )
    found = {what: size for what, size in kept.sizes.items() if what not in ("sources", "tail")}
    for what, size in new.items():
        old = found.get(what, Sizes(0, 0))
        found[what] = Sizes(old.characters + size.characters, old.blocks + size.blocks)
    pool = kept.sources
    for block in blocks:
        pool = with_found(pool, block.sources) if block.sources else pool
    if pool:
        found["sources"] = Sizes(len(sources_text(pool)), 1)
    if kept.call.tail:
        found["tail"] = Sizes(len(kept.call.tail), 1)
    return replace(kept, head=head, sizes=found, sources=pool)
