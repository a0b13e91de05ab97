"""`manage.py add_provider`: the library of a provider that the base lacks."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import providers
from agentsite.bootstrap import InstallFailed
from runs.adapters.models import EXTRAS


class Command(BaseCommand):
    """Installs it by hash into `.venv`."""

    help = "Install the library that models of a provider need. `up` does the same for the profiles it finds."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the kinds of models."""
        parser.add_argument(
            "kind", nargs="+", choices=sorted(EXTRAS), help="the kind of model in its profile"
        )

    def handle(self, *args: Any, kind: list[str], **options: Any) -> None:
        """Install each."""
        for one in kind:
            try:
                providers.add(one)
            except (providers.NotHere, InstallFailed) as why:
                raise CommandError(str(why)) from None
            self.stdout.write(f"Models of kind {one} can be called after a restart.")
