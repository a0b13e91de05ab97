"""Halt the site."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.asking import RunsCommand
from runs.reading.hidden_text import visible


class Command(RunsCommand):
    """Turns on the kill switch."""

    help = "Halt all runs: no call begins until unhalt. Runs keep their state."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the reason, for people who see the banner."""
        parser.add_argument("--reason", default="", metavar="TEXT")

    def handle(self, *args: Any, reason: str, **options: Any) -> None:
        """Halt the site, and print since when it is halted."""
        try:
            halt = actions.halt_site(by=None, reason=reason)
        except actions.AlreadyHalted as already:
            self.stdout.write(visible(already.sentence))
            return
        why = f" Why: {visible(halt.reason)}" if halt.reason else ""
        self.stdout.write(f"Halted by {halt.by_name} since {halt.at:%Y-%m-%d %H:%M:%S} UTC.{why}")
        self.stdout.write(
            "Calls under way are cut off or, where that is impossible, finished. Resume with unhalt."
        )
