"""The Django application of the runs."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    """Runs, steps, exchanges, budgets, interrupts, decisions."""

    name = "runs"
    default_auto_field = "django.db.models.BigAutoField"
