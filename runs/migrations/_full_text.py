"""The full-text index over `Remembered`: FTS5 on SQLite, a tsvector column with a GIN index on PostgreSQL.

`store/memory.py` makes the words: `text` is words with one space between them, so both databases index the same ones. A
migration that changes the table `runs_remembered` on SQLite makes the triggers again: Django remakes a table there, and
its triggers go with the old one.
"""

from django.db import migrations

SQLITE = (
    "CREATE VIRTUAL TABLE runs_remembered_words USING fts5("
    "text, content='runs_remembered', content_rowid='id', tokenize='ascii', detail=none, columnsize=0)",
    "CREATE TRIGGER runs_remembered_added AFTER INSERT ON runs_remembered BEGIN "
    "INSERT INTO runs_remembered_words(rowid, text) VALUES (new.id, new.text); END",
    "CREATE TRIGGER runs_remembered_removed AFTER DELETE ON runs_remembered BEGIN "
    "INSERT INTO runs_remembered_words(runs_remembered_words, rowid, text) VALUES ('delete', old.id, old.text); END",
    "CREATE TRIGGER runs_remembered_changed AFTER UPDATE ON runs_remembered BEGIN "
    "INSERT INTO runs_remembered_words(runs_remembered_words, rowid, text) VALUES ('delete', old.id, old.text); "
    "INSERT INTO runs_remembered_words(rowid, text) VALUES (new.id, new.text); END",
    "INSERT INTO runs_remembered_words(runs_remembered_words) VALUES ('rebuild')",
)
SQLITE_BACK = (
    "DROP TRIGGER runs_remembered_added",
    "DROP TRIGGER runs_remembered_removed",
    "DROP TRIGGER runs_remembered_changed",
    "DROP TABLE runs_remembered_words",
)
POSTGRESQL = (
    "ALTER TABLE runs_remembered ADD COLUMN words tsvector "
    "GENERATED ALWAYS AS (array_to_tsvector(string_to_array(text, ' '))) STORED",
    "CREATE INDEX runs_remembered_words ON runs_remembered USING gin (words)",
)
POSTGRESQL_BACK = ("ALTER TABLE runs_remembered DROP COLUMN words",)


def _run(by_vendor):
    def run(apps, schema_editor):
        for statement in by_vendor[schema_editor.connection.vendor]:
            schema_editor.execute(statement)

    return run


def make_index() -> migrations.RunPython:
    """Return the operation that makes the index, or removes it."""
    return migrations.RunPython(
        _run({"sqlite": SQLITE, "postgresql": POSTGRESQL}),
        _run({"sqlite": SQLITE_BACK, "postgresql": POSTGRESQL_BACK}),
    )
