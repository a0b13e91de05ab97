"""The site as a Django application: its commands, and the queue that every process publishes to."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Makes Celery's configured application the current one, so that tasks know their broker."""

    name = "agentsite"

    def ready(self) -> None:
        """Importing it is enough."""
        from agentsite import celery  # noqa: F401
