"""Seconds of a backup and of a restore of a site of some size, on both databases and across.

    python3 -m tests.benchmarks.backups [--runs 200] [--rows 500]

Each run is a copy of one scripted `ruled` run, which verifies; each has three files. What is restored is verified too
(the first and the last run).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentsite.environment import ROOT
from tests.benchmarks import postgres


def populate(runs: int, rows: int) -> None:
    """Fill the database of DATABASE_URL."""
    import django

    django.setup()
    from runs import actions, driver
    from runs.models import Run
    from runs.store.creating import folder_of
    from tests.benchmarks.contenders import script_of

    cycles = max(1, rows // 7)  # five transitions and two asks of each
    rules = [{"type": "forbid_guessing"}, {"type": "require_tool_use"}]
    settings = {"max_steps": cycles + 1, "ruleset": rules}
    first = actions.start_run(
        machine="ruled", goal="benchmark", settings=settings, owner=None, script=script_of(cycles)
    )
    first = driver.drive_inline(first.pk)
    for _ in range(runs - 1):
        copied(first)
    for run in Run.objects.all():
        folder = folder_of(run.pk)
        folder.mkdir(parents=True)
        for number in range(3):
            (folder / f"note-{number}.txt").write_text(f"{run.pk} " * 1000)
    print(f"{runs} runs of {first.head} rows ({first.status}, {first.exit_reason})", flush=True)


def copied(run: Any) -> None:
    """Another run with the same rows."""
    from runs.models import Budget, Exchange, Run, Step

    twin = Run.objects.get(pk=run.pk)
    twin.pk = None
    twin.save(force_insert=True)
    tables: tuple[Any, ...] = (Step, Exchange, Budget)
    for table in tables:
        rows = list(table.objects.filter(run=run))
        for row in rows:
            row.pk, row.run = None, twin
        table.objects.bulk_create(rows, batch_size=200)


def manage(*words: str, url: str, data: Path) -> str:
    """A command of the site, with the seconds it took."""
    environ = os.environ | {"DATABASE_URL": url, "AGENTSITE_DATA_DIR": str(data), "REDIS_URL": ""}
    done = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def timed(title: str, *words: str, url: str, data: Path) -> None:
    """Do it, and print how long it took in all and by its own words."""
    began = time.perf_counter()
    said = manage(*words, url=url, data=data)
    own = re.findall(r"in ([0-9.]+) s", said)
    print(f"{title:<40} {time.perf_counter() - began:6.1f} s  (itself {own[0]} s)", flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--populate", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.populate:
        os.environ["DJANGO_SETTINGS_MODULE"] = "agentsite.settings"
        populate(options.runs, options.rows)
        return
    found = postgres.binaries()
    if found is None:
        raise SystemExit("PostgreSQL: no initdb on this machine")
    with tempfile.TemporaryDirectory() as folder, postgres.cluster(found) as server:
        measure(Path(folder), server, options)


def measure(folder: Path, server: str, options: argparse.Namespace) -> None:
    """SQLite out and in, then into the server, out of it, and back."""
    site, other = folder / "site", folder / "other"
    file = f"sqlite:///{folder / 'site.sqlite3'}"
    again = f"sqlite:///{folder / 'again.sqlite3'}"
    manage("migrate", url=file, data=site)
    words = [sys.executable, "-m", "tests.benchmarks.backups", "--populate", "--runs", str(options.runs)]
    environ = os.environ | {"DATABASE_URL": file, "AGENTSITE_DATA_DIR": str(site), "REDIS_URL": ""}
    subprocess.run([*words, "--rows", str(options.rows)], check=True, env=environ, cwd=ROOT)
    one, two = str(folder / "one.zip"), str(folder / "two.zip")
    timed("backup of SQLite", "backup", one, url=file, data=site)
    print(
        f"{Path(one).stat().st_size / 1e6:.1f} MB; the database has "
        f"{(folder / 'site.sqlite3').stat().st_size / 1e6:.1f} MB",
        flush=True,
    )
    timed("restore into SQLite", "restore", one, url=again, data=other)
    timed("restore of that into PostgreSQL", "restore", one, url=server, data=folder / "served")
    timed("backup of PostgreSQL", "backup", two, url=server, data=folder / "served")
    timed("restore of that into SQLite (--force)", "restore", two, "--force", url=again, data=other)
    for where, data in ((again, other), (server, folder / "served")):
        for run in ("1", str(options.runs)):
            print(manage("verify", run, url=where, data=data).strip(), flush=True)


if __name__ == "__main__":
    main()
