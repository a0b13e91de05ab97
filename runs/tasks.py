"""Entrances for the queue. A message only says "look at run X": losing, repeating or reordering it loses nothing."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from itertools import takewhile

from celery import shared_task
from django.conf import settings
from django.db import OperationalError
from django.db.models import F, Q
from django.db.models.functions import Now

from runs import driver, live
from runs.hints import hint_beside, send
from runs.machines import CATALOGUE
from runs.models import Interrupt, Run
from runs.store import db, decisions, errors, halting, health, jumps, leases

log = logging.getLogger(__name__)

HINT_AGAIN_S = 5.0
"""Seconds until a due run that was not picked up is hinted at again."""

SWEEP_AT_MOST = 200
"""Runs hinted at in one sweep."""


@shared_task(ignore_result=True)
def drive_run(run_id: int) -> None:
    """Drive the run for a slice; hint at it and at others that want a worker then."""
    drive_on(run_id)


def drive_on(run_id: int, may_stay: Callable[[], bool] = lambda: True) -> None:
    """Drive the run for a slice, and other runs that want a worker then without a hint, in turns.

    If the broker takes no hint, only the sweep would find them. `may_stay` is asked before each further slice.
    """
    here = deque([run_id])
    while here:
        for wanting in driver.drive_among_others(here.popleft()):
            if not hint_beside(wanting) and wanting not in here:
                here.append(wanting)
        if not may_stay():
            return


_clocks = jumps.Clocks()
"""The clocks of this process's last sweep."""


def sweep() -> int:
    """Hint at every run that is due, left by a dead worker, or never picked up; apply deadlines. Return how many hints.

    While the site is halted there are no hints: no run could be claimed.
    """
    _clocks.follow()
    leases.look_for_lost()
    _apply_deadlines()
    if halting.halt_now() is not None:
        return 0
    quiet = (
        Q(hinted_at__isnull=True)
        | Q(hinted_at__lt=Now() - timedelta(seconds=HINT_AGAIN_S))
        | Q(hinted_at__lt=F("due_at"))
        | Q(hinted_at__gt=Now())
    )
    due = list(
        Run.objects.due().filter(quiet).order_by("due_at").values_list("pk", flat=True)[:SWEEP_AT_MOST]
    )
    if due:
        Run.objects.filter(pk__in=due).update(hinted_at=Now())
    # A silent broker holds up each hint for a while: none is sent after the first lost. The workers' hands are quicker.
    return sum(1 for _ in (takewhile(send, due) if settings.HINTS else due))


def _apply_deadlines() -> None:
    """Apply the deadlines of unanswered questions; their runs are due then, and hinted at as such.

    In no order: undecidable ones, however many, don't keep the others from it.
    """
    pending = Interrupt.objects.filter(status=Interrupt.Status.PENDING, run__machine__in=CATALOGUE)
    for interrupt in pending.filter(deadline__lte=Now()).order_by("?")[:SWEEP_AT_MOST]:
        try:
            with db.impatient():
                decisions.decide(interrupt.pk, decisions.unanswered(interrupt))
        except (errors.Conflict, errors.NotPossible):
            continue
        except Exception as fault:
            if health.is_away(fault):
                raise
            if isinstance(fault, OperationalError):  # as a rule its run's row is locked
                log.warning(
                    "question %s of run %s is not decided yet: %s", interrupt.pk, interrupt.run_id, fault
                )
                continue
            log.exception("question %s of run %s can't be decided", interrupt.pk, interrupt.run_id)
            continue
        live.ring(interrupt.run_id, 0)
        live.ring_inbox()
