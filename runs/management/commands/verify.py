"""Checks a run's log."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runs import driver, store
from runs.adapters.scripted import BadScript
from runs.engine.tools import ToolSpec
from runs.management.asking import bad_input, run_of
from runs.models import Run


class Command(BaseCommand):
    """Hash chain, graph, fold and budget arithmetic of a run, or of all."""

    help = "Verify a run's log; names the first fault. Exit code 1 on one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which runs."""
        parser.add_argument("run", nargs="?", metavar="RUN")
        parser.add_argument("--all", action="store_true", help="every run")

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify, and say what was found."""
        if options["all"] == bool(options["run"]):
            raise bad_input("Name a run, or --all.")
        runs = Run.objects.order_by("pk") if options["all"] else [run_of(options["run"])]
        faults = 0
        for run in runs:
            misfit = store.verify(run, _tools(run))
            if misfit is not None:
                faults += 1
                self.stdout.write(f"Run {run.pk}: {misfit}")
            elif not options["all"]:
                self.stdout.write(f"Run {run.pk}: {run.head} rows, all fit.")
        if faults:
            raise CommandError(f"{faults} run(s) do not verify.", returncode=1)
        if options["all"]:
            self.stdout.write(f"{len(runs)} runs verify.")


def _tools(run: Run) -> dict[str, ToolSpec]:
    """The tools that the run knows of; none where what it was launched with can't be read."""
    try:
        return driver.tool_specs(run)
    except (BadScript, KeyError, ValueError):
        return {}
