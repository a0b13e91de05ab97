"""The site as a Django application: its commands, and the queue that every process publishes to."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Make Celery's configured application the current one, so that tasks know their broker; hear of changed rights."""

    name = "agentsite"

    def ready(self) -> None:
        """Importing them is enough."""
        from agentsite import celery, rechecking  # noqa: F401
