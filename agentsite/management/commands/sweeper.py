"""`manage.py sweeper`: the scheduler process of `up`."""

import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections
from django.db.models.functions import Now

from agentsite import presence
from agentsite.leaving import leave, leave_in_a_thread
from agentsite.restoring import renew_old_id
from runs import store
from runs.models import Run
from runs.tasks import drive_on, sweep

LATE_S = 6.0
"""How long a run may be due before the scheduler lends a hand: its hints were lost, or nobody took them."""

HANDS = 16

log = logging.getLogger(__name__)


class Command(BaseCommand):
    """Looks about once a second for runs that are due, left by a dead worker, or never picked up."""

    help = "Queue the runs that are due, again and again, until stopped."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """How often."""
        parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS")

    def handle(self, *args: Any, every: float, **options: Any) -> None:
        """Sweep until a signal; a sweep that fails is logged, and the next one tries again."""
        stopping = threading.Event()

        def told(*_: Any) -> None:
            if stopping.is_set():
                leave_in_a_thread()
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, told)
        presence.begin()
        hands = Hands()
        while not stopping.is_set():
            try:
                sweep()
                hands.take(late_runs())
                renew_old_id()
            except Exception:
                log.exception("the sweep failed; the next one tries again")
            finally:
                connections.close_all()
            stopping.wait(every)
        hands.let_go()
        leave()


class Hands:
    """Threads that drive what nobody else drives; two on one run are kept apart by its lease."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(HANDS, thread_name_prefix="hand")
        self.taken: set[int] = set()
        self.waited_for = False
        """Whether more runs want a hand than there are hands."""

    def take(self, run_ids: list[int]) -> None:
        """Drive these, as far as hands are free."""
        wanting = [run_id for run_id in run_ids if run_id not in self.taken]
        free = HANDS - len(self.taken)
        self.waited_for = len(wanting) > free
        for run_id in wanting[:free]:
            self.taken.add(run_id)
            self.threads.submit(self._drive, run_id)

    def let_go(self) -> None:
        """Begin nothing new."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _drive(self, run_id: int) -> None:
        """A slice, or more where no hint is taken and nobody waits for this hand; the next sweep sees what is left."""
        try:
            drive_on(run_id, may_stay=lambda: not self.waited_for)
        except Exception:
            log.exception("run %s met a fault in the scheduler; it is tried again", run_id)
        finally:
            self.taken.discard(run_id)
            connections.close_all()


def late_runs() -> list[int]:
    """Runs that hints did not bring to a worker; all that are due where there are no hints."""
    if store.halt_now() is not None:
        return []
    late = Now() - timedelta(seconds=LATE_S if settings.HINTS else 0)
    return list(
        Run.objects.due().filter(due_at__lte=late).order_by("due_at").values_list("pk", flat=True)[:HANDS]
    )
