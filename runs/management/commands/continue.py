"""Continue an ended run with a follow-up goal, in a new run; options and exit codes are those of launch."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.asking import EXIT_CODES, bad_input, check_one_speaks, json_of, run_of
from runs.management.commands import launch


class Command(launch.Command):
    """Continues a run from the command line, as the installation's operator."""

    help = f"Continue a run that has ended with a follow-up goal, in a new run. {EXIT_CODES}"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run, its follow-up goal, and another model or script."""
        parser.add_argument("run", metavar="RUN")
        parser.add_argument("--goal", metavar="TEXT", required=True)
        parser.add_argument("--model", metavar="NAME", help="another model of the site")
        parser.add_argument(
            "--run-settings",
            metavar="FILE|JSON",
            help="settings in place of those of the same name; also written --settings '{…}'",
        )
        parser.add_argument("--script", metavar="FILE|JSON", help="prepared replies in place of a model")
        launch.add_following(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Launch the next run."""
        check_one_speaks(options)
        settings = json_of(options["run_settings"], "--settings")
        if not isinstance(settings, dict | None):
            raise bad_input("settings: The settings must be a JSON object.")
        made = actions.continue_run(
            run_of(options["run"]),
            goal=options["goal"],
            by=None,
            model=options["model"] or "",
            settings=settings,
            script=json_of(options["script"], "--script"),
            driven_by="the caller" if options["inline"] else "a worker",
        )
        self.follow(made, options)
