"""Shared parts of abort, pause, resume and rollback."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs.management.asking import RunsCommand, halt_notice, run_of
from runs.models import Run, RunStatus


class SteeringCommand(RunsCommand):
    """Makes one move on one run, as the installation's operator."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run."""
        parser.add_argument("run", metavar="RUN")

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Make the move of the command."""
        raise NotImplementedError(f"{type(self).__module__} makes no move")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the move, and print where the run is."""
        run = run_of(options["run"])
        after = self.steer(run, options)
        self.stdout.write(f"Run {after.pk}: {after.status}, at {after.node}, step {after.head}.")
        if after.status in (RunStatus.QUEUED, RunStatus.RUNNING) and (notice := halt_notice()):
            self.stdout.write(notice)
