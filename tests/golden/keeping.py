"""Goldens as files: rows by the names of their columns, so that a later version reads them into its own tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management.color import no_style
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection, models, transaction

from runs.models import Artifact, Budget, Decision, Exchange, Interrupt, Run, ScriptText, Step

FOLDER = Path(__file__).resolve().parent
TABLES: tuple[type[models.Model], ...] = (
    ScriptText,
    Run,
    Step,
    Exchange,
    Budget,
    Interrupt,
    Decision,
    Artifact,
)
NAMED = (ScriptText, Run, Interrupt)
"""Rows that others name by their key; the keys of all others are given anew."""

FILLED = import_module("runs.migrations.0021_fact_kinds_and_figures")
"""The migration that fills columns of older rows."""

Rows = dict[str, list[dict[str, Any]]]


class Moment(DjangoJSONEncoder):
    """JSON with moments to the microsecond: they are hashed."""

    def default(self, o: Any) -> Any:
        """A moment, a key."""
        return o.isoformat() if hasattr(o, "isoformat") else super().default(o)


def rows() -> Rows:
    """Everything that is kept of the runs in the database."""
    return {table.__name__: list(table._base_manager.order_by("pk").values()) for table in TABLES}


def load(kept: Rows) -> None:
    """Load the rows as this version's migrations leave them: newer columns are filled or have their defaults."""
    with transaction.atomic():
        for table in TABLES:
            for row in kept.get(table.__name__, []):
                values = dict(row) if table in NAMED else {name: row[name] for name in row if name != "id"}
                table(**values).save(force_insert=True)
        FILLED.fill(apps, connection.schema_editor())
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                for statement in connection.ops.sequence_reset_sql(no_style(), [Run]):
                    cursor.execute(statement)


def write(path: Path, golden: dict[str, Any]) -> None:
    """One golden; a line for each row, so that a change can be read."""
    parts = {
        name: json.dumps(value, cls=Moment) for name, value in golden.items() if name not in ("waits", "ends")
    }
    lines = [f'"{name}": {text}' for name, text in parts.items()]
    lines += [f'"{name}": {_table_lines(golden[name])}' for name in ("waits", "ends")]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _table_lines(kept: Rows) -> str:
    tables = []
    for name, found in kept.items():
        listed = ",\n".join(json.dumps(row, cls=Moment, ensure_ascii=False) for row in found)
        tables.append(f'"{name}": [\n{listed}\n]' if found else f'"{name}": []')
    return "{\n" + ",\n".join(tables) + "\n}"


def read(path: Path) -> dict[str, Any]:
    """One golden."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def all_of_them() -> list[Path]:
    """Those of every version that was ever released."""
    return sorted(FOLDER.glob("*/*.json"))


def path_of(runs: Iterable[Run]) -> list[list[str | int | None]]:
    """What the runs did, move by move."""
    return [
        [step.run_id, step.seq, step.kind, step.node, step.edge, step.to]
        for run in runs
        for step in run.steps.order_by("seq")
    ]
