"""Show the declared graphs."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs.machines import CATALOGUE
from runs.management.asking import bad_input


class Command(BaseCommand):
    """Shows the machines, their nodes and edges."""

    help = "Show the machines, or one of them, as a table or a Mermaid diagram."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the machine and the form."""
        parser.add_argument("machine", nargs="?", metavar="M")
        parser.add_argument("--mermaid", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the machines."""
        name = options["machine"]
        if name is not None and name not in CATALOGUE:
            raise bad_input(f"There is no machine {name}. Machines: {', '.join(CATALOGUE)}.")
        for machine in [CATALOGUE[name]] if name else CATALOGUE.values():
            if options["mermaid"]:
                self.stdout.write(machine.mermaid())
                continue
            self.stdout.write(f"{machine.name}: {machine.line}")
            for edge in machine.edges:
                when = f"  ({edge.when})" if edge.when else ""
                self.stdout.write(f"  {edge.source:<14} {edge.name:<12} → {edge.target}{when}")
