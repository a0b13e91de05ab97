"""The hold of a worker on a run: a lease that one thread per process keeps renewing.

A hold is left early where the site is halted or the process is to end. What is under way then and may be repeated is
given back from beside it (the call that it waits for may be silent for minutes); a deed is finished first.
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
"""Seconds between looks whether the calls that are under way are still wanted: one for all of a process."""


JUMP_S = 0.5
"""A clock that moved by more has jumped: leases are renewed at once."""


TOLD_AFTER_S = 1.0
"""Seconds after which a call that is under way is told to whoever looks at the run: most end before."""


class Leaving(Exception):
    """The worker leaves the run as it stands; nothing of the effect at hand has happened."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} is let go.")


@dataclass(slots=True)
class Hold:
    """A lease that is being renewed; `lost` once somebody else has the seat."""

    lease: leases.Lease
    lost: bool = False
    desk: Desk | None = None
    """Where its thread has a seat; None where it works alone in its process."""
    leaving: bool = False
    """The run is to be let go as soon as it stands between two moves."""
    given_back: bool = False
    """The seat was given back while its worker was in a call; what comes of the call is fenced."""
    doing: dict[str, Any] | None = None
    """The call that its worker is in."""
    doing_since: float = 0.0
    told: dict[str, Any] | None = None
    """The last one that was told to whoever looks at the run."""
    _cuttable: bool = False
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def wanted(self) -> bool:
        """Whether this worker is to go on, as far as the process has seen."""
        return not self.lost and not self.leaving

    @contextmanager
    def within(self, asked: Asked) -> Iterator[None]:
        """The call that the worker is in as long as the `with` lasts."""
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
        """Give the thread's seat to another one while it waits for a call; of a slow one its connection too."""
        if slow and not connection.in_atomic_block:
            connection.close()  # the next query opens one
        with self.desk.left() if self.desk is not None else nullcontext():
            yield

    @contextmanager
    def cuttable(self) -> Iterator[None]:
        """An effect that may be repeated: `Leaving` where it should not begin, and it may be cut at any time."""
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
        """Have the run let go; whether that was possible at once, the worker being in a call that may be repeated."""
        with self._guard:
            self.leaving = True
            if not self._cuttable or self.given_back:
                return False
            with db.impatient():
                self.given_back = leases.hand_back(self.lease)
            return self.given_back


class _Renewer:
    """Every hold of this process, and the one thread that renews their leases and looks at the kill switch."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._closing = False

    @property
    def closing(self) -> bool:
        """Whether this process takes no more runs."""
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
        """Renew it no longer."""
        with self._changed:
            self._holds.pop(id(hold), None)
            if not self._holds:
                self._wake.set()
            self._changed.notify_all()

    def close(self) -> list[int]:
        """Take nothing more, and let go of everything; the runs that were given back out of a call."""
        with self._changed:
            self._closing = True
            holds = list(self._holds.values())
        return [hold.lease.run_id for hold in holds if leave(hold)]

    def open(self) -> None:
        """Take runs again."""
        self._closing = False

    def wait_until_left(self, seconds: float) -> bool:
        """Until no run is held any more, those given back aside; whether that was so in time."""
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
            except DatabaseError:  # it is away: all are renewed as soon as it is back
                due = holds if health.wait_until_back(closing) else due
            connection.close()


def clock_ahead() -> float:
    """Return by how many seconds the clock on the wall is ahead of the one that never jumps."""
    return time.time() - time.monotonic()


def renew(hold: Hold) -> bool:
    """Whether that is settled for now: a lease whose row is locked is not lost, and is tried again at once."""
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
    """Once for each call that takes long."""
    doing = hold.doing
    if doing is None or hold.told is doing or time.monotonic() - hold.doing_since < TOLD_AFTER_S:
        return
    hold.told = doing
    try:
        leases.tell_doing(hold.lease, doing)
    except Exception as fault:  # it is only for the eye
        log.warning("the call of run %s that is under way can't be told: %s", hold.lease.run_id, fault)
    else:
        live.ring(hold.lease.run_id, 0)


def _look(holds: list[Hold]) -> None:
    """See which seats others have taken, and, where the site is halted, let every run go."""
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
        # A run that is gone is found out by the renewal.
        hold.lost = hold.lost or epochs.get(hold.lease.run_id, hold.lease.epoch) != hold.lease.epoch
        if halted:
            leave(hold)


def leave(hold: Hold) -> bool:
    """Have the run let go, and log what hinders it. Return whether that was possible at once."""
    try:
        return hold.leave()
    except Exception:  # its lease runs out by itself
        log.exception("run %s could not be given back", hold.lease.run_id)
        return False


_renewer = _Renewer()


@contextmanager
def held(lease: leases.Lease, desk: Desk | None = None) -> Iterator[Hold]:
    """The hold on a run that was claimed, for the length of a `with`; by a thread with a seat at `desk`."""
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
    """See now which of the runs that are held are still wanted."""
    _look(held_now())


def closing() -> bool:
    """Whether this process takes no more runs."""
    return _renewer.closing


def close() -> list[int]:
    """Take no more runs and let go of those that are held; which ones were given back out of a call."""
    return _renewer.close()


def reopen() -> None:
    """Take runs again (a test's own process goes on)."""
    _renewer.open()


def holds_any() -> bool:
    """Whether a thread of this process is still in a run, be it one whose seat was given back."""
    return bool(held_now())


def not_left() -> list[int]:
    """The runs that are still held, those given back aside."""
    return [hold.lease.run_id for hold in held_now() if not hold.given_back]


def wait_until_left(seconds: float) -> bool:
    """Wait until the deeds under way are done and every run is let go; whether that was so in time."""
    return _renewer.wait_until_left(seconds)
