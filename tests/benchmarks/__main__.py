"""The speed of the product beside its yardsticks, in one table: `contenders.py` says what each of them does.

    python3 -m tests.benchmarks [--cycles 1000] [--rounds 3] [--peers PYTHON]

Runs every contender on a new SQLite file and in a new PostgreSQL database, in an order that changes with each round,
and prints medians: agent cycles and transitions a second, CPU of the process for each transition, and cycles as a ratio
to the product's. On PostgreSQL also 1, 2 and 4 worker processes at once, each with a run of its own. `--peers` is the
interpreter of an environment with langgraph and its checkpointers; without it they are left out, which is said.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks import postgres
from tests.benchmarks.contenders import CONTENDERS

HERE = Path(__file__).parent
NUMBERS = count(1)

Run = dict[str, Any]


def main() -> None:
    """Measure on each database that is there, and print a table for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default="", help="interpreter with langgraph and its checkpointers")
    options = parser.parse_args()
    names = [name for name in CONTENDERS if name != "langgraph" or options.peers]
    print(f"{os.cpu_count()} cores, load {_load()}; {options.cycles} cycles, medians of {options.rounds}")
    if not options.peers:
        print("Without --peers LangGraph is left out.")
    with tempfile.TemporaryDirectory() as folder:
        compare("SQLite", folder, names, options)
    found = postgres.binaries()
    if found is None:
        print("PostgreSQL: no initdb on this machine")
        return
    with postgres.own_cluster(found, "max_connections=200") as cluster:
        compare("PostgreSQL", cluster, names, options)
        scale(cluster, options)
    print(f"load at the end {_load()}")


def compare(title: str, place: str | postgres.Cluster, names: list[str], options: argparse.Namespace) -> None:
    """Print what each contender takes."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(options.rounds):
        for name in random.Random(number).sample(names, len(names)):
            with database(place) as url, started(name, url, options) as process:
                runs[name].append(result_of(process))
    print(f"\n{title:<12}  cycles/s  transitions/s  CPU µs a transition  cycles ÷ product")
    base = rate(runs["product"], "cycles")
    for name, made in runs.items():
        cycles = rate(made, "cycles")
        cpu = median(run["cpu_s"] / run["transitions"] for run in made) * 1e6
        print(
            f"  {name:<10} {cycles:9.0f} {rate(made, 'transitions'):14.0f} {cpu:20.0f} {cycles / base:17.2f}"
        )


def scale(cluster: postgres.Cluster, options: argparse.Namespace) -> None:
    """Print what 1, 2 and 4 worker processes take side by side."""
    print("\nworkers  transitions/s  CPU µs a transition")
    for workers in (1, 2, 4):
        totals, cpus = [], []
        for _ in range(options.rounds):
            with database(cluster) as url:
                prepare(url)
                processes = [popen("worker", url, options) for _ in range(workers)]
                made = [result_of(process) for process in processes]
            totals.append(sum(run["transitions"] for run in made) / max(run["seconds"] for run in made))
            cpus.append(sum(run["cpu_s"] for run in made) / sum(run["transitions"] for run in made))
        print(f"{workers:>7} {median(totals):14.0f} {median(cpus) * 1e6:20.0f}")


def prepare(url: str) -> None:
    """Make the tables, before several processes want them at once."""
    command = [sys.executable, "-m", "tests.benchmarks.contenders", "product", "2"]
    subprocess.run(command, env={**os.environ, "DATABASE_URL": url}, check=True, capture_output=True)


def rate(runs: list[Run], what: str) -> float:
    """The median of how many a second."""
    return median(run[what] / run["seconds"] for run in runs)


@contextmanager
def database(place: str | postgres.Cluster) -> Iterator[str]:
    """The URL of an empty database: a file in a folder, or one of a cluster."""
    name = f"bench{next(NUMBERS)}"
    if isinstance(place, str):
        yield f"sqlite:///{place}/{name}.sqlite3"
        return
    place.create_database(name)
    yield f"postgresql://postgres@/{name}?host={place.folder}"


@contextmanager
def started(name: str, url: str, options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """A contender at work, ended with the `with`."""
    process = popen(name, url, options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def popen(name: str, url: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Start a contender."""
    words = [name, str(options.cycles)]
    if name == "langgraph":
        command = [options.peers, str(HERE / "contenders.py"), *words]
    else:
        command = [sys.executable, "-m", "tests.benchmarks.contenders", *words]
    return subprocess.Popen(
        command, env={**os.environ, "DATABASE_URL": url}, stdout=subprocess.PIPE, text=True
    )


def result_of(process: subprocess.Popen[str]) -> Run:
    """What a contender prints."""
    out, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{process.args!r} failed with exit code {process.returncode}.")
    return dict(json.loads(out.strip().splitlines()[-1]))


def _load() -> str:
    return " ".join(f"{part:.1f}" for part in os.getloadavg())


if __name__ == "__main__":
    main()
