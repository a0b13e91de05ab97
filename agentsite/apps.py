"""The site as a Django application: its commands, and its ear for changed rights."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Listens for changed rights."""

    name = "agentsite"

    def ready(self) -> None:
        """Import the module, which is enough."""
        from agentsite import rechecking  # noqa: F401
