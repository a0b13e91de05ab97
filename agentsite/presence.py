"""Tell a server's database that the site runs, with any data directory.

Each process of the site keeps a session there, outside the pool, with a lock that all of them share. The server ends it
with the process, however that ends. With SQLite there is no such session: the site is in its directory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection

LOCK: Final = int.from_bytes(b"agentsit")
"""The number of the lock, among all of a database."""

LOOK_S = 3.0
"""Seconds between checks of the session."""

log = logging.getLogger(__name__)


def begin() -> None:
    """Keep a session until this process ends."""
    if settings.TELLS_PRESENCE and connection.vendor == "postgresql":
        threading.Thread(target=_stay, name="presence", daemon=True).start()


@contextmanager
def alone() -> Iterator[bool]:
    """Yield True if no process of the site is there; then none can register until this ends.

    Waits a moment for the server to notice the death of one.
    """
    if connection.vendor != "postgresql":
        yield True
        return
    with _session() as session:
        try:
            session.execute("SET lock_timeout = '2s'")
            session.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        except psycopg.errors.LockNotAvailable:
            mine = False
        else:
            mine = True
        yield mine


def _stay() -> None:
    """Keep the session; if it is lost, or a restore has the lock, try again."""
    pause = threading.Event()
    while True:
        try:
            with _session() as session:
                session.execute("SELECT pg_advisory_lock_shared(%s)", [LOCK])
                while not pause.wait(LOOK_S):
                    session.execute("SELECT 1")
        except (DatabaseError, psycopg.Error) as why:
            log.info("the database does not know that this process is there: %s", why)
        pause.wait(LOOK_S)


@contextmanager
def _session() -> Iterator[psycopg.Connection]:
    with connection.wrap_database_errors:
        session = psycopg.connect(**connection.get_connection_params(), autocommit=True)
    with session:
        yield session
