"""How long a write waits for a row that somebody else has locked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

PATIENCE_MS = 200
"""Longer than a move holds its run's row; a fork of a long run holds it for longer."""


@contextmanager
def impatient() -> Iterator[None]:
    """A transaction that gives up (`OperationalError`) where it would have to wait: others come after it, in turn.

    On PostgreSQL; SQLite locks no rows.
    """
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = {PATIENCE_MS}")
        yield
