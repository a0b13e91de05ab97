"""Play the laws of all machines on one of them."""

from __future__ import annotations

from argparse import ArgumentParser
from importlib import import_module
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from runs.machines import CATALOGUE
from runs.management.asking import bad_input

WORLDS, ROWS = 100, 1_000


class Command(BaseCommand):
    """Checks a machine: replay, resume, graph, halt, budget and the other laws, in random worlds."""

    help = "Play a machine in random worlds and say which laws hold. Exit code 1 if one is broken."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the machine and the number of worlds."""
        parser.add_argument("machine", metavar="M")
        parser.add_argument("--worlds", type=int, default=WORLDS, help=f"for each law (default {WORLDS})")
        rows = f"a run of more steps counts as endless (default {ROWS})"
        parser.add_argument("--rows", type=int, default=ROWS, help=rows)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the laws; exit code 1 if one is broken."""
        name = options["machine"]
        if name not in CATALOGUE:
            raise bad_input(f"There is no machine {name}. Machines: {', '.join(CATALOGUE)}.")
        for option in ("worlds", "rows"):
            if options[option] < 1:
                raise bad_input(f"--{option} must be at least 1, not {options[option]}.")
        checked = {"worlds": options["worlds"], "most_rows": options["rows"]}
        if not _laws().check(CATALOGUE[name], self.stdout, **checked):
            raise SystemExit(1)


def _laws() -> Any:
    """Return the module that plays the laws: that of the tests, which every checkout has."""
    try:
        return import_module("tests.machines.checking")
    except ModuleNotFoundError as fault:
        if (fault.name or "").partition(".")[0] != "tests":
            raise
        raise CommandError(
            "The laws are in the folder tests/, which this installation lacks. Take it from the repository."
        ) from None
