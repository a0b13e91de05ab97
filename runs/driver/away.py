"""While the database is away a worker keeps what it has in hand; when it is back, the worker goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError

from runs.driver.holds import closing
from runs.store import health

T = TypeVar("T")


def once_there(deed: Callable[[], T]) -> T:
    """Do it, and where the database is away do it again once it is back; not where this process is to end.

    For what may be done twice: the database may have done it, and its answer was lost.
    """
    while True:
        try:
            return deed()
        except DatabaseError as fault:
            if not health.is_away(fault) or not health.wait_until_back(closing):
                raise
