"""Print a run: as JSON, as a script, or as a test."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from runs.management.asking import RunsCommand, bad_input, run_of
from runs.models import Run
from runs.reading.as_test import pytest_file
from runs.reading.exporting import export
from runs.reading.script_export import launch_of, script_of

FORMATS = {
    "json": "the whole run",
    "script": "its replies and tool results, as `launch --script` plays them",
    "launch": "the same with goal, settings and answers: one item of `launch --batch`",
    "pytest": "a test that reproduces its steps",
}


class Command(RunsCommand):
    """Prints the whole run: its steps, budget, interrupts, files and exchanges; or a script or test of it."""

    help = "Print a run. Formats: " + "; ".join(f"{name}: {what}" for name, what in FORMATS.items()) + "."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run and the form."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--format", default="json", metavar="|".join(FORMATS))
        parser.add_argument("--to", type=int, metavar="SEQ", help="pytest: the last step of the test")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the export."""
        if options["format"] not in FORMATS:
            possible = ", ".join(FORMATS)
            raise bad_input(f"A run can't be exported as {options['format']}. Possible: {possible}.")
        if options["to"] is not None and options["format"] != "pytest":
            raise bad_input("--to says the last step of a test; it needs --format pytest.")
        self.stdout.write(_text(run_of(options["run"]), options["format"], options["to"]))


def _text(run: Run, form: str, upto: int | None) -> str:
    match form:
        case "json":
            return json.dumps(export(run), ensure_ascii=False, indent=2)
        case "script":
            return json.dumps(script_of(run), ensure_ascii=False, indent=2)
        case "launch":
            return json.dumps(launch_of(run), ensure_ascii=False, indent=2)
    return pytest_file(run, upto)
