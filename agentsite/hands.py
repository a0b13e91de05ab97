"""Drive runs in a worker without hints: hints are lost, or there is no broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

from django.conf import settings
from django.db import connections
from django.db.models.functions import Now

from runs import driver
from runs.driver.desk import HANDS
from runs.models import Run
from runs.store import halting, health
from runs.tasks import drive_on

LATE_S = 6.0
"""Seconds that a run is due before a worker looks for it: its hints were lost, or not taken."""

LOOK_S = 1.0

log = logging.getLogger(__name__)


class Hands:
    """Threads that drive runs without hints; two on one run are kept apart by its lease."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(HANDS, thread_name_prefix="hand")
        self.taken: set[int] = set()
        self.looking: dict[str, Future[None]] = {}
        """What is looked at now, beside runs."""
        self.waited_for = False
        """True if more runs wait than there are hands."""

    def take(self, run_ids: list[int]) -> None:
        """Drive these runs, as far as hands are free."""
        wanting = [run_id for run_id in run_ids if run_id not in self.taken]
        free = HANDS - len(self.taken)
        self.waited_for = len(wanting) > free
        for run_id in wanting[:free]:
            self.taken.add(run_id)
            self.threads.submit(self.drive, run_id)

    def look_beside(self) -> None:
        """List the requested tools of MCP servers and test models as requested, one of each at a time."""
        for what, look in (("an MCP server", driver.look_at_wanted), ("a model", driver.check_wanted)):
            if what not in self.looking or self.looking[what].done():
                self.looking[what] = self.threads.submit(_look, what, look)

    def let_go(self) -> None:
        """Begin nothing new."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    def drive(self, run_id: int) -> None:
        """Drive a slice, or more if hints are off and no run waits for this hand."""
        try:
            drive_on(run_id, may_stay=lambda: not self.waited_for)
        except Exception:
            log.exception("run %s met a fault; it is tried again", run_id)
        finally:
            self.taken.discard(run_id)
            connections.close_all()


def _look(what: str, look: Callable[[], bool]) -> None:
    try:
        while look():
            pass
    except Exception as fault:
        if not health.is_away(fault):
            log.exception("%s can't be looked at", what)
    finally:
        connections.close_all()


def lend_hands() -> None:
    """Look about once a second, in a thread of this process, until the process drains."""
    threading.Thread(target=_load_libraries, name="libraries", daemon=True).start()
    threading.Thread(target=_look_again_and_again, name="hands", daemon=True).start()


def _load_libraries() -> None:
    try:
        driver.load_libraries()
    except Exception:
        log.exception("the libraries of models can't be loaded now; the first call of each loads its own")
    finally:
        connections.close_all()


def _look_again_and_again() -> None:
    hands, pause = Hands(), threading.Event()
    while not driver.closing():
        try:
            hands.take(late_runs())
            hands.look_beside()
        except Exception as fault:
            if health.is_away(fault):
                health.wait_until_back(driver.closing)
            else:
                log.exception("runs that are due can't be looked for; the next look tries again")
        finally:
            connections.close_all()
        pause.wait(LOOK_S)
    hands.let_go()


def late_runs() -> list[int]:
    """Return the runs that hints did not bring to a worker; all that are due if hints are off."""
    if halting.halt_now() is not None:
        return []
    late = Now() - timedelta(seconds=LATE_S if settings.HINTS else 0)
    return list(
        Run.objects.due().filter(due_at__lte=late).order_by("due_at").values_list("pk", flat=True)[:HANDS]
    )
