"""Lets the site work again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from runs import actions
from runs.management.asking import bad_input


class Command(BaseCommand):
    """The kill switch, off."""

    help = "Resume the site after a halt."

    def handle(self, *args: Any, **options: Any) -> None:
        """Switch it off, and say how many runs go on."""
        try:
            wanting = actions.unhalt_site(by=None)
        except actions.NotPossible as fault:
            raise bad_input(fault.sentence) from None
        self.stdout.write(f"Site resumed. Runs that continue: {wanting}.")
