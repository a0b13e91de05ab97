"""The hold of a worker on a run: a lease that one thread per process keeps renewing."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import connection

from runs import store
from runs.models import Run

log = logging.getLogger(__name__)

GLANCE_S = 0.5
"""Seconds between looks whether a call that is under way is still wanted."""


@dataclass(slots=True)
class Hold:
    """A lease that is being renewed; `lost` once somebody else has the seat."""

    lease: store.Lease
    lost: bool = False
    looked_at: float = 0.0

    def wanted(self) -> bool:
        """Whether this worker still has the seat; looks at the database at most every GLANCE_S."""
        now = time.monotonic()
        if not self.lost and now - self.looked_at > GLANCE_S:
            self.looked_at = now
            self.lost = not Run.objects.filter(pk=self.lease.run_id, epoch=self.lease.epoch).exists()
        return not self.lost


class _Renewer:
    """One thread per process renews every lease that the process holds."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def add(self, hold: Hold) -> None:
        """Renew `hold` from now on."""
        with self._lock:
            self._holds[id(hold)] = hold
            if self._thread is None or not self._thread.is_alive() or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._renew_all, name="lease-renewer", daemon=True)
                self._thread.start()

    def remove(self, hold: Hold) -> None:
        """Renew it no longer."""
        with self._lock:
            self._holds.pop(id(hold), None)
            if not self._holds:
                self._wake.set()

    def _renew_all(self) -> None:
        while True:
            self._wake.wait(store.RENEW_S)
            self._wake.clear()
            with self._lock:
                holds = list(self._holds.values())
                if not holds:
                    self._thread = None
                    return
            for hold in holds:
                try:
                    hold.lost = hold.lost or not store.renew(hold.lease)
                except Exception:  # the database may be away for a moment; the lease outlasts three tries
                    log.exception("the lease of run %s could not be renewed", hold.lease.run_id)
            connection.close()


_renewer = _Renewer()


@contextmanager
def held(lease: store.Lease) -> Iterator[Hold]:
    hold = Hold(lease, looked_at=time.monotonic())
    _renewer.add(hold)
    try:
        yield hold
    finally:
        _renewer.remove(hold)
