"""Replay a run from its record."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs import actions
from runs.management.asking import RunsCommand, run_of
from runs.reading.exporting import export
from runs.reading.words import plural


class Command(RunsCommand):
    """Replays a run: every answer comes from the record, nothing is called, and every step must come out the same."""

    help = "Replay a run from its recorded answers, in a new run. Exit code 1: a step differs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run and the last step."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--to", type=int, metavar="SEQ", help="the last step to replay (default: all)")
        parser.add_argument("--json", action="store_true", help="print the export of the new run")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replay, and print the result."""
        run = run_of(options["run"])
        made, difference = actions.replay(run, by=None, to=options["to"])
        if options["json"]:
            self.stdout.write(json.dumps(export(made), ensure_ascii=False))
        else:
            self.stdout.write(
                f"Run {made.pk}: {plural(made.copied_upto or 0, 'step')} of run {run.pk} match."
            )
        if difference is not None:
            raise CommandError(str(difference), returncode=1)
