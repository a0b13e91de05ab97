"""`manage.py sweeper`: the scheduler process of `up`."""

import logging
import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from agentsite import presence
from agentsite.restoring import renew_old_id
from runs.store import health
from runs.tasks import sweep

log = logging.getLogger(__name__)


class Command(BaseCommand):
    """Looks about once a second for runs that are due, left by a dead worker, or never picked up."""

    help = "Queue the runs that are due, again and again, until stopped."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the interval."""
        parser.add_argument("--every", type=float, default=1.0, metavar="SECONDS")

    def handle(self, *args: Any, every: float, **options: Any) -> None:
        """Sweep until a signal; a failed sweep is logged, and the next one tries again."""
        stopping = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stopping.set())
        presence.begin()
        send_spans(stopping)
        while not stopping.is_set():
            try:
                sweep()
                renew_old_id()
            except Exception as fault:
                if health.is_away(fault):
                    health.wait_until_back(stopping.is_set)
                    continue
                log.exception("the sweep failed; the next one tries again")
            finally:
                connections.close_all()
            stopping.wait(every)


def send_spans(stopping: threading.Event) -> None:
    """Send spans to the collector of the settings; without one nothing of it is imported."""
    if not settings.OTLP_ENDPOINT:
        return
    try:
        from agentsite import telemetry
    except ModuleNotFoundError as why:
        log.warning("no spans are sent: %s. Run: python3 manage.py add_provider otel", why)
        return
    telemetry.begin(stopping)
