"""Takes a run back to the state after one of its transitions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.steering import SteeringCommand
from runs.models import Run


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
        return actions.rewind(run, to=options["to"], by=None)
