"""Once more, where the database gives a transaction up for the sake of another one.

PostgreSQL ends one of two transactions that wait for each other; it has written nothing, and is simply made again.
What is decorated here opens its own transaction, and changes nothing outside of it that a second time would be wrong
after. Within a transaction of the caller's it is the caller's to repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connection

from runs.store.errors import Busy

P = ParamSpec("P")
T = TypeVar("T")

TIMES = 4
"""How often it is tried: the other transaction has what it wanted then, and ends."""

GIVEN_UP = ("40P01", "40001")
"""PostgreSQL's codes for a deadlock, and for a transaction that does not fit the others."""

WAITED = ("55P03", "SQLITE_BUSY")
"""A lock was waited for in vain, for as long as is allowed: not tried again."""

log = logging.getLogger(__name__)


def again(deed: Callable[P, T]) -> Callable[P, T]:
    """Repeat `deed` where the database gave it up; after the last time the fault is passed on."""

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
    """The same for what a person does, who is told in a sentence (`Busy`) where it can't be done at this moment."""
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
    """Whether it is one of these faults, and no caller's transaction is open that it has broken."""
    cause = fault.__cause__
    code = getattr(cause, "sqlstate", None) or getattr(cause, "sqlite_errorname", None)
    return code in codes and not connection.in_atomic_block
