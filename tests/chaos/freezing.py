"""Processes that freeze: one alone, one inside a write, all of them together as when a machine sleeps."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import F

from agentsite.supervise import state_of
from runs.models import Exchange, Interrupt
from tests.chaos.far_side import SILENT, is_unsure
from tests.chaos.findings import Violation
from tests.chaos.report import Report
from tests.chaos.wiring import Actor
from tests.stack import comes

BEYOND = 1.3
"""For so many leases a process is frozen."""

WRITERS = {
    "worker": (("inside_claim", 2), ("inside_commit", 3), ("inside_question", 1)),
    "celery": (("inside_claim", 2), ("inside_commit", 3)),
}
"""Where in an open transaction a worker of each kind freezes, and up to which of the times that it gets there."""


def inside_a_write(kind: str, dice: random.Random) -> dict[str, Any]:
    """Wire a process so that it freezes inside a write."""
    place, most = dice.choice(WRITERS[kind])
    return {"failpoint": f"{place}:freeze:{dice.randint(1, most)}"}


@dataclass(frozen=True)
class Asleep:
    """A process that is frozen."""

    actor: Actor
    until: float
    inside: str = ""
    """The place in a write where it froze."""


@dataclass(frozen=True)
class UnderWay:
    """A call that must not be made twice, and the process that is in it."""

    run: int
    seq: int
    fingerprint: str
    pid: int


class Freezer:
    """Freezes processes, and wakes them again or has them killed."""

    def __init__(self, report: Report, dice: random.Random) -> None:
        self.report, self.dice = report, dice
        self.asleep: list[Asleep] = []
        self.suspends = 0
        self.under_way = 0
        """Calls that must not be made twice, in all suspends."""

    @property
    def pids(self) -> set[int]:
        """Return the processes that are frozen."""
        return {one.actor.pid for one in self.asleep}

    def forget_all_but(self, actors: list[Actor]) -> None:
        """Forget the processes that have ended."""
        self.asleep = [one for one in self.asleep if one.actor in actors]

    def freeze(self, actor: Actor) -> None:
        """Freeze a process for longer than the lease; then it goes on as if nothing had been."""
        if _signalled(actor.pid, signal.SIGSTOP):  # else it has just died at its failpoint
            self.report.faults["frozen beyond the lease, then woken"] += 1
            self.asleep.append(Asleep(actor, _until()))

    def wake(self, actors: list[Actor], kill: Callable[[Actor, str], None]) -> None:
        """Wake those whose time has come; half of those that froze inside a write are killed, as `up` does."""
        self._see_writers(actors)
        for one in [one for one in self.asleep if one.until < time.monotonic()]:
            self.asleep.remove(one)
            if one.inside and self.dice.random() < 0.5:
                self.report.faults["frozen inside a write, then killed"] += 1
                kill(one.actor, f"frozen at {one.inside}")
                continue
            if one.inside:
                self.report.faults["frozen inside a write, then woken"] += 1
            _signalled(one.actor.pid, signal.SIGCONT)

    def _see_writers(self, actors: list[Actor]) -> None:
        """Note which processes have frozen at a failpoint inside a write."""
        for actor in actors:
            place, _, how = actor.wiring.failpoint.partition(":")
            if how.startswith("freeze") and actor.pid not in self.pids and _is_stopped(actor.pid):
                self.asleep.append(Asleep(actor, _until(), place))

    def suspend(self, actors: list[Actor], weighed: int) -> Iterator[Violation]:
        """Freeze all processes for longer than the lease, wake them, and judge the calls that were under way."""
        everybody = [*(actor.pid for actor in actors), *filter(None, [weighed])]
        pids = [pid for pid in everybody if not _is_stopped(pid)]
        sound = set(pids) - {actor.pid for actor in actors if actor.wiring.file_bytes}
        comes(lambda: _calls_of(sound), settings.LEASE_SECONDS, 0.005)
        for pid in pids:
            _signalled(pid, signal.SIGSTOP)
        calls = _calls_of(sound)
        time.sleep(BEYOND * settings.LEASE_SECONDS)
        for pid in pids:
            _signalled(pid, signal.SIGCONT)
        self.suspends += 1
        self.under_way += len(calls)
        self.report.faults["all frozen together, then woken"] += 1
        yield from _wrongly_asked(calls)


def _until() -> float:
    return time.monotonic() + BEYOND * settings.LEASE_SECONDS


def _signalled(pid: int, number: signal.Signals) -> bool:
    """Send the signal; False where the process has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _is_stopped(pid: int) -> bool:
    return state_of(pid) == "T"


def _calls_of(pids: set[int]) -> list[UnderWay]:
    """Return the calls of frozen workers that must not be made twice and end normally."""
    begun = Exchange.objects.filter(status=Exchange.Status.STARTED, name__in=SILENT).exclude(run__worker="")
    found = begun.filter(seq=F("run__head")).exclude(run__goal__startswith="steered").select_related("run")
    held = [
        UnderWay(one.run_id, one.seq, one.fingerprint, int(one.run.worker.split("-")[0]))
        for one in found
        if not is_unsure(json.loads(one.request_json)["args"]["n"])
    ]
    return [call for call in held if call.pid in pids]


def _wrongly_asked(calls: list[UnderWay]) -> Iterator[Violation]:
    """D4: the worker lives, has the answer and the last epoch; all the same a person is asked whether it happened."""
    comes(lambda: not any(map(_is_open, calls)), 2 * settings.LEASE_SECONDS, 0.02)
    for call in calls:
        if _question(call) and state_of(call.pid) not in ("", "Z"):
            yield Violation(
                "D4", call.run, f"row {call.seq}: its worker slept through a call, and a person is asked"
            )


def _is_open(call: UnderWay) -> bool:
    """Return whether the call is neither answered nor asked about, and its worker lives."""
    begun = Exchange.objects.filter(run_id=call.run, seq=call.seq, status=Exchange.Status.STARTED)
    return state_of(call.pid) not in ("", "Z") and begun.exists() and not _question(call)


def _question(call: UnderWay) -> bool:
    asked = Interrupt.objects.filter(run_id=call.run, seq__gt=call.seq, fingerprint=call.fingerprint)
    return asked.filter(kind="may_have_happened").exists()
