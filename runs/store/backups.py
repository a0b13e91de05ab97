"""Dump the database as lines of JSON, the same for both databases, and load it; pause runs after a restore.

A dump is read in one snapshot while the site works on. A load replaces everything in one transaction. The search index,
which can be rebuilt, and sessions, which must not come back, are left out.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any
from uuid import UUID

from django.apps import apps
from django.db import connection, models, transaction
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models.functions import Now

from runs.engine.facts import Paused, Restored
from runs.engine.old_rows import THE_RESTORE
from runs.models import UNFINISHED, RestoreEpoch, Run, RunStatus
from runs.store.appending import append
from runs.store.db import without_time_limits
from runs.store.restored import paused_by_restore

LEFT_OUT = frozenset({"sessions.session", "runs.remembered", "runs.restoreepoch"})
LEFT_OUT_APPS = frozenset({"axes"})
AT_ONCE = 500
"""Rows per statement."""

FIRST_EPOCH, LAST_EPOCH = 2**20, 2**30
"""A restore gives all runs one random epoch from this range."""

Table = type[models.Model]


def tables() -> list[Table]:
    """Return every table in a backup."""
    found = apps.get_models(include_auto_created=True)
    return [
        model for model in found if not model._meta.proxy and model._meta.managed and not _left_out(model)
    ]


def emptied() -> list[Table]:
    """Return the tables that a restore leaves empty: sessions, and rebuildable tables."""
    found = apps.get_models(include_auto_created=True)
    return [model for model in found if not model._meta.proxy and _left_out(model)]


def _left_out(model: Table) -> bool:
    return model._meta.label_lower in LEFT_OUT or model._meta.app_label in LEFT_OUT_APPS


def migrations() -> list[str]:
    """Return the schema of this version: all of its migrations, but for one that stands for others."""
    found = MigrationLoader(None).disk_migrations.items()
    return sorted(f"{app}.{name}" for (app, name), migration in found if not migration.replaces)


def is_migrated() -> bool:
    """Return True if the database has the schema of this version."""
    applied = MigrationRecorder(connection).applied_migrations()
    return {f"{app}.{name}" for app, name in applied} >= set(migrations())


def unknown_migrations() -> list[str]:
    """Return migrations by a newer version: of installed apps, unknown to this one."""
    loader = MigrationLoader(None)
    replaced = {key for one in loader.disk_migrations.values() for key in one.replaces}
    applied = MigrationRecorder(connection).applied_migrations()
    known = replaced | set(loader.disk_migrations)
    return sorted(f"{app}.{name}" for app, name in set(applied) - known if app in loader.migrated_apps)


def newer_database(unknown: list[str]) -> str:
    """Return why a database with these migrations can't be used."""
    return f"A newer version has changed the database ({unknown[0]} is unknown here). Use that version."


# --- out ----------------------------------------------------------------------------------------------------------


def lines_of(table: Table) -> Iterator[str]:
    """Yield the names of the columns, then each row, as JSON."""
    names = [field.attname for field in _fields(table)]
    yield json.dumps(names)
    rows = table._base_manager.order_by("pk").values_list(*names)
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_as_text).encode
    for row in rows.iterator(chunk_size=2000):
        yield encode(row)


def _fields(table: Table) -> list[models.Field[Any, Any]]:
    return [field for field in table._meta.concrete_fields if not getattr(field, "generated", False)]


def _as_text(value: Any) -> str:
    match value:
        case datetime() | date():
            return value.isoformat()
        case UUID():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no form in a backup")


# --- in -----------------------------------------------------------------------------------------------------------


class ForeignTable(Exception):
    """A table of the backup is not one of this version."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"The backup's {name} has other columns than this version.")


def load(lines: Callable[[Table], Iterable[str]], why: str, made_at: datetime | None = None) -> int:
    """Replace everything by the lines of each table, and pause unfinished runs, in one transaction. Return their
    number."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                without_time_limits(cursor)
            empty(cursor)
            for table in tables():
                _fill(cursor, table, lines(table))
            if connection.vendor == "postgresql":
                _raise_sequences(cursor)
        return pause_unfinished(why, made_at)


def empty(cursor: Any) -> None:
    """Delete every row that a backup holds or leaves out on purpose."""
    names = [connection.ops.quote_name(table._meta.db_table) for table in (*tables(), *emptied())]
    if connection.vendor == "postgresql":
        cursor.execute(f"TRUNCATE {', '.join(names)}")
        return
    for name in names:  # keys are checked at the end of the transaction
        cursor.execute(f"DELETE FROM {name}")


def _fill(cursor: Any, table: Table, lines: Iterable[str]) -> None:
    rows = iter(lines)
    fields = _fields(table)
    if json.loads(next(rows, "null")) != [field.attname for field in fields]:
        raise ForeignTable(table._meta.label_lower)
    quote = connection.ops.quote_name
    name, columns = quote(table._meta.db_table), ", ".join(quote(str(field.column)) for field in fields)
    readers = [(at, read) for at, field in enumerate(fields) if (read := _reader(field)) is not None]
    values = (_read(json.loads(row), readers) for row in rows)
    if connection.vendor == "postgresql":
        with cursor.copy(f"COPY {name} ({columns}) FROM STDIN") as copy:
            for row in values:
                copy.write_row(row)
        return
    places = ", ".join(["%s"] * len(fields))
    while some := list(islice(values, AT_ONCE)):
        cursor.executemany(f"INSERT INTO {name} ({columns}) VALUES ({places})", some)


def _raise_sequences(cursor: Any) -> None:
    """Move the next number of each table past its rows and all earlier numbers; never set it back.

    An earlier worker may hold such a number, and no rollback undoes a sequence. SQLite does this itself.
    """
    quote = connection.ops.quote_name
    for table in tables():
        key = table._meta.pk
        if isinstance(key, models.AutoField):
            name, column = quote(table._meta.db_table), quote(str(key.column))
            cursor.execute(
                f"SELECT setval(given, GREATEST(nextval(given), (SELECT MAX({column}) FROM {name})))"
                " FROM (SELECT pg_get_serial_sequence(%s, %s)::regclass AS given) AS sequence",
                (name, key.column),
            )


Reader = Callable[[Any], Any]


def _read(row: list[Any], readers: list[tuple[int, Reader]]) -> list[Any]:
    for at, read in readers:
        row[at] = read(row[at])
    return row


def _reader(field: Any) -> Reader | None:
    """Return the converter of a column's value in a line; None if it needs none."""
    if isinstance(field, models.ForeignKey):
        return _reader(field.target_field)
    if isinstance(field, models.CharField | models.TextField | models.IntegerField | models.FloatField):
        return None
    return lambda value: field.get_db_prep_save(field.to_python(value), connection)


# --- runs after a restore -------------------------------------------------------------------------------------------


def pause_unfinished(why: str, made_at: datetime | None = None) -> int:
    """Pause every unfinished run, with a step that says why, and return their number; runs paused by a person stay so.

    Their side effects since the backup are unknown: all of them ask before further ones. `made_at` is the time of the
    backup; None if unknown.

    Leases are removed, and earlier workers are fenced, from finished runs too: a worker may have held another run of
    that number.
    """
    with transaction.atomic():
        list(Run.objects.select_for_update(no_key=True).order_by("pk").values_list("pk"))
        Run.objects.update(epoch=_random_epoch(), worker="", lease_until=Now(), hinted_at=None)
        unfinished = Run.objects.filter(status__in=UNFINISHED).order_by("pk")
        unfinished.update(restored_at=Now())
        by_people = set(unfinished.filter(status=RunStatus.PAUSED).values_list("pk", flat=True))
        by_people -= set(paused_by_restore(unfinished).values_list("pk", flat=True))
        backup = made_at.astimezone(UTC).isoformat() if made_at else ""
        paused = Paused(by=THE_RESTORE, message=why, backup=backup)
        count = 0
        for run in unfinished.iterator(chunk_size=500):
            if run.pk in by_people:
                append(run, "note", (Restored(),))
                continue
            append(run, "pause", (paused, Restored()), status=RunStatus.PAUSED)
            count += 1
    return count


def _random_epoch() -> int:
    """Return one epoch for all runs, chosen once for a restore.

    The epochs reached since the backup are unknown, and a fence only checks for equality. A claim and a person's move
    add one: no run without a restore has come to 2**20. A restored run has its own place among 2**30; a collision has
    odds of about one in a million if the next claims are a thousand. It does not grow from restore to restore, so it
    can't overflow: 2**30 claims fit before the column's end (2**31 - 1).
    """
    return FIRST_EPOCH + secrets.randbelow(LAST_EPOCH - FIRST_EPOCH)


def epoch_id() -> str:
    """Return the id shared by the database and a file beside it; empty if there is none yet."""
    return RestoreEpoch.objects.values_list("value", flat=True).first() or ""


def new_epoch_id() -> str:
    """Return a new id, not written yet."""
    return secrets.token_hex(16)


def set_epoch_id(value: str) -> None:
    RestoreEpoch.objects.update_or_create(pk=1, defaults={"value": value})


def mark_restored(value: str) -> None:
    """Write the id of a site after a restore."""
    RestoreEpoch.objects.update_or_create(pk=1, defaults={"value": value, "restored": value})


def begin_another_life() -> None:
    """Write a new restore id after the database file was replaced by hand; the shared id stays."""
    RestoreEpoch.objects.update_or_create(pk=1, defaults={"restored": new_epoch_id()})


def restored_id() -> str:
    """Return an id that changes with each restore; empty before the first."""
    return RestoreEpoch.objects.values_list("restored", flat=True).first() or ""
