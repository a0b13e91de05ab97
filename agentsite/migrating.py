"""The database, brought up to this version before anything uses it."""

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from agentsite.bootstrap import only_one
from agentsite.stopped import sentence_of_database
from runs.store.backups import newer_database, unknown_migrations


class DatabaseAway(CommandError):
    """The database of DATABASE_URL does not answer, or has no room."""

    def __init__(self, why: OperationalError) -> None:
        super().__init__(sentence_of_database(why))


class NewerDatabase(CommandError):
    """A newer version has changed the tables: this one would read and write unknown data."""

    def __init__(self, unknown: list[str]) -> None:
        super().__init__(newer_database(unknown))
        self.unknown = unknown


def prepare_database() -> None:
    """Migrate, but only if something is missing: the check is fast, the command is not.

    A second process of the data directory waits. Raises `NewerDatabase` if a newer version was here.
    """
    with only_one(settings.DATA_DIR / "migrating.lock"):
        if unknown := unknown_migrations():
            raise NewerDatabase(unknown)
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            call_command("migrate", interactive=False, verbosity=0)
