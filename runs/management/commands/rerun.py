"""Asks the model anew from a row on: a fork that changes nothing."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.copying import CopyingCommand
from runs.models import Run
from runs.reading.again import again


class Command(CopyingCommand):
    """Asks the model anew from a row on, in a new run; says first what that is likely to cost."""

    help = "Run again from a live transition (0: from the beginning), in a new run. --estimate only says what it costs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whether it is to be done at all."""
        super().add_arguments(parser)
        parser.add_argument(
            "--estimate", action="store_true", help="say what it is likely to cost, and do nothing"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Say what it costs, then do it."""
        estimate = again(self.run_of(options), options["at"])
        if not options["json"]:
            self.stdout.write(f"Likely to be done again: {estimate.sentence}")
        if not options["estimate"]:
            super().handle(*args, **options)

    def copied(self, run: Run, options: dict[str, Any]) -> Run:
        """The new run."""
        return actions.rerun(
            run,
            at=options["at"],
            by=None,
            answers=self.answers(options),
            message=options["message"],
            driven_by=self.driven_by(options),
        )
