"""Give steps a column of the kinds of their facts, and questions their figures; fill both for older rows."""

import json
from collections.abc import Iterator
from typing import Any

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import runs.models.log
from runs.engine.fact_kinds import fact_kinds
from runs.engine.old_rows import question_as_now

AT_ONCE = 1000
"""Rows that are read and written at a time."""

Rows = list[tuple[Any, ...]]


def fill(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Fill both columns, and write the figures into the requests too: no hash covers these."""
    steps = apps.get_model("runs", "Step").objects.exclude(facts_json="[]").filter(fact_kinds="")
    for rows in _some(steps, "facts_json"):
        kinds = [(found, key) for key, text in rows if (found := _kinds(text))]
        _write(schema_editor, "UPDATE runs_step SET fact_kinds = %s WHERE id = %s", kinds)
    exchanges = apps.get_model("runs", "Exchange").objects
    asked = exchanges.filter(kind="human_call", name__in=("limit", "manual"))
    for rows in _some(asked, "request_json", "run_id", "seq"):
        changed = [(now, *row) for row in rows if (now := _as_now(row[1]))]
        requests = [(_text(now), key) for now, key, *_ in changed]
        figures = [(_text(now["figures"]), run, seq) for now, _, _, run, seq in changed if now.get("figures")]
        _write(schema_editor, "UPDATE runs_exchange SET request_json = %s WHERE id = %s", requests)
        statement = "UPDATE runs_interrupt SET figures_json = %s WHERE run_id = %s AND seq = %s"
        _write(schema_editor, statement, figures)


def _some(rows: Any, *columns: str) -> Iterator[Rows]:
    """Yield the key and the columns of all rows, some at a time."""
    last = 0
    while found := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", *columns)[:AT_ONCE]):
        yield found
        last = found[-1][0]


def _kinds(text: str) -> str:
    """Return the column of a step; empty where its facts can't be read, so that `verify` names it."""
    try:
        return fact_kinds(text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _as_now(text: str) -> dict[str, Any] | None:
    """Return a question with the figures that it has in its words only; None where there are none."""
    try:
        asked = json.loads(text)
        now = question_as_now(asked)
    except (ValueError, TypeError, AttributeError):
        return None
    return now if now != asked else None


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _write(schema_editor: BaseDatabaseSchemaEditor, statement: str, rows: Rows) -> None:
    if rows:
        with schema_editor.connection.cursor() as cursor:
            cursor.executemany(statement, rows)


class Migration(migrations.Migration):
    """Both columns."""

    dependencies = [("runs", "0020_model_seed")]
    operations = [
        migrations.AddField(
            model_name="interrupt",
            name="figures_json",
            field=models.TextField(blank=True, default=""),
        ),
        migrations.AddField(
            model_name="step",
            name="fact_kinds",
            field=runs.models.log.FactKinds(default="", editable=False),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
