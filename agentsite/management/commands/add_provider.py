"""`manage.py add_provider`: packages that the base does without, for models, tools or exporters."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agentsite import providers
from agentsite.bootstrap import InstallFailed
from runs.adapters.models import EXTRAS


class Command(BaseCommand):
    """Installs it by hash into `.venv`."""

    help = (
        "Install the packages for a provider's models, for MCP servers, for the tool python or for OpenTelemetry. "
        "`up` does this for the models, servers and collector that it finds."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the kinds of models."""
        parser.add_argument(
            "kind",
            nargs="+",
            choices=sorted([*EXTRAS, *providers.TOOLS]),
            help="the kind of model in its profile, mcp, otel, or python",
        )

    def handle(self, *args: Any, kind: list[str], **options: Any) -> None:
        """Install each."""
        for one in kind:
            try:
                providers.add(one)
            except (providers.NotHere, InstallFailed) as why:
                raise CommandError(str(why)) from None
            self.stdout.write(f"{providers.titled(one)} can be called after a restart.")
