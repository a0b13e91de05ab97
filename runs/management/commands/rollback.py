"""Takes a run back to the state after one of its transitions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.db import transaction

from runs import actions
from runs.management.going_back import GO_BACK, check_sure, told_of_going_back
from runs.management.steering import SteeringCommand
from runs.models import Run
from runs.reading.again import again
from runs.store import for_people
from runs.store.log import lock


class Command(SteeringCommand):
    """Takes a run back to the state after one of its transitions."""

    help = (
        "Roll back to the state after a live transition. Side effects and spending stay; changes to the context "
        "after it are rolled back. If there are any, the command lists them and needs --sure (exit code 2)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to."""
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
        """The move, and what it leaves done or undone."""
        after, told = _went_back(run, options)
        if told:
            self.stdout.write(told)
        return after


@for_people
@transaction.atomic
def _went_back(run: Run, options: dict[str, Any]) -> tuple[Run, str]:
    """The move: made, and taken back where it leaves something done or undone and nobody is sure of it.

    So it is refused for other reasons first, and no call begins between what is told and the move.
    """
    to = options["to"]
    lock(run.pk)
    told = told_of_going_back(again(run, to), to)
    after = actions.rewind(run, to=to, by=None)
    check_sure(told, GO_BACK, options)
    return after, told
