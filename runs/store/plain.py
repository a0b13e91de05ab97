"""Plain SQL for what a worker reads at each slice or move.

Django builds a statement anew each time it is asked for, which takes ten times as long as the statement itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection

from runs.engine.fact_kinds import name_of


def rows(sql: str, *params: Any) -> list[Any]:
    """Return every row of a query."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[Any] = cursor.fetchall()
    return found


def first(sql: str, *params: Any) -> Any:
    """Return the first row of a query; None where there is none."""
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
    """Return the condition that a step has a fact of this kind."""
    name = name_of(kind).replace("_", r"\_")
    return rf"fact_kinds LIKE '%%{name}%%' ESCAPE '\'"
