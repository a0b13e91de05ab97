"""Compactions as people see them: the current summary, its versions, its state, and the blocks that it replaces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple

from django.db.models import CharField, Exists, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Coalesce, Concat

from runs.engine.context import originals
from runs.engine.facts import (
    CompactionWanted,
    Fact,
    Pinned,
    RangeSummarised,
    SummaryEdited,
    SummaryUndone,
    Unpinned,
    is_of_script,
)
from runs.engine.machine import Block
from runs.engine.timeline import SUMMARY, Context, common_block, folded
from runs.machines import CATALOGUE
from runs.models import Compaction, Exchange, Run, Step, tells, tells_of
from runs.reading import words
from runs.reading.aligning import differing_words
from runs.reading.prompts import blocks_at
from runs.store.loading import context_blocks

_FACTS: dict[str, type[Fact]] = {
    "conv.range.summary": RangeSummarised,
    "conv.summary.edited": SummaryEdited,
    "conv.summary.undone": SummaryUndone,
    "conv.pinned": Pinned,
    "conv.unpinned": Unpinned,
    "conv.compaction.wanted": CompactionWanted,
}

STATES: dict[str, str] = {
    "stands": "in use",
    "pinned": "in use, pinned",
    "undone": "reverted",
    "carried_on": "continued by a later summary",
    "dead": "rolled back",
}
"""The possible states of a summary."""

BLOCK_KINDS: dict[str, str] = {
    SUMMARY: "earlier summary",
    "user.answer": "answer by a person",
    "react.tool.call": "call",
    "react.tool.result": "result",
    "react.tool.edited": "change by a person",
    "react.notice": "note",
}
"""A block's kind in words; any other kind reads as its own last part."""


@dataclass(frozen=True)
class VersionView:
    """One text of a summary; version 1 is the summariser's own."""

    number: int
    text: str
    by: str
    reason: str
    at: datetime
    seq: int
    """The step that wrote it."""
    live: bool = True
    """True unless it was rolled back."""


@dataclass(frozen=True)
class UndoneView:
    """Who reverted the summary, and why."""

    by: str
    reason: str
    at: datetime
    seq: int


@dataclass(frozen=True)
class OriginalView:
    """One block replaced by the summary. The text is as the model read it; show it with `visible`."""

    path: str
    seq: int
    kind: str
    author: str
    text: str
    pinned: bool
    """True if a person pinned its step: it is read itself, whatever is summarised."""


@dataclass(frozen=True)
class CompactionView:
    """One compaction. `text` is the current version, as stored; show it with `visible`."""

    id: int
    """The step's id, its name in the admin."""
    run_id: int
    seq: int
    at: datetime
    first: int
    last: int
    tokens_before: int
    tokens_after: int
    text: str
    versions: tuple[VersionView, ...]
    """All versions in order, rolled-back ones included."""
    version: int
    """The number of the current one."""
    kept: tuple[int, ...]
    """Steps in the range whose blocks stayed as they were."""
    pinned: bool
    undone: UndoneView | None
    carried_on_by: int | None
    """The step of the summary that has replaced this one."""
    carries_on: int | None
    """The step of the earlier summary that this one carries on."""
    wanted_by: str
    """The person who requested it; empty if the prompt was too long."""
    dead: bool
    """True if it was rolled back."""
    originals: tuple[OriginalView, ...] = ()
    """The replaced blocks; only for a single compaction."""

    @property
    def path(self) -> str:
        """Return its address for later steps."""
        return f"su:{self.seq}"

    @property
    def state(self) -> str:
        """Return its state: a key of `STATES`."""
        if self.dead:
            return "dead"
        if self.undone is not None:
            return "undone"
        if self.carried_on_by is not None:
            return "carried_on"
        return "pinned" if self.pinned else "stands"

    @property
    def state_words(self) -> str:
        """Return its state in words."""
        if self.state == "carried_on":
            return f"continued by step {self.carried_on_by}"
        if self.undone is not None and not self.dead:
            return f"reverted by {self.undone.by}"
        return STATES[self.state]

    @property
    def stands(self) -> bool:
        """Return True if the model reads it."""
        return self.state in ("stands", "pinned")


def compactions(run: Run) -> list[CompactionView]:
    """Return the run's compactions, oldest first, without their originals."""
    return list(compactions_of({run.pk: run.model_name}).get(run.pk, {}).values())


def compaction_view(run: Run, seq: int) -> CompactionView | None:
    """Return the compaction in step `seq` with the blocks that it replaces; None if that step is none."""
    view = compactions_of({run.pk: run.model_name}).get(run.pk, {}).get(seq)
    return replace(view, originals=_originals(run, view)) if view is not None else None


def compactions_of(models: Mapping[int, str]) -> dict[int, dict[int, CompactionView]]:
    """Return the compactions of several runs, given the model of each: by run, then by step; in three queries
    for all."""
    logs: dict[int, _Log] = {run_id: _Log(run_id, model) for run_id, model in models.items()}
    kinds = (Step.Kind.COMPACTION, Step.Kind.NOTE)
    rows = Step.objects.filter(tells(*_FACTS), run__in=models, kind__in=kinds)
    for step in rows.order_by("seq").only("run_id", "seq", "live", "at", "facts_json").iterator():
        logs[step.run_id].take(step)
    asks = Exchange.objects.filter(run__in=models, kind="compaction").order_by("seq")
    for run_id, seq, request in asks.values_list("run_id", "seq", "request_json"):
        logs[run_id].wanted_by[seq] = json.loads(request)["wanted_by"]
    return {run_id: log.views() for run_id, log in logs.items()}


class _Log:
    """The changes to one run's context, rolled-back steps included."""

    def __init__(self, run_id: int, model: str) -> None:
        self.run_id = run_id
        self.model = model
        self.made: dict[int, tuple[Step, RangeSummarised]] = {}
        self.edits: dict[int, list[tuple[Step, SummaryEdited]]] = {}
        self.undone: dict[int, tuple[Step, SummaryUndone]] = {}
        self.pins: dict[str, bool] = {}
        self.blocks: list[Block] = []
        """Of live steps."""
        self.wanted_by: dict[int, str] = {}
        """By the step of the ask."""

    def take(self, step: Step) -> None:
        """Add one step."""
        for fact in _facts(step):
            block = None if is_of_script(fact) else common_block(fact)
            if step.live and block is not None:
                self.blocks.append(block.model_copy(update={"seq": step.seq, "path": f"st:{step.seq}"}))
            match fact:
                case RangeSummarised():
                    self.made[step.seq] = (step, fact)
                case SummaryEdited(summary=seq):
                    self.edits.setdefault(seq, []).append((step, fact))
                case SummaryUndone(summary=seq) if step.live or seq not in self.undone:
                    self.undone[seq] = (step, fact)

    def views(self) -> dict[int, CompactionView]:
        """Return the compactions, by their steps."""
        context = folded(self.blocks)
        return {seq: self._view(seq, context) for seq in self.made}

    def _view(self, seq: int, context: Context) -> CompactionView:
        step, made = self.made[seq]
        undone = self.undone.get(seq)
        versions = self._versions(step, made)
        counting = [one for one in versions if one.live] if step.live else list(versions)
        return CompactionView(
            id=step.pk,
            run_id=self.run_id,
            seq=seq,
            at=step.at,
            first=made.first,
            last=made.last,
            tokens_before=made.tokens_before,
            tokens_after=made.tokens_after,
            text=counting[-1].text,
            versions=versions,
            version=counting[-1].number,
            kept=made.kept,
            pinned=f"su:{seq}" in context.pins,
            undone=_undone(*undone) if undone and undone[0].live == step.live else None,
            carried_on_by=context.carried_on_by(seq),
            carries_on=made.updates or None,
            wanted_by=self._wanted_by(seq),
            dead=not step.live,
        )

    def _wanted_by(self, seq: int) -> str:
        """Return the person in the ask that the step concludes."""
        ask = max((ask for ask in self.wanted_by if ask < seq), default=None)
        return self.wanted_by[ask] if ask is not None else ""

    def _versions(self, step: Step, made: RangeSummarised) -> tuple[VersionView, ...]:
        """Return the summariser's own text, then people's replacements."""
        by = f"the model {self.model}" if self.model else "the model"
        first = VersionView(1, made.text, by, "", step.at, step.seq, step.live)
        return (
            first,
            *(
                VersionView(edit.version, edit.text, edit.by, edit.reason, row.at, row.seq, row.live)
                for row, edit in self.edits.get(step.seq, ())
            ),
        )


def _facts(step: Step) -> Iterable[Fact]:
    found: list[dict[str, Any]] = json.loads(step.facts_json)
    return [_FACTS[fact["kind"]].model_validate(fact) for fact in found if fact["kind"] in _FACTS]


def _undone(step: Step, fact: SummaryUndone) -> UndoneView:
    return UndoneView(fact.by, fact.reason, step.at, step.seq)


def _originals(run: Run, view: CompactionView) -> tuple[OriginalView, ...]:
    """Return the blocks as of the summary's writing, so a dead one has its own too."""
    blocks = blocks_at(run, view.seq)
    pins = folded(context_blocks(run)).pins
    made = next(
        block.act for block in blocks if block.seq == view.seq and isinstance(block.act, RangeSummarised)
    )
    return tuple(
        OriginalView(
            block.path, block.seq, kind_words(block.kind), block.author, block.text, block.path in pins
        )
        for block in originals(blocks, made)
    )


def kind_words(kind: str) -> str:
    """Return a block's kind in words."""
    own = [
        machine.presentation.facts[kind]
        for machine in CATALOGUE.values()
        if kind in machine.presentation.facts
    ]
    nouns = [reads.noun or ("decision" if reads.reply else "") for reads in own]
    return BLOCK_KINDS.get(kind) or next(filter(None, nouns), words.spoken(kind.rpartition(".")[2]))


# --- database queries ----------------------------------------------------------------------------------------------


def in_state(found: QuerySet[Compaction], state: str) -> QuerySet[Compaction]:
    """Return those of `found` in a state of `STATES`."""
    notes = Step.objects.filter(run=OuterRef("run"), live=True, kind=Step.Kind.NOTE)
    later = Compaction.objects.filter(run=OuterRef("run"), live=True, seq__gt=OuterRef("seq"))
    # The step in each of these is that of the query around it.
    taken_back = Exists(notes.filter(tells_of("conv.summary.undone", summary=OuterRef("seq"))))
    carried_on = later.filter(~taken_back, tells_of("conv.range.summary", updates=OuterRef("seq")))
    found = found.annotate(
        was_undone=taken_back,
        was_carried_on=Exists(carried_on),
        pinned_in=_newest(notes, "conv.pinned"),
        unpinned_in=_newest(notes, "conv.unpinned"),
    )
    pinned = Q(pinned_in__gt=F("unpinned_in"))
    match state:
        case "dead":
            return found.filter(live=False)
        case "undone":
            return found.filter(live=True, was_undone=True)
        case "carried_on":
            return found.filter(live=True, was_undone=False, was_carried_on=True)
        case "pinned":
            return found.filter(pinned, live=True, was_undone=False, was_carried_on=False)
    return found.filter(~pinned, live=True, was_undone=False, was_carried_on=False)


def _newest(notes: QuerySet[Step], kind: str) -> Coalesce:
    """Return the newest step that pinned, or unpinned, the summary; 0 if there is none."""
    summary = Concat(Value("su:"), Cast(OuterRef("seq"), CharField()), output_field=CharField())
    rows = notes.filter(tells_of(kind, path=summary)).order_by("-seq").values("seq")[:1]
    return Coalesce(Subquery(rows), Value(0))


# --- what changed -------------------------------------------------------------------------------------------------


class DiffPiece(NamedTuple):
    """A piece of two texts laid over each other."""

    text: str
    where: Literal["both", "before", "after"]


def word_diff(before: str, after: str) -> list[DiffPiece]:
    """Return both texts in one: common, removed and new pieces."""
    ours, theirs = differing_words(before, after)
    if before != after and not any(piece.changed for piece in [*ours, *theirs]):  # little in common
        return [DiffPiece(before, "before"), DiffPiece(after, "after")]
    found: list[DiffPiece] = []
    rest = iter(theirs)
    for piece in ours:
        if piece.changed:
            found.append(DiffPiece(piece.text, "before"))
            continue
        for other in rest:
            if not other.changed:
                break
            found.append(DiffPiece(other.text, "after"))
        found.append(DiffPiece(piece.text, "both"))
    return found + [DiffPiece(piece.text, "after") for piece in rest]
