"""Check a run's log."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import BaseCommand, CommandError

from runs import driver
from runs.adapters.scripted import BadScript
from runs.engine.tools import ToolSpec
from runs.management.asking import bad_input, run_of
from runs.management.lost_files import lost_files
from runs.models import Run
from runs.reading.words import plural
from runs.store import verifying
from runs.store.backups import newer_database, unknown_migrations
from runs.store.db import of_one_moment


class Command(BaseCommand):
    """Checks hash chain, graph, fold and budget arithmetic of a run, or of all.

    Missing files are reported, and are no fault: the log describes them, and is whole. A file with other bytes than the
    run wrote is a fault.
    """

    help = "Verify a run's log; names the first fault. Exit code 1 on one. docs/invariants.md explains I1 to I13."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the runs."""
        parser.add_argument("run", nargs="?", metavar="RUN")
        parser.add_argument("--all", action="store_true", help="every run")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify, and print the result."""
        if options["all"] == bool(options["run"]):
            raise bad_input("Name a run or add --all, not both.")
        if unknown := unknown_migrations():
            raise bad_input(newer_database(unknown))
        runs = Run.objects.order_by("pk").only("pk") if options["all"] else [run_of(options["run"])]
        faults = 0
        for run in runs:
            told, fits = _verified(run)
            lost = lost_files(run) if fits else None
            faults += lost is None or bool(lost.changed)
            if not (fits and options["all"]):
                self.stdout.write(f"Run {run.pk}: {told}")
            if lost and lost.notice:
                self.stdout.write(f"Run {run.pk}: {lost.notice}")
        if faults:
            raise CommandError(
                "1 run does not verify." if faults == 1 else f"{faults} runs do not verify.", returncode=1
            )
        if options["all"]:
            self.stdout.write("1 run verifies." if len(runs) == 1 else f"{len(runs)} runs verify.")


def _verified(run: Run) -> tuple[str, bool]:
    """Return the report on the run, and whether all of it fits."""
    try:
        return _of_one_moment(run)
    except Exception as fault:  # its own row can't be read: the other runs are verified all the same
        return str(verifying.unreadable(fault)), False


@of_one_moment
def _of_one_moment(run: Run) -> tuple[str, bool]:
    misfit = verifying.verify(run, _tools(run))
    return (f"{plural(run.head, 'step')} verified.", True) if misfit is None else (str(misfit), False)


def _tools(run: Run) -> dict[str, ToolSpec]:
    """Return the run's tools; none if its launch can't be read."""
    try:
        return driver.tool_specs(run)
    except (BadScript, KeyError, ValueError, ObjectDoesNotExist):
        return {}
