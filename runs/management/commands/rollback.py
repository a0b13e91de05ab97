"""Takes a run back to the state after one of its transitions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.going_back import told_of_going_back
from runs.management.steering import SteeringCommand
from runs.models import Run
from runs.reading.again import again


class Command(SteeringCommand):
    """Takes a run back to the state after one of its transitions."""

    help = (
        "Go back to the state after a live transition. What was done outside stays done; what was spent is spent; "
        "what people did after it to the context counts no more."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to."""
        super().add_arguments(parser)
        parser.add_argument(
            "--to", type=int, required=True, metavar="SEQ", help="the seq of a live transition"
        )

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """The move."""
        told = told_of_going_back(again(run, options["to"]), options["to"])
        after = actions.rewind(run, to=options["to"], by=None)
        if told:
            self.stdout.write(told)
        return after
