"""Commands that start together make one database; and the one migration of a new site makes what all others make."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from agentsite.environment import ROOT
from tests.stack import own_environ

PREPARE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "agentsite.settings"
import django
django.setup()
from agentsite.migrating import prepare_database
print("ready", flush=True)
sys.stdin.readline()
prepare_database()
"""


MIGRATE = """
import json, os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "agentsite.settings"
import django
django.setup()
from django.contrib.auth.models import Group
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from runs.store import backups

executor = MigrationExecutor(connection)
executor.loader.replace_migrations = sys.argv[1] == "one"
executor.loader.build_graph()
disk = executor.loader.disk_migrations
wanted = [one for one in executor.loader.graph.leaf_nodes() if sys.argv[1] == "one" or not disk[one].replaces]
executor.migrate(wanted)
assert backups.is_migrated() and not backups.unknown_migrations()

def texts(cursor, table):
    cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = %s", (table,))
    return sorted(map(str, cursor.fetchall()))

made = {"groups": {
    group.name: sorted(group.permissions.values_list("codename", flat=True)) for group in Group.objects.all()
}}
with connection.cursor() as cursor:
    look = connection.introspection
    for table in look.table_names(cursor):
        if table != "django_migrations":
            made[table] = [
                sorted(map(str, look.get_table_description(cursor, table))),
                sorted(str(sorted(one.items())) for one in look.get_constraints(cursor, table).values()),
                texts(cursor, table),
            ]
print(json.dumps(made, sort_keys=True))
"""


def test_the_one_migration_makes_what_those_make_that_it_replaces(tmp_path: Path) -> None:
    made = [
        subprocess.run(
            [sys.executable, "-c", MIGRATE, way],
            cwd=ROOT,
            env=own_environ(tmp_path / way),
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for way in ("one", "all")
    ]
    tables = [json.loads(text) for text in made]
    assert tables[0]["groups"].keys() == {"operators", "reviewers"}
    assert "runs_step" in tables[0]
    assert tables[0] == tables[1]


def test_two_that_prepare_the_database_at_once_both_succeed(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [
        subprocess.Popen([sys.executable, "-c", PREPARE], cwd=ROOT, env=own_environ(tmp_path), **pipes)  # type: ignore[call-overload]
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout.readline() == "ready\n"
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    ended = [(one.communicate(timeout=120)[1], one.returncode) for one in both]
    assert ended == [("", 0), ("", 0)]
