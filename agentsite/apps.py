"""The site as a Django application: its commands, and what it hears of."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Hear of changed rights."""

    name = "agentsite"

    def ready(self) -> None:
        """Importing it is enough."""
        from agentsite import rechecking  # noqa: F401
