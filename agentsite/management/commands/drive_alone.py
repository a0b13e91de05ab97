"""`manage.py drive_alone`: one run in a process of its ownafter a lost worker."""

import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from agentsite.leaving import leave_in_a_thread
from runs import driver, hints


class Command(BaseCommand):
    """Drives one run for one slice."""

    help = "Drive one run for one slice, in a process of its own. For the worker's own use."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the run and the token of the lease."""
        parser.add_argument("run", type=int)
        parser.add_argument("worker")

    def handle(self, *args: Any, run: int, worker: str, **options: Any) -> None:
        """Drive the run; hint at the runs that it wakes."""
        for number in (signal.SIGINT, signal.SIGTERM):  # Ctrl-C reaches all of the terminal
            signal.signal(number, lambda *_: leave_in_a_thread())
        for wanting in driver.drive(run, worker):
            if wanting != run:  # the parent process goes on with that one
                hints.hint(wanting)
