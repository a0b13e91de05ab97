"""Reading what belongs together as it was at one moment, while others write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db import connection, transaction

from runs.models import Run

Given = ParamSpec("Given")
Read = TypeVar("Read")


@contextmanager
def snapshot(*, however_long: bool = False) -> Iterator[None]:
    """Everything read in here is of one moment; nobody who writes waits for it.

    Within a transaction that is open already it is that one's. `however_long`: it may take longer than a page may.
    """
    if _in_transaction():
        yield
        return
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:  # Django's own transactions would take the writer's lock
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if however_long:
            without_time_limits(cursor)
        yield


def without_time_limits(cursor: Any) -> None:
    """For this transaction, on PostgreSQL: a site of some years takes longer than a page may."""
    cursor.execute("SET LOCAL statement_timeout = 0")
    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


def _in_transaction() -> bool:
    opened = connection.connection
    return connection.in_atomic_block or bool(
        connection.vendor == "sqlite" and opened is not None and opened.in_transaction
    )


def of_one_moment(
    read: Callable[Concatenate[Run, Given], Read],
) -> Callable[Concatenate[Run, Given], Read]:
    """A reader of a run that may be moving: what it reads is of one moment, the run's own row included."""

    @wraps(read)
    def reader(run: Run, *args: Given.args, **kwargs: Given.kwargs) -> Read:
        with snapshot():
            return read(Run.objects.get(pk=run.pk), *args, **kwargs)

    return reader
