"""What people may do to the context of a run, as the pages offer it: pins, and the summaries that stand."""

from __future__ import annotations

import json
from dataclasses import dataclass

from runs.engine.timeline import folded
from runs.machines import CATALOGUE
from runs.models import Run, Step
from runs.reading.compactions import CompactionView, compaction_view
from runs.store import loading


@dataclass(frozen=True)
class PinView:
    """Something that can be pinned, or is."""

    path: str
    seq: int
    pinned: bool

    @property
    def what(self) -> str:
        """What it is, in words."""
        return f"the summary of step {self.seq}" if self.path.startswith("su:") else f"step {self.seq}"


@dataclass(frozen=True)
class ContextState:
    """What was done to the context, as it stands."""

    summaries: tuple[CompactionView, ...]
    """Those that the model reads, newest first, with what they stand for."""
    pins: tuple[PinView, ...]
    """Those of rows, and of summaries that stand."""
    wanted_by: str
    """Who waits for a compaction; empty where nobody does."""
    leaves_alone: bool
    """Whether that may take longer than to the next model call: rows were taken back since."""


def context_state(run: Run) -> ContextState:
    """What was done to the context of the run."""
    context = folded(loading.context_blocks(run))
    views = [compaction_view(run, summary.seq) for summary in reversed(context.standing())]
    standing = {f"su:{summary.seq}" for summary in context.standing()}
    kept = [path for path in context.pins if path in standing or not path.startswith("su:")]
    pins = sorted((_pin(path, pinned=True) for path in kept), key=lambda pin: (pin.seq, pin.path))
    wanted = context.wanted if not run.finished and loading.compaction_wanted(run) else None
    return ContextState(
        summaries=tuple(view for view in views if view is not None),
        pins=tuple(pins),
        wanted_by=(wanted.by or "the operator") if wanted else "",
        leaves_alone=context.leaves_alone(),
    )


def pin_of(run: Run, step: Step) -> PinView | None:
    """What a person could pin of a row: what the model was told in it, or the summary that it made."""
    if not step.live or run.finished:
        return None
    context = folded(loading.context_blocks(run))
    if step.kind == Step.Kind.COMPACTION:
        standing = any(summary.seq == step.seq for summary in context.standing())
        return _pin(f"su:{step.seq}", pinned=f"su:{step.seq}" in context.pins) if standing else None
    if not _told(run, step):
        return None
    return _pin(f"st:{step.seq}", pinned=f"st:{step.seq}" in context.pins)


def _told(run: Run, step: Step) -> bool:
    if not json.loads(step.facts_json):
        return False
    machine = CATALOGUE[run.machine]
    blocks = (machine.block(fact) for fact in machine.facts.validate_json(step.facts_json))
    return any(block is not None and block.act is None for block in blocks)


def _pin(path: str, *, pinned: bool) -> PinView:
    return PinView(path, int(path.partition(":")[2]), pinned)
