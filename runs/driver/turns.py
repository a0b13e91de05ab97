"""A call's turn at a model whose profile limits the calls of all workers together."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError

from runs.driver.away import once_there
from runs.driver.holds import Leaving
from runs.engine.context import CHARACTERS_PER_TOKEN
from runs.engine.effects import Answer, Failed
from runs.store import leases, turns

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Turn:
    """A place for a call; `used` is its usage, once known."""

    asked: bool = False
    """True once the model may have been asked."""
    used: int | None = None

    def heard(self, answer: Answer) -> Answer:
        """Note the call's usage. A call that broke off without a count keeps its estimate."""
        usage = getattr(answer, "usage", None)
        if usage is not None:
            counted = usage.input_tokens + usage.output_tokens
            broke_off = isinstance(answer, Failed) and answer.blame == "transient" and not answer.wait_s
            self.used = None if broke_off and not counted else counted
        return answer


@contextmanager
def turn_at(limits: turns.Limits | None, lease: leases.Lease, characters: int) -> Iterator[Turn]:
    """Have a turn for the `with`; raises `Leaving` if the run has to wait for one, without a worker.

    The prompt has so many characters. A turn that asked nothing counts against no limit.
    """
    turn = Turn()
    if limits is None:
        yield turn
        return
    taken = turns.take_turn(limits, lease, characters // CHARACTERS_PER_TOKEN + limits.reply_tokens)
    if isinstance(taken, turns.Full):
        turns.wait_for_turn(lease, taken, limits.name)
        raise Leaving(lease.run_id)
    try:
        yield turn
    finally:
        # The answer is worth more than the place, which is free with the run's lease.
        try:
            leave = (
                partial(turns.end_turn, taken, turn.used) if turn.asked else partial(turns.give_back, taken)
            )
            once_there(leave)
        except DatabaseError as fault:
            log.warning("run %s: the end of its turn was not saved: %s", lease.run_id, fault)
