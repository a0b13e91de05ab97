"""Prints a run as JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs.management.asking import bad_input, run_of
from runs.reading import export


class Command(BaseCommand):
    """The whole run: its rows, budget, interrupts, files and exchanges."""

    help = "Print a run as JSON (spec/interfaces.md, “Export”)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which run, in which form."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--format", default="json", metavar="json")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print it."""
        if options["format"] != "json":
            raise bad_input(f"A run can't be exported as {options['format']}. Possible: json.")
        self.stdout.write(json.dumps(export(run_of(options["run"])), ensure_ascii=False, indent=2))
