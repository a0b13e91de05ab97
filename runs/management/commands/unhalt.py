"""Lets the site work again."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.asking import RunsCommand


class Command(RunsCommand):
    """The kill switch, off."""

    help = "Resume the site after a halt."

    def handle(self, *args: Any, **options: Any) -> None:
        """Switch it off, and say how many runs go on."""
        wanting = actions.unhalt_site(by=None)
        self.stdout.write(f"Site resumed. Runs that continue: {wanting}.")
