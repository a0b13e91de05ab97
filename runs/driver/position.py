"""A worker's position in its run: the run in memory, and how far it is committed."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from django.db import OperationalError, connection

from runs.driver.away import once_there
from runs.engine.effects import Answer, ChildRun, HumanCall, ToolCall
from runs.engine.machine import Block, Machine, Terms
from runs.engine.outward import allowed_by_person
from runs.engine.snapshot import Snapshot
from runs.models import Run
from runs.store import decisions, errors, late_answers, loading
from runs.store.log import Asked, Batch, Row

log = logging.getLogger(__name__)

TIMES_KEPT = 5
"""Attempts at storing a paid answer; each waits as long as the database lets it."""


@dataclass(frozen=True, slots=True)
class Between:
    """Between two moves. An open ask was written before this slice."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Before a repeatable effect. Its ask is written together with its conclusion."""

    row: Row
    blocks: list[Block]
    """The ask's blocks."""


@dataclass(frozen=True, slots=True)
class Written:
    """After an ask that this worker has written: the gates have just let it pass."""


@dataclass(frozen=True, slots=True)
class Started:
    """Before a side effect whose intent this worker has committed."""


@dataclass(frozen=True, slots=True)
class Settled:
    """After a question that was written with its prepared answer. If that does not fit, it waits for a person."""

    unfit: errors.BadDecision | None


Phase = Between | HeldBack | Written | Started | Settled


class Paid(NamedTuple):
    """An answer, its ask, and whether the ask is in the database."""

    asked: Asked
    answer: Answer
    written: bool


@dataclass(slots=True)
class Gathered:
    """The moves since the last commit. Nothing outside has seen them, and no effect has begun since."""

    batch: Batch
    since: float
    paid: Paid | None = None
    """The answer that they conclude."""
    said: decisions.Said | None = None
    """The prepared answer to the question at their end."""


class Position:
    """A run as its worker has it in memory. Other workers find its committed part in the steps."""

    def __init__(self, run: Run, epoch: int, terms: Terms) -> None:
        self.run = run
        self.epoch = epoch
        self.loaded = loading.load(run, terms)
        self.machine: Machine = self.loaded.machine
        self.snapshot: Snapshot = self.loaded.snapshot
        waits = self.loaded.exchange
        self.asked = Asked.stored(waits) if waits is not None else None
        """The exchange of the open ask."""
        self.phase: Phase = Between()
        self.gathered: Gathered | None = None
        self.noted: list[Row] = []
        """Steps about changed site rules, written before all else."""
        self.site_rules = self.loaded.site_rules
        """The text of the site's rules that decide moves; the log has them."""
        self.budgets = self.loaded.budgets
        self.head_hash, self.prompt_hash = run.head_hash, run.prompt_hash
        self.blocks: list[Block] | None = None
        """The model's blocks; read only if a model reads prompts."""
        self.last_reply: int | None = None
        """The ask of the last model reply, for the cache."""
        self.remembers: tuple[str, str] | None = None
        """The transition after which the cache keeps it."""
        self.counted_s = self.snapshot.totals.active_seconds
        """The run's active seconds, as far as its row has them from here."""
        self.mark = time.monotonic()
        """Time of the last count of active seconds."""
        self._took_s = 0.0

    @cached_property
    def added(self) -> int:
        """Return how many steps are no moves; while this worker has the run, every other step is its own."""
        return loading.rows_added(self.run.pk, self.loaded.snapshot.head)

    @property
    def parked(self) -> bool:
        """Return True if the open ask is for a person or a child."""
        pending = self.snapshot.pending
        return pending is not None and isinstance(pending.effect, HumanCall | ChildRun)

    @property
    def host(self) -> str:
        """Return the host that the pending call contacts only because a person allowed it for this run."""
        pending = self.snapshot.pending
        if pending is None or not isinstance(pending.effect, ToolCall):
            return ""
        return allowed_by_person(self.snapshot.state, pending.effect)

    def blocks_held_back(self) -> list[Block]:
        """Return the blocks of the ask that is not written yet."""
        return self.phase.blocks if isinstance(self.phase, HeldBack) else []

    def paid(self, asked: Asked, answer: Answer) -> Paid:
        """Return the answer to the open ask, to be kept if it leads nowhere."""
        return Paid(asked, answer, written=not isinstance(self.phase, HeldBack))

    def keep(self, paid: Paid) -> None:
        """Save the answer for the next worker if its ask is written, else as cost.

        Its time counts too; of a failed model call only the usage does.
        """
        asked = paid.asked
        if asked.answer_json is None:
            asked.answered(paid.answer)
        seconds = round(self.snapshot.totals.active_seconds - self.counted_s, 6)
        keep = partial(
            late_answers.keep_answer, self.run.pk, self.epoch, asked, seconds, written=paid.written
        )
        for _ in range(TIMES_KEPT):
            try:
                once_there(keep)
                return
            except OperationalError as fault:  # the row was locked for too long
                log.warning("run %s: a paid answer could not be kept yet: %s", self.run.pk, fault)
                connection.close_if_unusable_or_obsolete()

    def tick(self) -> None:
        """Add the time since the last tick to the run's active seconds."""
        now, totals = time.monotonic(), self.snapshot.totals
        active = totals.active_seconds + now - self.mark
        self._took_s += now - self.mark
        self.mark = now
        totals = totals._replace(active_seconds=round(active, 6))
        self.snapshot = self.snapshot._replace(totals=totals)

    def age_s(self, gathered: Gathered) -> float:
        """Return how many seconds the moves have waited for a commit."""
        return time.monotonic() - gathered.since

    def took_ms(self) -> float:
        """Return the milliseconds of the current move, its call included: clock jumps do not affect them."""
        ms, self._took_s = round(self._took_s * 1000, 3), 0.0
        return ms
