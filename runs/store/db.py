"""The database under the log: plain SQL, its clock, consistent reads, lock waits, retries.

Django builds a statement anew each time, at ten times the cost of running it: a worker's reads at each step are plain
SQL. Times are the database's, since a worker's own clock may be wrong, or jump (docs/runtime.md, "Leases").
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db import OperationalError, connection, transaction

from runs.engine.fact_kinds import name_of
from runs.models import Run
from runs.store.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger(__name__)


def rows(sql: str, *params: Any) -> list[Any]:
    """Return every row of a query."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[Any] = cursor.fetchall()
    return found


def first(sql: str, *params: Any) -> Any:
    """Return the first row of a query; None if there is none."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.fetchone()


def places(params: Iterable[Any]) -> str:
    """Return a place for each parameter of a list."""
    return ", ".join("%s" for _ in params)


def quoted(kinds: Iterable[str]) -> str:
    """Return constants as a list of SQL."""
    return ", ".join(f"'{kind}'" for kind in kinds)


def telling(kind: str) -> str:
    """Return the SQL condition for a step with a fact of this kind."""
    name = name_of(kind).replace("_", r"\_")
    return rf"fact_kinds LIKE '%%{name}%%' ESCAPE '\'"


NOW = {
    "sqlite": "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW')",
    "postgresql": "CLOCK_TIMESTAMP()",
}
"""The present moment in SQL, by the kind of database."""


def now() -> datetime:
    """Return the present moment, the base of all due times."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {NOW[connection.vendor]}", ())
        moment = cursor.fetchone()[0]
    return datetime.fromisoformat(moment).replace(tzinfo=UTC) if isinstance(moment, str) else moment


@contextmanager
def snapshot(*, however_long: bool = False) -> Iterator[None]:
    """Read everything inside from one moment, without blocking writers.

    Within an open transaction it is that one's moment. `however_long` lifts the time limit of pages.
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
    """Lift the time limits of this transaction, on PostgreSQL: a large, old site takes longer than a page may."""
    cursor.execute("SET LOCAL statement_timeout = 0")
    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


def _in_transaction() -> bool:
    opened = connection.connection
    return connection.in_atomic_block or bool(
        connection.vendor == "sqlite" and opened is not None and opened.in_transaction
    )


def of_one_moment(
    read: Callable[Concatenate[Run, P], T],
) -> Callable[Concatenate[Run, P], T]:
    """Make a reader of a run read one moment, the run's own row included, while the run may be moving."""

    @wraps(read)
    def reader(run: Run, *args: P.args, **kwargs: P.kwargs) -> T:
        with snapshot():
            return read(Run.objects.get(pk=run.pk), *args, **kwargs)

    return reader


PATIENCE_MS = 200
"""Longer than a move locks its run's row; a fork of a long run locks it for longer."""


@contextmanager
def impatient() -> Iterator[None]:
    """Open a transaction that raises `OperationalError` instead of waiting for a lock: others queue behind it.

    On PostgreSQL; SQLite locks no rows.
    """
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = {PATIENCE_MS}")
        yield


TIMES = 4
"""Tries in all: the other transaction gets its lock then, and ends."""

GIVEN_UP = ("40P01", "40001")
"""PostgreSQL's codes for a deadlock, and for a transaction that does not fit the others."""

WAITED = ("55P03", "SQLITE_BUSY")
"""A lock was waited for in vain, up to the time limit: not tried again."""


def again(deed: Callable[P, T]) -> Callable[P, T]:
    """Repeat `deed` after a deadlock or conflict, at most `TIMES` times in all.

    PostgreSQL ends one of two transactions that wait for each other; that one has written nothing. `deed` opens its own
    transaction, and must be safe to repeat outside the database. Within a transaction of the caller nothing is
    repeated.
    """

    @wraps(deed)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TIMES - 1):
            try:
                return deed(*args, **kwargs)
            except OperationalError as fault:
                if not _is_ours(fault, GIVEN_UP):
                    raise
                log.warning("%s is tried again: %s", deed.__name__, fault)
        return deed(*args, **kwargs)

    return repeated


def for_people(deed: Callable[P, T]) -> Callable[P, T]:
    """Repeat `deed` as `again` does; raise `Busy`, with a sentence for the person, if it can't be done now."""
    repeated = again(deed)

    @wraps(deed)
    def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return repeated(*args, **kwargs)
        except OperationalError as fault:
            if not _is_ours(fault, GIVEN_UP + WAITED):
                raise
            raise Busy from fault

    return told


def _is_ours(fault: OperationalError, codes: tuple[str, ...]) -> bool:
    """Return True if it is one of these faults, and it has not broken a caller's open transaction."""
    cause = fault.__cause__
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    return code in codes and not connection.in_atomic_block
