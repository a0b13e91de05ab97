"""Read a database that an administrator has registered: one statement, which can't change anything.

SQLite is opened read only and refuses all but reading; PostgreSQL reads in a read-only transaction as its own role.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field

from runs.adapters.own_database import is_own_file
from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError
from runs.engine.values import Json

if TYPE_CHECKING:
    from psycopg import Connection

TIME_S = 10.0
MAX_ROWS = 200
MAX_CHARACTERS = 50_000
"""Of all rows together, as JSON."""
MAX_VALUE = 2_000
"""Characters of one value."""
MAX_BYTES = 1_000_000
"""Of one value inside SQLite."""
STEPS = 1_000
"""Operations of SQLite between two looks at the clock."""

KINDS = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}

_SQLITE_TABLES = (
    "SELECT name, type, sql FROM sqlite_schema "
    "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)
_POSTGRES_TABLES = (
    "SELECT table_schema || '.' || table_name AS name, column_name, data_type FROM information_schema.columns "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, ordinal_position"
)
_ALLOWED = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)
_NO_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer"))


class QueryArguments(Arguments):
    """What to read, and where."""

    database: str = Field(
        default="", max_length=40, description="Name of a registered database. Leave empty to list them."
    )
    statement: str = Field(
        default="",
        max_length=20_000,
        description="One SQL statement that reads. Leave empty to list the tables.",
    )
    rows: int = Field(default=MAX_ROWS, ge=1, le=MAX_ROWS, description="Rows to give at most.")


class NoDatabases(ToolError):
    """The site has registered none."""

    def __init__(self) -> None:
        super().__init__("No database is registered. Ask an administrator to set AGENTSITE_SQL_DATABASES.")


class DatabaseUnknown(ToolError):
    """A name that is not registered."""

    def __init__(self, name: str, known: Mapping[str, str]) -> None:
        self.name = name
        super().__init__(f"There is no database {name!r}. Registered: {', '.join(known)}.")


class DatabaseClosed(ToolError):
    """A registered database that can't be used."""

    def __init__(self, name: str, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"The database {name!r} can't be opened: {why}. Ask an administrator.")


class StatementRefused(ToolError):
    """A statement that the database does not take, or that does more than read."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"The statement was not run: {why}. Write one statement that only reads.")


class StatementTooSlow(ToolError):
    """A statement that was given up."""

    def __init__(self) -> None:
        super().__init__(f"The statement took longer than {TIME_S:g} s. Narrow it, or read fewer rows.")


def _run(arguments: QueryArguments, place: Place) -> Result:
    from django.conf import settings

    databases: Mapping[str, str] = settings.SQL_DATABASES
    if not databases:
        raise NoDatabases
    if not arguments.database:
        return Result([{"database": name, "kind": KINDS[_kind(url)]} for name, url in databases.items()])
    if arguments.database not in databases:
        raise DatabaseUnknown(arguments.database, databases)
    read = {"sqlite": _from_sqlite, "postgresql": _from_postgres}
    url = databases[arguments.database]
    return Result(read[_kind(url)](arguments, url))


def _kind(url: str) -> str:
    return urlsplit(url).scheme


# --- SQLite -------------------------------------------------------------------------------------------------------


def _from_sqlite(arguments: QueryArguments, url: str) -> dict[str, Any]:
    from django.conf import settings

    end = time.monotonic() + TIME_S
    path = unquote(urlsplit(url).path[1:])
    if is_own_file(Path(path), settings.DATABASES["default"]):
        raise DatabaseClosed(arguments.database, "it is the site's own, with its keys")
    try:
        opened = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=2)
    except sqlite3.Error as why:
        raise DatabaseClosed(arguments.database, str(why)) from None
    with closing(opened) as connection:
        _bind(connection, end)
        try:
            found = connection.execute(arguments.statement.strip() or _SQLITE_TABLES)
            if found.description is None:
                raise StatementRefused("it gives no rows")
            return _told([column[0] for column in found.description], found, arguments.rows)
        except (sqlite3.Error, sqlite3.Warning) as why:
            if time.monotonic() >= end:
                raise StatementTooSlow from None
            raise StatementRefused(str(why).rstrip(".")) from None


def _bind(connection: sqlite3.Connection, end: float) -> None:
    """Bound what a statement may do, how long it takes, and how large a value gets."""
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_progress_handler(lambda: int(time.monotonic() >= end), STEPS)
    connection.set_authorizer(_authorised)


def _authorised(action: int, table: str | None, name: str | None, *place: str | None) -> int:
    refused = action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and name in _NO_FUNCTIONS)
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK


# --- PostgreSQL -----------------------------------------------------------------------------------------------------


def _from_postgres(arguments: QueryArguments, url: str) -> dict[str, Any]:
    import psycopg

    with closing(_connected(arguments.database, url)) as connection:
        connection.read_only = True
        try:
            cursor = connection.cursor()
            # A stream speaks the protocol that takes one statement, and reads no more rows than are wanted.
            found: Any = cursor.stream((arguments.statement.strip() or _POSTGRES_TABLES).encode())
            with closing(found):
                first = next(found, None)
                columns = [column.name for column in cursor.description or ()]
                return _told(columns, _from(first, found), arguments.rows)
        except psycopg.errors.QueryCanceled:
            raise StatementTooSlow from None
        except psycopg.Error as why:
            raise StatementRefused(why.diag.message_primary or str(why).strip().rstrip(".")) from None


def _connected(name: str, url: str) -> Connection[tuple[Any, ...]]:
    import psycopg

    limits = (
        f"-c statement_timeout={int(TIME_S * 1000)} -c lock_timeout=2000 -c default_transaction_read_only=on"
    )
    try:
        connection = psycopg.connect(
            url, options=limits, connect_timeout=5, application_name="agentsite sql_query"
        )
    except psycopg.OperationalError:
        raise ConnectionRefusedError(f"The database {name!r} can't be reached.") from None
    if connection.info.parameter_status("is_superuser") == "on":
        connection.close()
        raise DatabaseClosed(
            name, "its role is a superuser, which may do more than read. It needs a role of its own"
        )
    return connection


def _from(first: tuple[Any, ...] | None, rest: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    if first is not None:
        yield first
        yield from rest


# --- rows as JSON -----------------------------------------------------------------------------------------------


def _told(columns: list[str], found: Iterator[tuple[Any, ...]], most: int) -> dict[str, Any]:
    """Return as many rows as fit, and whether anything was left out."""
    rows: list[list[Json]] = []
    room, cut = MAX_CHARACTERS, False
    for row in found:
        told = [_json(value) for value in row]
        shown = [_shortened(value) for value in told]
        room -= len(json.dumps(shown))
        if len(rows) == most or room < 0:
            return {"columns": columns, "rows": rows, "cut": True}
        cut = cut or shown != told
        rows.append(shown)
    return {"columns": columns, "rows": rows, "cut": cut}


def _json(value: Any) -> Json:
    """Return a database's value as JSON; what JSON has no form for as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes() | memoryview():
            return f"\\x{bytes(value).hex()}"
        case list() | tuple():
            return [_json(item) for item in value]
        case dict():
            return {str(name): _json(item) for name, item in value.items()}
    return str(value)


def _shortened(value: Json) -> Json:
    if isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False)
        return value if len(text) <= MAX_VALUE else _shortened(text)
    return f"{value[:MAX_VALUE]}…" if isinstance(value, str) and len(value) > MAX_VALUE else value


TOOL = Tool(
    name="sql_query",
    description=(
        f"Reads a registered database with one SQL statement: at most {MAX_ROWS} rows, "
        f"{MAX_CHARACTERS:,} characters, {TIME_S:g} s. Nothing can be changed."
    ),
    arguments=QueryArguments,
    effects="read",
    idempotent=True,
    deadline_s=20,
    run=_run,
)
