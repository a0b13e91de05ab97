"""Drives a run: claim it, ask the kernel for the next move, commit it, perform its ask, until the run parks or ends.

The loop is the same in a worker and in `launch --inline`. It holds no truth: the next worker of a run finds everything
it needs in the steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from django.db import DatabaseError

from runs import live
from runs.driver.alone import drive_alone
from runs.driver.away import once_there
from runs.driver.desk import DESK
from runs.driver.draining import cut_off, drain, what_is_cut
from runs.driver.holds import closing, held, holds_any, reopen
from runs.driver.mcp import look_at_wanted, tools_here
from runs.driver.model_checks import check_wanted
from runs.driver.ports import load_libraries, no_price, tool_specs, unfit_for, why_not, without_price
from runs.driver.replaying import Difference, made_again, record_of, replay_run
from runs.driver.slices import WHOLE, BadAnswer, Slice
from runs.driver.worker import Worker
from runs.failpoints import failpoint
from runs.machines import CATALOGUE, NoMachine
from runs.models import Run, RunStatus
from runs.store import db, errors, halting, health, leases

__all__ = [
    "BadAnswer",
    "Difference",
    "NoMachine",
    "Slice",
    "check_wanted",
    "closing",
    "cut_off",
    "drain",
    "drive",
    "drive_alone",
    "drive_among_others",
    "drive_inline",
    "holds_any",
    "load_libraries",
    "look_at_wanted",
    "made_again",
    "no_price",
    "once_there",
    "record_of",
    "reopen",
    "replay_run",
    "tool_specs",
    "tools_here",
    "unfit_for",
    "what_is_cut",
    "why_not",
    "without_price",
]

T = TypeVar("T")

log = logging.getLogger(__name__)

POSTPONED_S = 30.0
"""Seconds until a run is retried after a fault of our own code."""

LOOK_AGAIN_S = 0.1
"""Seconds until this process checks a run again that a worker elsewhere has claimed."""


def drive_among_others(run_id: int) -> list[int]:
    """Drive the run as `drive` does; in a process of its own if its last worker was lost and it has not moved."""
    try:
        return drive(run_id, suspects="refused")
    except leases.Suspect:
        return drive_alone(run_id)


def drive(run_id: int, worker: str = "", suspects: Literal["taken", "refused"] = "taken") -> list[int]:
    """Drive the run for one slice, if it is due and no worker has it. Return the runs that want a worker next."""
    if closing():
        leases.want_a_hint(run_id)
        return []
    token = worker or leases.new_worker()
    with DESK.seat(unwanted=closing) as seated:
        if not seated:
            leases.want_a_hint(run_id)
            return []
        failpoint("before_claim")
        return _unless_away(run_id, token, lambda: _drive(run_id, token, suspects), [run_id])


def _unless_away(run_id: int, token: str, drive_slice: Callable[[], T], otherwise: T) -> T:
    """Drive a slice. If the database was away, release the run once it is back, due at once."""
    try:
        return drive_slice()
    except DatabaseError as fault:
        if not health.is_away(fault):
            raise
        once_there(lambda: leases.give_back(run_id, token))
        return otherwise


def _drive(run_id: int, token: str, suspects: Literal["taken", "refused"]) -> list[int]:
    lease = leases.claim(run_id, token, suspects)
    if lease is None:
        return []
    failpoint("after_claim")
    with held(lease, DESK) as hold:
        try:
            return Worker(hold).drive(Slice())
        except errors.Fenced:
            return [run_id]  # the new lease's owner may have hinted while this worker still had the run
        except BadAnswer as fault:
            log.warning("run %s: %s It waits for a person.", run_id, fault.sentence)
            return []
        except Exception as fault:
            if health.is_away(fault):
                raise
            log.exception("run %s met a fault; it is tried again in %g s", run_id, POSTPONED_S)
            leases.postpone(lease, POSTPONED_S, fault)
            return []
        finally:
            leases.let_go(lease)
            live.ring(run_id, 0)


def drive_inline(run_id: int) -> Run:
    """Drive the run, and the children it waits for, in this process until it ends or waits for a person.

    A run of an unknown machine is left as it is. Raises `store.Halted` if the site is halted.
    """
    while True:
        run = Run.objects.get(pk=run_id)
        if run.finished or run.status == RunStatus.PAUSED or run.machine not in CATALOGUE:
            return run
        if run.status == RunStatus.WAITING:
            if not _child_moved(run):
                return Run.objects.get(pk=run_id)
            continue
        wait = (run.due_at - db.now()).total_seconds()
        if wait > 0:
            time.sleep(wait)
        if not _drive_strictly(run_id):
            if (halt := halting.halt_now()) is not None:
                raise halting.Halted(halt)
            time.sleep(LOOK_AGAIN_S)
            leases.look_for_lost(Run.objects.filter(pk=run_id))


def _child_moved(run: Run) -> bool:
    """Drive the child of a waiting `run` as far as it goes; return whether the run can go on."""
    child = Run.objects.filter(parent=run, ended_at__isnull=True).order_by("-pk").first()
    if child is not None:
        return drive_inline(child.pk).finished
    return Run.objects.filter(pk=run.pk).exclude(status=RunStatus.WAITING).exists()


def _drive_strictly(run_id: int) -> bool:
    """Drive one slice without other workers; the caller reports a bad answer in the settings."""
    token = leases.new_worker()
    return _unless_away(run_id, token, lambda: _driven_strictly(run_id, token), otherwise=True)


def _driven_strictly(run_id: int, token: str) -> bool:
    lease = leases.claim(run_id, token)
    if lease is None:
        return False
    failpoint("after_claim")
    with held(lease) as hold:
        try:
            Worker(hold).drive(WHOLE)
        except errors.Fenced:
            return True
        finally:
            leases.let_go(lease)
    return True
