"""Makes a run again from its record."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs import actions
from runs.management.asking import RunsCommand, run_of
from runs.reading.exporting import export


class Command(RunsCommand):
    """A new run that takes every answer from the record: nothing is called, and every row must come out the same."""

    help = "Replay a run from its recorded answers, in a new run. Exit code 1: a step differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which run, how far."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--to", type=int, metavar="SEQ", help="the last step to replay (default: all)")
        parser.add_argument("--json", action="store_true", help="print the export of the new run")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay, and say what came out."""
        run = run_of(options["run"])
        made, difference = actions.replay(run, by=None, to=options["to"])
        if options["json"]:
            self.stdout.write(json.dumps(export(made), ensure_ascii=False))
        else:
            self.stdout.write(f"Run {made.pk}: {made.copied_upto} steps of run {run.pk} match.")
        if difference is not None:
            raise CommandError(str(difference), returncode=1)
