"""The database, brought up to this version before anything uses it."""

from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor


class DatabaseAway(CommandError):
    """The database of DATABASE_URL does not answer."""

    def __init__(self, why: OperationalError) -> None:
        super().__init__(
            f"The database can't be reached; check DATABASE_URL and start again. It says: {why}".strip()
        )


def prepare_database() -> None:
    """Migrate, but only where something is missing: the check is fast, the command is not."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)
