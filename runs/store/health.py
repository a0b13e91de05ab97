"""Check whether the disk and the database can be used now. Either may hang: no caller waits longer than it wants to."""

from __future__ import annotations

import logging
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, OperationalError, connection

from runs.models import Run

PATIENCE_S = 2.0
"""Seconds after which a silent disk or database counts as stuck."""

HOLDS_S = 0.5
"""Seconds for which a result is reused."""

SAID_AGAIN_S = 30.0
"""Seconds until the log repeats a persisting fault."""

PAUSE_S = 0.25
"""Seconds between two checks whether the database is back."""

WRITTEN_BYTES = 2**16

AWAY = ("57P01", "57P02", "57P03", "57P05", "25P03")
"""PostgreSQL's codes for stopping, starting or an ended session; class 08 means lost connections."""

log = logging.getLogger(__name__)


class Look:
    """A check of something that may hang. One thread at a time runs it, and all callers share its result."""

    def __init__(self, what: str, use: Callable[[], None], sentence: Callable[[Exception], str]) -> None:
        self._what = what
        self._use = use
        self._sentence = sentence
        self._changed = threading.Condition()
        self._began: float | None = None
        """Start of the check in progress."""
        self._ended = float("-inf")
        self._fault = ""
        self._said = float("-inf")

    def fault(self, seconds: float = PATIENCE_S) -> str:
        """Return the fault, in a sentence; empty if there is none."""
        with self._changed:
            if self._began is None and time.monotonic() - self._ended > HOLDS_S:
                self._began = time.monotonic()
                threading.Thread(target=self._look, name=f"look at {self._what}", daemon=True).start()
            if self._began is not None:
                left = self._began + seconds - time.monotonic()
                if not self._changed.wait_for(lambda: self._began is None, max(0.0, left)):
                    return self._heard(f"{self._what} has not answered for {seconds:g} seconds.")
            return self._fault

    def forget(self) -> None:
        """Forget what was seen and what was said of it."""
        self._ended = self._said = float("-inf")

    def _look(self) -> None:
        fault, why = "", ""
        try:
            self._use()
        except Exception as error:
            fault, why = self._sentence(error), " ".join(str(error).split())
        with self._changed:
            self._fault, self._began, self._ended = self._heard(fault, why), None, time.monotonic()
            self._changed.notify_all()

    def _heard(self, fault: str, why: str = "") -> str:
        """Write a line into the log if it is news, or was logged long ago. `_changed` is held."""
        if fault and time.monotonic() - self._said > SAID_AGAIN_S:
            log.warning("%s%s", fault, f" It says: {why}" if why else "")
            self._said = time.monotonic()
        elif not fault and self._said > float("-inf"):
            log.warning("%s answers again.", self._what)
            self._said = float("-inf")
        return fault


def _write_to_disk() -> None:
    """Write unnamed files in the directories of the site's data and its SQLite database."""
    folders = {Path(settings.DATA_DIR)}
    if connection.vendor == "sqlite":
        folders.add(Path(connection.settings_dict["NAME"]).parent)
    for folder in folders:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(bytes(WRITTEN_BYTES))


def _write_to_database() -> None:
    """Write to no row: this needs everything that a write needs, and blocks no writer."""
    try:
        Run.objects.filter(pk__lt=0).update(head=0)
    finally:
        connection.close()


def _of_disk(fault: Exception) -> str:
    return f"The disk takes no writes: {getattr(fault, 'strerror', None) or type(fault).__name__}."


def _of_database(fault: Exception) -> str:
    return "The database is locked." if _is_locked(fault) else "The database can't be read and written."


disk = Look("The disk", _write_to_disk, _of_disk)
database = Look("The database", _write_to_database, _of_database)


def fault_of_site() -> str:
    """Return why the site can't work now, in a sentence; empty if it can."""
    return disk.fault() or database.fault()


def is_away(fault: BaseException) -> bool:
    """Return True if the database could not be asked at all: the query itself is not at fault."""
    cause = fault.__cause__
    if not isinstance(fault, DatabaseError) or cause is None:
        return False
    if connection.vendor == "sqlite":
        return _is_locked(fault)
    state = getattr(cause, "sqlstate", None)
    if state is None:
        return isinstance(fault, OperationalError)  # no error from the server itself
    return state in AWAY or state.startswith("08")


def _is_locked(fault: Exception) -> bool:
    return getattr(fault.__cause__, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def wait_until_back(given_up: Callable[[], bool]) -> bool:
    """Wait until the database answers again. Return False if the wait was given up."""
    connection.close_if_unusable_or_obsolete()
    pause = threading.Event()
    while not given_up():
        pause.wait(PAUSE_S)
        if not database.fault():
            return True
    return False
