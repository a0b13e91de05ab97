"""The site as a Django application: its commands, and the queue of every process."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Makes Celery's configured application the current one, so tasks know their broker; listens for changed rights."""

    name = "agentsite"

    def ready(self) -> None:
        """Import both modules, which is enough."""
        from agentsite import celery, rechecking  # noqa: F401
