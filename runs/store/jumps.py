"""Shift leases and waits when the database's clock jumps: it is set, or the machine slept."""

from __future__ import annotations

import time
from datetime import timedelta

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from runs.models import Run, RunStatus
from runs.store.db import now

LEAST_S = 2.0
"""Seconds; a smaller jump does no harm: a lease outlasts it."""

READ_S = 0.5
"""Seconds; a longer reading of both clocks means that this process was held up in between."""


class Clocks:
    """The database's clock beside this process's own, which never jumps."""

    def __init__(self) -> None:
        self.ahead: float | None = None
        """Seconds by which the database's clock was ahead at the last check."""

    def follow(self) -> None:
        """After a jump of the database's clock since the last check, renew all leases; after one back, shorten waits.

        Several processes may do so at once: at worst a run is due too early.
        """
        began = time.monotonic()
        ahead = now().timestamp() - began
        if time.monotonic() - began > READ_S:
            return
        jump = ahead - self.ahead if self.ahead is not None else 0.0
        self.ahead = ahead
        if abs(jump) < LEAST_S:
            return
        lease = Now() + timedelta(seconds=settings.LEASE_SECONDS)
        Run.objects.filter(status=RunStatus.RUNNING).exclude(worker="").update(
            lease_until=lease, silent_looks=0
        )
        if jump < 0:
            waiting = Run.objects.filter(status=RunStatus.QUEUED, due_at__gt=Now())
            waiting.update(due_at=F("due_at") + timedelta(seconds=jump))
