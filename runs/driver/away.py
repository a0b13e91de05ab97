"""Keep a worker's work in memory while the database is away; go on when it is back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import DatabaseError

from runs.driver.holds import closing
from runs.store import health

T = TypeVar("T")


def once_there(deed: Callable[[], T]) -> T:
    """Do it, and repeat it once an unavailable database is back, unless this process is ending.

    Only for repeatable actions: the database may have done it, and its answer was lost.
    """
    while True:
        try:
            return deed()
        except DatabaseError as fault:
            if not health.is_away(fault) or not health.wait_until_back(closing):
                raise
