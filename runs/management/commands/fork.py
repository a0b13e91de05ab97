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
        "Fork a run at a live transition (0: from the beginning). The old run stays as it is; what it did outside "
        "stays done, and what the copied steps used counts. What people did to the context after that step is not "
        "in the fork."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options for changes."""
        super().add_arguments(parser)
        parser.add_argument("--model", metavar="NAME", help="another model of the site")
        parser.add_argument(
            "--run-settings",
            metavar="FILE|JSON",
            help="the settings that are to be others, by name; null takes one away; "
            "answers are those of the whole run: as many as the copied steps have used are passed over; "
            "also written --settings '{…}', which is not Django's own option here",
        )
        parser.add_argument(
            "--script",
            metavar="FILE|JSON",
            help="another script, that of the whole run: what the copied steps have used of each role and tool "
            "is passed over, and the rest is played",
        )
        parser.add_argument(
            "--state", metavar="FILE|JSON", help="control values that are to be others, by name"
        )
        parser.add_argument(
            "--decision",
            metavar="JSON",
            help="the answer to the first question after the step: {verdict, args, message}; with question, the step "
            "of the one that you saw, to no other",
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
