"""Negative controls: each takes one protection away in a worker of the bench, which must be found then.

Nothing of this exists in the product: a function or a property is replaced in the test's own process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from django.db.models import Q
from django.db.models.functions import Now

from runs import driver
from runs.adapters import toolbox, tools
from runs.driver import holds
from runs.engine import gates
from runs.engine.effects import ToolCall
from runs.failpoints import failpoint
from runs.models import RunStatus
from runs.models.run import RunQuerySet
from runs.store import leases, log, shared_limits
from tests.chaos import far_side
from tests.chaos.far_side import EFFECTS, Call, Place, Result


@dataclass(frozen=True)
class Control:
    """A protection that is off, and which invariant must be seen broken."""

    invariant: str
    what: str
    take_away: Callable[[], None]


def _no_fence() -> None:
    """Writes carry no epoch, and leases are not renewed; the database's unique key is dropped beside."""
    whole = log._take_the_seat

    def take(cursor: Any, batch: Any, head_hash: str) -> None:
        seat = log.Run.objects.filter(pk=batch.run_id).values_list("epoch", flat=True)[0]
        batch.epoch = seat
        whole(cursor, batch, head_hash)

    log._take_the_seat = take
    leases.renew = lambda lease: True
    holds.Hold.wanted = lambda self: True  # type: ignore[method-assign]


def _ignored_key() -> None:
    """The far side takes no notice of the key."""
    _replace_pay(lambda call, key: EFFECTS.happen("paid", key, call))


def _remember_then_act() -> None:
    """The far side remembers the key in one act, and does the deed in the next."""

    def pay(call: Call, key: str) -> None:
        if EFFECTS.remember(key):
            failpoint("remembered")
            EFFECTS.happen("pay", key, call)

    _replace_pay(pay)


def _replace_pay(deed: Callable[[Call, str], None]) -> None:
    def run(call: Call, place: Place) -> Result:
        return far_side.slowly(call, lambda: deed(call, place.key))

    changed = dict(tools.TOOLS) | {"pay": replace(tools.TOOLS["pay"], run=run)}
    toolbox.Toolbox.__init__.__defaults__ = (changed, (), ())


def _no_started_row() -> None:
    """A deed is not written down before it is done."""
    ToolCall.repeatable = property(lambda self: True)  # type: ignore[assignment, method-assign]


def _no_looks() -> None:
    """A run is taken from its worker as soon as the lease has run out."""
    leases.LOST = Q(status=RunStatus.RUNNING, lease_until__lt=Now())
    leases._DUE = leases._DUE | leases.LOST
    leases._claimable.cache_clear()
    RunQuerySet.due = lambda runs: runs.filter(leases.LOST)  # type: ignore[assignment, method-assign]


def _uncounted() -> None:
    """Who takes a run over does not say that a worker was lost."""
    leases.tell_lost = lambda *_: None


def _no_purse() -> None:
    """No limit is looked at before a call, and nothing is set aside for it."""
    gates.limits = lambda snapshot, effect, passed: gates.PASS
    shared_limits.reserve = lambda run, epoch, worst, limits: True


def _no_family() -> None:
    """A run knows of no limit but its own."""
    shared_limits.limits_shared_by = lambda run: {}
    shared_limits.reserve = lambda run, epoch, worst, limits: True


def _leaking() -> None:
    """Whoever looks for a run to drive loses a descriptor, and leaves a thread behind."""
    whole = driver.drive

    def drive(run_id: int, worker: str = "", suspects: Literal["taken", "refused"] = "taken") -> list[int]:
        for _ in range(20):
            os.dup(0)
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return whole(run_id, worker, suspects)

    driver.drive = drive


CONTROLS: dict[str, Control] = {
    "key": Control("I4", "the tool ignores the key", _ignored_key),
    "remember": Control("I4", "the tool remembers the key first and acts then", _remember_then_act),
    "started": Control("I4", "no row says that a deed was started", _no_started_row),
    "looks": Control("D4", "a run is lost as soon as its lease has run out", _no_looks),
    "count": Control("D4b", "lost workers are not counted", _uncounted),
    "purse": Control("I6", "no limit is looked at", _no_purse),
    "shared": Control("I6", "a fork knows nothing of its root's limit", _no_family),
    "leak": Control("I12", "a worker leaks descriptors and threads", _leaking),
    "fence": Control("I3", "no epoch in any write, and no unique key", _no_fence),
}
