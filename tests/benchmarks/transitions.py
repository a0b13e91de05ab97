"""Durable transitions per second of a scripted `ruled` run, each committed before the next.

    python3 -m tests.benchmarks.transitions [--profile] [TRANSITIONS ...]

Measures a new SQLite file, then a new PostgreSQL cluster where its programs are found; or only the database of
DATABASE_URL, where that is set. Prints for each size: seconds, transitions per second, the last tenth against the
first, the time to load the run again, bytes on disk for each transition (SQLite).
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import django

from tests.benchmarks import postgres
from tests.benchmarks.contenders import PER_CYCLE, launched


def measure(transitions: int, database: Path | None, profile: cProfile.Profile | None) -> None:
    """Run once, and print the figures."""
    from runs import driver
    from runs.models import Step
    from runs.store import loading

    run = launched(transitions // PER_CYCLE)
    size = database.stat().st_size if database else 0
    started = time.perf_counter()
    if profile is not None:
        profile.enable()
    run = driver.drive_inline(run.pk)
    if profile is not None:
        profile.disable()
    seconds = time.perf_counter() - started
    assert run.status == "succeeded", run.exit_reason
    steps = Step.objects.filter(run=run, kind="transition").order_by("seq")
    made = steps.count()
    moments = list(steps.values_list("at", flat=True))
    tenth = max(1, made // 10)
    first = (moments[tenth] - moments[0]).total_seconds()
    last = (moments[-1] - moments[-1 - tenth]).total_seconds()
    started = time.perf_counter()
    loaded = loading.load(run, loading.terms_of(run, driver.tool_specs(run)))
    loading_ms = (time.perf_counter() - started) * 1000
    assert loaded.snapshot.node == "end"
    grown = (database.stat().st_size - size) / made if database else 0
    print(
        f"{made:>7} transitions  {seconds:7.2f} s  {made / seconds:8.0f}/s  last tenth ÷ first {last / first:5.2f}"
        f"  load {loading_ms:5.1f} ms" + (f"  {grown:6.0f} B each" if database else "")
    )


def main() -> None:
    """Measure the sizes that were asked for, each database in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("transitions", nargs="*", type=int, default=[100, 1_000, 10_000])
    parser.add_argument("--profile", action="store_true", help="print the largest costs of the last size")
    options = parser.parse_args()
    if os.environ.get("DATABASE_URL"):
        measure_all(options.transitions, options.profile)
        return
    again = [sys.executable, "-m", "tests.benchmarks.transitions", *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        print("SQLite", flush=True)
        subprocess.run(
            again, check=True, env={**os.environ, "DATABASE_URL": f"sqlite:///{folder}/db.sqlite3"}
        )
    found = postgres.binaries()
    if found is None:
        print("PostgreSQL: no initdb on this machine")
        return
    with postgres.cluster(found) as url:
        print("PostgreSQL", flush=True)
        subprocess.run(again, check=True, env={**os.environ, "DATABASE_URL": url})


def measure_all(sizes: list[int], profiled: bool) -> None:  # noqa: FBT001
    """Measure `sizes` on the database of DATABASE_URL."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"AGENTSITE_DATA_DIR": folder, "REDIS_URL": "", "DATABASE_POOL": "0"}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
        url = os.environ["DATABASE_URL"]
        database = Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:") else None
        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        profile = cProfile.Profile() if profiled else None
        for size in sizes:
            measure(size, database, profile if size == sizes[-1] else None)
        if profile is not None:
            pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
