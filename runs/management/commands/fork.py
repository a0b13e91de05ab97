"""Begin a new run at a step of another one, which stays as it is."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.asking import check_one_speaks, json_of, unasked_model
from runs.management.copying import CopyingCommand
from runs.models import Run
from runs.reading.rollback import Again

GIVEN = {"run_settings": "--settings", "script": "--script", "state": "--state", "decision": "--decision"}
"""Options with JSON, or with the name of a file with it."""


class Command(CopyingCommand):
    """Begins a new run at a step of another one, with the given changes."""

    help = (
        "Fork a run at a live transition (0: from the beginning). The old run is unchanged, and its side effects "
        "stay. The usage of copied steps counts. Later changes to the context are not copied."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for changes."""
        super().add_arguments(parser)
        parser.add_argument("--model", metavar="NAME", help="another model of the site")
        parser.add_argument(
            "--run-settings",
            metavar="FILE|JSON",
            help="changed settings, by name; null removes one. "
            "answers cover the whole run: those used by copied steps are skipped. "
            "--settings '{…}' means the same here, not Django's own option",
        )
        parser.add_argument(
            "--script",
            metavar="FILE|JSON",
            help="another script, for the whole run: replies and results used by copied steps are skipped",
        )
        parser.add_argument("--state", metavar="FILE|JSON", help="changed control values, by name")
        parser.add_argument(
            "--decision",
            metavar="JSON",
            help="the answer to the first question after the step: {verdict, args, message}; "
            "question, the step of that question, makes sure that it answers no other",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Read JSON options once: a pipe can't be read again."""
        super().handle(
            *args, **options | {name: json_of(options[name], option) for name, option in GIVEN.items()}
        )

    def tell(self, found: Again, options: dict[str, Any]) -> None:
        """Note that a script replaces the model named in the settings."""
        if said := unasked_model(options["run_settings"], options["script"]):
            self.stderr.write(said)

    def copied(self, run: Run, options: dict[str, Any]) -> Run:
        """Return the fork."""
        check_one_speaks(options)
        settings = options["run_settings"]
        if options["model"] and isinstance(settings, dict | None):
            settings = {**(settings or {}), "model": options["model"]}
        return actions.fork(
            run,
            at=options["at"],
            by=None,
            settings=settings,
            script=options["script"],
            state=options["state"],
            decision=options["decision"],
            answers=self.answers(options),
            message=options["message"],
            seen=options["seen"],
            driven_by=self.driven_by(options),
        )
