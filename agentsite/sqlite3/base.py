"""Let the writers of one process take turns before they reach the database file.

SQLite waits for its write lock inside a statement, and holds the connection's mutex meanwhile. A garbage collection in
the thread with the write lock may free a cursor of such a connection. It then waits for the mutex, whose thread waits
for the lock, and the site stands still. Here threads wait for their turn outside of SQLite, first in, first out. Only
the thread with the turn tries the file, which other processes write too, and waits BRIEF_MS at most in one try.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from django.db.backends.sqlite3 import base

Done = TypeVar("Done")

BRIEF_MS = 20
"""The longest wait inside a statement: another process may hold the write lock for a moment."""

PAUSE_S = 0.001
"""Seconds between two tries: SQLite refuses at once if the connection is still reading."""

_TAKE_NO_LOCK = (
    "SELECT",
    "PRAGMA",
    "EXPLAIN",
    "BEGIN DEFERRED",
    "SAVEPOINT",
    "RELEASE",
    "ROLLBACK",
    "COMMIT",
)


class Turn:
    """The turn to write to one database file among the threads of this process, in the order of asking."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[threading.Lock] = deque()

    @property
    def waiting(self) -> int:
        """Return how many threads wait for the turn."""
        return len(self._waiting)

    def take(self, seconds: float) -> bool:
        """Wait for the turn; return False if it did not come in time."""
        with self._guard:
            if not self._taken:
                self._taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=seconds):
            return True
        with self._guard:
            if mine not in self._waiting:  # it came in this very moment
                return True
            self._waiting.remove(mine)
        return False

    def give(self) -> None:
        """Let the next thread write."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._taken = False


_turns: dict[str, Turn] = {}


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that takes its turn for each transaction, and for each statement that writes outside of one."""

    patience_s: float

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.has_turn = False

    @property
    def turn(self) -> Turn:
        """Return the turns at this file."""
        name = str(self.settings_dict["NAME"])
        return _turns.get(name) or _turns.setdefault(name, Turn())

    def get_connection_params(self) -> dict[str, Any]:
        """Return Django's parameters; `timeout` (seconds) is waited here."""
        params: dict[str, Any] = super().get_connection_params()
        self.patience_s = params["timeout"]
        return params

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Open the file with the whole timeout, since that may have to wait for another process; then wait briefly."""
        opened = super().get_new_connection(conn_params)
        opened.execute(f"PRAGMA busy_timeout = {BRIEF_MS}")
        return opened

    def create_cursor(self, name: str | None = None) -> Any:
        """Return a cursor that asks this connection before it writes."""
        cursor = self.connection.cursor(factory=Cursor)
        cursor.wrapper = self
        return cursor

    def in_turn(self, execute: Callable[[], Done]) -> Done:
        """Execute a statement that needs the write lock once it is this thread's turn and the file is free."""
        until = time.monotonic() + self.patience_s
        if not self.turn.take(self.patience_s):
            raise _locked()
        self.has_turn = True
        try:
            return _once_free(execute, until)
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the next thread, unless a transaction is open."""
        if self.has_turn and (self.connection is None or not self.connection.in_transaction):
            self.has_turn = False
            self.turn.give()

    def _commit(self) -> None:
        try:
            super()._commit()  # type: ignore[misc]  # the stubs have it not
        finally:
            self._pass_on()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]  # the stubs have it not
        finally:
            self._pass_on()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]  # the stubs have it not
        finally:
            if self.has_turn:  # closing rolls back
                self.has_turn = False
                self.turn.give()


class Cursor(base.SQLiteCursorWrapper):
    """A cursor that executes writes in its connection's turn, and everything else at once."""

    wrapper: DatabaseWrapper

    def execute(self, query: str, params: Any = None) -> Any:
        """Execute one statement."""
        if self._may_begin(query):
            return self.wrapper.in_turn(lambda: super(Cursor, self).execute(query, params))
        return super().execute(query, params)

    def executemany(self, query: str, param_list: Any) -> Any:
        """Execute one statement for each row of parameters."""
        if self._may_begin(query):
            rows = list(param_list)
            return self.wrapper.in_turn(lambda: super(Cursor, self).executemany(query, rows))
        return super().executemany(query, param_list)

    def convert_query(self, query: str, *, param_names: list[str] | None = None) -> str:
        """Return the statement with SQLite's own marks for its values."""
        return (
            _with_marks(query)
            if param_names is None
            else super().convert_query(query, param_names=param_names)
        )

    def _may_begin(self, query: str) -> bool:
        """Return True if the statement takes the write lock and this thread has no turn yet."""
        return not self.wrapper.has_turn and not query.lstrip()[:20].upper().startswith(_TAKE_NO_LOCK)


@lru_cache(maxsize=256)
def _with_marks(query: str) -> str:
    """Return the statement with a `?` for each `%s`: finding them takes about as long as SQLite's own work."""
    return base.FORMAT_QMARK_REGEX.sub("?", query).replace("%%", "%")


def _once_free(execute: Callable[[], Done], until: float) -> Done:
    """Try until no other process holds the write lock; raises the last refusal."""
    while True:
        try:
            return execute()
        except sqlite3.OperationalError as fault:
            if fault.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
            time.sleep(PAUSE_S)


def _locked() -> Exception:
    """Return SQLite's own error for a write lock that did not come in time."""
    fault = sqlite3.OperationalError("database is locked")
    fault.sqlite_errorcode, fault.sqlite_errorname = 5, "SQLITE_BUSY"
    return fault
