"""Resume the site."""

from __future__ import annotations

from typing import Any

from runs import actions
from runs.management.asking import RunsCommand
from runs.reading.words import continuing


class Command(RunsCommand):
    """Turns off the kill switch."""

    help = "Resume the site after a halt."

    def handle(self, *args: Any, **options: Any) -> None:
        """Resume the site, and print how many runs go on."""
        wanting = actions.unhalt_site(by=None)
        self.stdout.write(f"Site resumed. {continuing(wanting)}")
