"""People's changes to a run's context, as the pages offer them: pins, and the active summaries."""

from __future__ import annotations

import json
from dataclasses import dataclass

from runs.engine.timeline import blocks_of, folded
from runs.machines import CATALOGUE
from runs.models import Run, Step
from runs.reading.compactions import CompactionView, compaction_view
from runs.store import loading


@dataclass(frozen=True)
class PinView:
    """A pin, or a place for one."""

    path: str
    seq: int
    pinned: bool

    @property
    def what(self) -> str:
        """Return its name in words."""
        return f"the summary of step {self.seq}" if self.path.startswith("su:") else f"step {self.seq}"


@dataclass(frozen=True)
class ContextState:
    """The current changes of the context."""

    summaries: tuple[CompactionView, ...]
    """The active summaries, newest first, with the blocks that they replace."""
    pins: tuple[PinView, ...]
    """Pins of steps, and of active summaries."""
    wanted_by: str
    """The person who waits for a compaction; empty if there is none."""
    leaves_alone: bool
    """True if that may take longer than to the next model call: summaries were reverted since."""


def context_state(run: Run) -> ContextState:
    """Return the changes of the run's context."""
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
    """Return the part of a step that a person could pin: its blocks, or its summary."""
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
    blocks = blocks_of(machine, machine.facts.validate_json(step.facts_json), step.seq)
    return any(block.act is None for block in blocks)


def _pin(path: str, *, pinned: bool) -> PinView:
    return PinView(path, int(path.partition(":")[2]), pinned)
