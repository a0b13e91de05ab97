"""Outside faults that stop a command, as sentences: no room, no right, an unavailable database or missing tables."""

from __future__ import annotations

import errno
import sqlite3

from django.db import DatabaseError, OperationalError

STOPPED = 74
"""The exit code, as sysexits.h has it for input and output: neither a run nor the request is at fault."""

NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)

_NO_TABLES = ("42P01", "42703")  # PostgreSQL: no such table, no such column
_DISK_FULL = "53100"
_MAY_NOT = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)


def sentence_of(fault: BaseException) -> str | None:
    """Return the fault with a remedy, if it came from outside; None if it may be one of this program."""
    match fault:
        case OSError(errno=number) if number in NO_ROOM:
            return f"The disk is full{_at(fault)} ({fault.strerror}). Free some space, then run it again."
        case OSError(errno=number) if number in NO_RIGHT:
            return (
                f"This user may not do that{_at(fault)} ({fault.strerror}). Run it as the site's own user, "
                "or name another data directory (AGENTSITE_DATA_DIR)."
            )
        case DatabaseError():
            return sentence_of_database(fault)
    return None


def _at(fault: OSError) -> str:
    return f" at {fault.filename}" if fault.filename is not None else " where this command writes"


def sentence_of_database(fault: DatabaseError) -> str | None:
    """Return the same for a fault reported by the database."""
    cause = fault.__cause__
    said = f"It says: {fault}".strip()
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    state = getattr(cause, "sqlstate", "") or ""
    if state in _NO_TABLES or (code == sqlite3.SQLITE_ERROR and "no such " in str(fault)):
        return (
            "The database lacks the tables of this version. Start the site once (manage.py up), which makes them, "
            f"or name the right data directory (AGENTSITE_DATA_DIR). {said}"
        )
    if state == _DISK_FULL or code == sqlite3.SQLITE_FULL:
        return f"The database's disk is full. Free some space, then run it again. {said}"
    if code in _MAY_NOT:
        return f"This user can't open or can't write the database's file. {said}"
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"The database is busy. Run it again. {said}"
    if code == sqlite3.SQLITE_IOERR:
        return f"The database's disk has a fault or is full. Check the disk. {said}"
    if isinstance(fault, OperationalError):
        return f"The database can't be reached; check DATABASE_URL and start again. {said}"
    return None
