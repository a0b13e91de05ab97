"""Takes a run back to the state after one of its transitions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.going_back import told_of_staying
from runs.management.steering import SteeringCommand
from runs.models import Run
from runs.reading.again import again


class Command(SteeringCommand):
    """Takes a run back to the state after one of its transitions."""

    help = "Go back to the state after a live transition. What was done outside stays done; what was spent is spent."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to."""
        super().add_arguments(parser)
        parser.add_argument(
            "--to", type=int, required=True, metavar="SEQ", help="the seq of a live transition"
        )

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """The move."""
        left_done = again(run, options["to"])
        after = actions.rewind(run, to=options["to"], by=None)
        if left_done.outside:
            self.stdout.write(told_of_staying(left_done, options["to"]))
        return after
