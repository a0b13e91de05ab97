"""`manage.py add_provider`: packages that the base does without, for a provider's models or for MCP servers."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import providers
from agentsite.bootstrap import InstallFailed
from runs.adapters.models import EXTRAS


class Command(BaseCommand):
    """Installs it by hash into `.venv`."""

    help = (
        "Install the packages for a provider's models or for MCP servers. `up` does this for those it finds."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the kinds of models."""
        parser.add_argument(
            "kind",
            nargs="+",
            choices=sorted([*EXTRAS, providers.MCP]),
            help="the kind of model in its profile, or mcp",
        )

    def handle(self, *args: Any, kind: list[str], **options: Any) -> None:
        """Install each."""
        for one in kind:
            try:
                providers.add(one)
            except (providers.NotHere, InstallFailed) as why:
                raise CommandError(str(why)) from None
            what = "Tools of MCP servers" if one == providers.MCP else f"Models of kind {one}"
            self.stdout.write(f"{what} can be called after a restart.")
