"""Roll a run back to the state after one of its transitions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.going_back import GO_BACK, told_first, told_of_going_back
from runs.management.steering import SteeringCommand
from runs.models import Run
from runs.reading.rollback import again
from runs.store import after_row


class Command(SteeringCommand):
    """Rolls a run back to the state after one of its transitions."""

    help = (
        "Roll back to the state after a live transition. Side effects and spending stay; changes to the context "
        "after it are rolled back. If there are any, the command lists them and needs --sure (exit code 2)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the target."""
        super().add_arguments(parser)
        parser.add_argument(
            "--to", type=int, required=True, metavar="SEQ", help="the seq of a live transition"
        )
        parser.add_argument(
            "--sure",
            action="store_true",
            help="roll back past side effects, or past changes to the context",
        )

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Roll back, and print lasting side effects and lost changes; if there are any, that needs --sure."""
        to = options["to"]
        seen, told = after_row.rollback_mark(run, to), told_of_going_back(again(run, to), to)
        with told_first(told, seen, GO_BACK, options) as mark:
            after = actions.rewind(run, to=to, by=None, seen=mark)
        if told:
            self.stdout.write(told)
        return after
