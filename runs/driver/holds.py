"""A worker's hold on a run: a lease that one thread per process keeps renewing.

A hold ends early if the site is halted or the process is to end. During a repeatable call another thread then releases
the run (the call may be silent for minutes); any other call is finished first.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, OperationalError, connection
from django.utils import timezone

from runs import live
from runs.driver.desk import Desk
from runs.models import Run
from runs.store import db, errors, halting, health, leases
from runs.store.log import Asked

log = logging.getLogger(__name__)

GLANCE_S = 0.5
"""Seconds between checks whether the calls in flight are still wanted: one for a whole process."""


JUMP_S = 0.5
"""Seconds; a clock that moved by more has jumped: leases are renewed at once."""


TOLD_AFTER_S = 1.0
"""Seconds after which a call in flight is shown to people: most end before."""


class Leaving(Exception):
    """The worker leaves the run as it stands; the effect at hand has not happened."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} is let go.")


@dataclass(slots=True)
class Hold:
    """A lease that is being renewed; `lost` once another owner has the run."""

    lease: leases.Lease
    lost: bool = False
    desk: Desk | None = None
    """The desk of its thread's seat; None if it works alone in its process."""
    leaving: bool = False
    """True if the run is to be released between two moves."""
    given_back: bool = False
    """True if the run was released during its worker's call; the call's result is fenced."""
    doing: dict[str, Any] | None = None
    """Its worker's current call."""
    doing_since: float = 0.0
    told: dict[str, Any] | None = None
    """The last call shown to people."""
    _cuttable: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def wanted(self) -> bool:
        """Return True if this worker is to go on, as far as the process knows."""
        return not self.lost and not self.leaving

    @contextmanager
    def within(self, asked: Asked) -> Iterator[None]:
        """Register the worker's current call for the `with`."""
        since = timezone.now().isoformat()
        told = {"seq": asked.seq, "kind": asked.kind, "name": asked.name, "attempt": asked.attempt}
        self.doing_since = time.monotonic()
        self.doing = {**told, "since": since}
        try:
            yield
        finally:
            self.doing = None

    @contextmanager
    def outside(self, *, slow: bool) -> Iterator[None]:
        """Give up the thread's seat during a call; for a slow one its connection too."""
        if slow and not connection.in_atomic_block:
            connection.close()  # the next query opens one
        with self.desk.left() if self.desk is not None else nullcontext():
            yield

    @contextmanager
    def cuttable(self) -> Iterator[None]:
        """Allow a repeatable effect to be cut at any time; raises `Leaving` if it should not begin."""
        if not self.wanted() and self.lost:
            raise errors.Fenced(self.lease.run_id, self.lease.epoch)
        with self._guard:
            if self.leaving:
                raise Leaving(self.lease.run_id)
            self._cuttable = True
        try:
            yield
        finally:
            with self._guard:
                self._cuttable = False

    def leave(self) -> bool:
        """Ask for the run's release; return whether it was released at once, during a repeatable call."""
        with self._guard:
            self.leaving = True
            if not self._cuttable or self.given_back:
                return False
            with db.impatient():
                self.given_back = leases.hand_back(self.lease)
            return self.given_back


class _Renewer:
    """Every hold of this process, and the one thread that renews their leases and checks the kill switch."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closing = False

    @property
    def closing(self) -> bool:
        """Return True if this process takes no more runs."""
        return self._closing

    def add(self, hold: Hold) -> None:
        """Renew `hold` from now on."""
        with self._changed:
            hold.leaving = self._closing
            self._holds[id(hold)] = hold
            if self._thread is None or not self._thread.is_alive() or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._watch_all, name="lease-renewer", daemon=True)
                self._thread.start()

    def remove(self, hold: Hold) -> None:
        """Stop renewing the hold."""
        with self._changed:
            self._holds.pop(id(hold), None)
            if not self._holds:
                self._wake.set()
            self._changed.notify_all()

    def close(self) -> list[int]:
        """Take no more runs, and release all; return those released during a call."""
        with self._changed:
            self._closing = True
            holds = list(self._holds.values())
        return [hold.lease.run_id for hold in holds if leave(hold)]

    def open(self) -> None:
        """Take runs again."""
        self._closing = False

    def wait_until_left(self, seconds: float) -> bool:
        """Wait until no run is held, except those released during a call; return whether it was in time."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(hold.given_back for hold in self._holds.values()), timeout=seconds
            )

    def wake(self) -> None:
        """Renew every lease now, and look at the kill switch."""
        self._wake.set()

    def held_now(self) -> list[Hold]:
        """Return every hold of this process."""
        return list(self._holds.values())

    def _watch_all(self) -> None:
        renewed, clock = time.monotonic(), clock_ahead()
        due: list[Hold] = []
        while True:
            woken = self._wake.wait(GLANCE_S)
            self._wake.clear()
            with self._changed:
                holds = list(self._holds.values())
                if not holds:
                    self._thread = None
                    return
            jumped = abs(clock_ahead() - clock) > JUMP_S  # the machine slept, or its clock was set
            if woken or jumped or time.monotonic() - renewed >= leases.RENEW_S:
                renewed, clock, due = time.monotonic(), clock_ahead(), holds
            try:
                due = [hold for hold in due if not renew(hold)]
                for hold in holds:
                    _tell(hold)
                _look(holds)
            except DatabaseError:  # the database is away: all are renewed as soon as it is back
                due = holds if health.wait_until_back(closing) else due
            connection.close()


def clock_ahead() -> float:
    """Return the seconds by which the wall clock is ahead of the monotonic one."""
    return time.time() - time.monotonic()


def renew(hold: Hold) -> bool:
    """Return True if the renewal is settled for now: a lease under a row lock is not lost, and is retried at once."""
    try:
        hold.lost = hold.lost or hold.given_back or not leases.renew(hold.lease)
    except Exception as fault:
        if health.is_away(fault):
            raise
        if isinstance(fault, OperationalError):
            log.warning("the lease of run %s is not renewed yet: %s", hold.lease.run_id, fault)
            return False
        # the lease outlasts three tries
        log.exception("the lease of run %s could not be renewed", hold.lease.run_id)
    return True


def _tell(hold: Hold) -> None:
    """Show a long call to people, once."""
    doing = hold.doing
    if doing is None or hold.told is doing or time.monotonic() - hold.doing_since < TOLD_AFTER_S:
        return
    hold.told = doing
    try:
        leases.tell_doing(hold.lease, doing)
    except Exception as fault:  # only for display
        log.warning("the call of run %s that is under way can't be told: %s", hold.lease.run_id, fault)
    else:
        live.ring(hold.lease.run_id, 0)


def _look(holds: list[Hold]) -> None:
    """Find runs taken by others, and, if the site is halted, release every run."""
    try:
        seats = Run.objects.filter(pk__in=[hold.lease.run_id for hold in holds])
        epochs = dict(seats.values_list("pk", "epoch"))
        halted = halting.halt_now() is not None
    except Exception as fault:
        if health.is_away(fault):
            raise
        log.exception("seats and kill switch can't be read; claims, intents and commits read them themselves")
        return
    for hold in holds:
        # The renewal finds deleted runs.
        hold.lost = hold.lost or epochs.get(hold.lease.run_id, hold.lease.epoch) != hold.lease.epoch
        if halted:
            leave(hold)


def leave(hold: Hold) -> bool:
    """Have the run let go, and log what hinders it. Return whether that was possible at once."""
    try:
        return hold.leave()
    except Exception:  # its lease expires by itself
        log.exception("run %s could not be given back", hold.lease.run_id)
        return False


_renewer = _Renewer()


@contextmanager
def held(lease: leases.Lease, desk: Desk | None = None) -> Iterator[Hold]:
    """Hold a claimed run for the `with`; by a thread with a seat at `desk`."""
    hold = Hold(lease, desk=desk)
    _renewer.add(hold)
    try:
        yield hold
    finally:
        _renewer.remove(hold)


def held_now() -> list[Hold]:
    """Return every hold of this process."""
    return _renewer.held_now()


def renew_now() -> None:
    """Have every lease renewed now, beside the work, and the kill switch looked at."""
    _renewer.wake()


def look() -> None:
    """Check now which of the held runs are still wanted."""
    _look(held_now())


def closing() -> bool:
    """Return True if this process takes no more runs."""
    return _renewer.closing


def close() -> list[int]:
    """Take no more runs and release the held ones; return those released during a call."""
    return _renewer.close()


def reopen() -> None:
    """Take runs again (a test's own process goes on)."""
    _renewer.open()


def holds_any() -> bool:
    """Return True if a thread of this process is still in a run, even a released one."""
    return bool(held_now())


def not_left() -> list[int]:
    """Return the runs still held, except those released during a call."""
    return [hold.lease.run_id for hold in held_now() if not hold.given_back]


def wait_until_left(seconds: float) -> bool:
    """Wait until the calls in flight are done and every run is released; return whether it was in time."""
    return _renewer.wait_until_left(seconds)
