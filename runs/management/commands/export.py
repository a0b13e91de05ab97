"""Print a run: as JSON, as a script, as a test, or as OpenTelemetry spans."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from runs.management.asking import RunsCommand, bad_input, run_of
from runs.models import Run
from runs.reading.as_test import pytest_file
from runs.reading.exporting import export
from runs.reading.script_export import launch_of, script_of
from runs.reading.spans import family_of, spans_of

FORMATS = {
    "json": "the whole run",
    "script": "its replies and tool results, as `launch --script` plays them",
    "launch": "the same with goal, settings and answers: one item of `launch --batch`",
    "pytest": "a test that reproduces its steps",
    "otlp": "its spans and those of its child runs, for OpenTelemetry",
}


class Command(RunsCommand):
    """Prints the whole run: its steps, budget, interrupts, files and exchanges; or a script or test of it."""

    help = "Print a run. Formats: " + "; ".join(f"{name}: {what}" for name, what in FORMATS.items()) + "."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run and the form."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--format", default="json", metavar="|".join(FORMATS))
        parser.add_argument("--to", type=int, metavar="SEQ", help="pytest: the last step of the test")
        parser.add_argument(
            "--content", action="store_true", help="otlp: with prompts, replies, arguments and results"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the export."""
        if options["format"] not in FORMATS:
            possible = ", ".join(FORMATS)
            raise bad_input(f"A run can't be exported as {options['format']}. Possible: {possible}.")
        if options["to"] is not None and options["format"] != "pytest":
            raise bad_input("--to says the last step of a test; it needs --format pytest.")
        if options["content"] and options["format"] != "otlp":
            raise bad_input("--content adds prompts and replies to spans; it needs --format otlp.")
        if options["format"] == "otlp":
            self.stdout.write(_spans(run_of(options["run"]), content=options["content"]))
            return
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


def _spans(run: Run, *, content: bool) -> str:
    try:
        from runs.reading.otlp import as_json
    except ModuleNotFoundError as why:
        raise bad_input(
            f"This export needs packages that are missing ({why.name}). Run: python3 manage.py add_provider otel"
        ) from None
    return as_json(span for one in family_of(run) for span in spans_of(one, content=content))
