"""Resume a paused run, or all paused by a restore."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from runs import actions
from runs.management.asking import bad_input, halt_notice, run_of
from runs.management.steering import SteeringCommand
from runs.models import Run
from runs.reading.restored import restored_of, restored_views


class Command(SteeringCommand):
    """Resumes a paused run, or all paused by a restore."""

    help = "Resume a paused run; with --restored, all runs that a restore paused."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the run, or the option for those of a restore, and exceptions."""
        parser.add_argument("run", metavar="RUN", nargs="?")
        parser.add_argument(
            "--restored",
            action="store_true",
            help="all runs that a restore paused; name those whose model can't be called one by one",
        )
        parser.add_argument(
            "--except",
            nargs="+",
            default=[],
            metavar="RUN",
            dest="left_out",
            help="with --restored: leave these paused",
        )

    def steer(self, run: Run, options: dict[str, Any]) -> Run:
        """Resume it."""
        return actions.resume(run, by=None)

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume the run, or the runs, and print where each is."""
        if options["restored"] == bool(options["run"]):
            raise bad_input("Name a run or add --restored, not both.")
        if options["left_out"] and not options["restored"]:
            raise bad_input("--except goes with --restored.")
        if options["run"]:
            super().handle(*args, **options)
        else:
            self.resume_restored({run_of(text).pk for text in options["left_out"]})

    def resume_restored(self, left_out: set[int]) -> None:
        """Resume them, and print which ones stay paused, and why."""
        restored = restored_views(restored_of(None), None)
        left = {one.run.pk: one.no_model or "left out." for one in restored}
        left = {pk: why for pk, why in left.items() if why != "left out." or pk in left_out}
        done = actions.resume_restored([one.run.pk for one in restored if one.run.pk not in left], by=None)
        for run in done.resumed:
            self.stdout.write(f"Run {run.pk}: {run.status}, at {run.node}, step {run.head}.")
        self.stdout.write(f"Resumed: {len(done.resumed)}.")
        for sentence in done.passed_over:
            self.stdout.write(f"Not resumed: {sentence}")
        for pk, why in left.items():
            self.stdout.write(f"Run {pk} stays paused: {why} To resume it: manage.py resume {pk}")
        if done.resumed:
            self.stdout.write("Restored runs ask before each call with side effects: it may have been made.")
        if notice := halt_notice():
            self.stdout.write(notice)
