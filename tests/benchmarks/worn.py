"""How a real site bears what wears it down, with the usual lease; prints what it saw.

    python3 -m tests.benchmarks.worn [frozen] [pills] [asleep] [clock] [--workers N] [--database sqlite|postgres]

`frozen`: a worker that stops inside a write. `pills`: a run of each kind of tool that kills its worker, beside 30
others. `asleep`: all processes stopped for 45 s. `clock`: set back by an hour, ahead by an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.agentsite.pills import PILLS
from tests.agentsite.wearing import (
    ENVIRON,
    Clock,
    begun,
    launch,
    longest_gap,
    lost,
    questions,
    rows,
    still,
    succeeded,
    suspend,
)
from tests.benchmarks import postgres
from tests.stack import Site, running_site, wait_for

ASLEEP_S, FEED_S = 45.0, 90.0
LONGEST_S = 900.0

Sites = Callable[..., contextlib.AbstractContextManager[Site]]


def say(line: str) -> None:
    """One line of the report, at once."""
    print(line, flush=True)


def _told(site: Site, runs: list[int]) -> str:
    return (
        f"{succeeded(site, runs)} of {len(runs)} succeeded, questions {dict(Counter(questions(site, runs)))}"
    )


def frozen(sites: Sites) -> None:
    """Each worker stops itself at its 100th commit, with the transaction open; a run is launched every second."""
    with sites({"FAILPOINTS": "inside_commit:freeze:100"}) as site, ThreadPoolExecutor(1) as launcher:
        runs, done = (
            launch(site, *((f"run {n}", [("work_key", 20)] * 4) for n in range(10))),
            threading.Event(),
        )

        def more() -> None:
            while not done.wait(1.0):
                runs.extend(launch(site, ("more", [("work_key", 20)] * 2)))

        launching = launcher.submit(more)
        until = time.monotonic() + FEED_S
        gap = longest_gap(site, lambda: time.monotonic() > until, LONGEST_S)
        done.set()
        launching.result()
        wait_for(lambda: still(site), LONGEST_S)
        times = site.output.count("was stopped (SIGSTOP) and is replaced")
        say(f"frozen: {times} replaced, {gap:.1f} s without a row at most; {_told(site, runs)}")


def pills(sites: Sites) -> None:
    """Thirty runs whose calls take 0.5 to 2 s and change something; pills of each kind while these are under way."""
    with sites({}) as site:
        kinds = ("work_key", "work_asked", "work_read")
        beside = launch(site, *((f"beside {n}", [(kinds[n % 3], 500 + 50 * n)] * 6) for n in range(30)))
        scheduler, began = site.pids["scheduler"], time.monotonic()
        killers = launch(site, *((pill.name, [(pill.name, 500)]) for pill in PILLS))
        gap = longest_gap(site, lambda: still(site), LONGEST_S)
        say(
            f"pills beside 30: all still after {time.monotonic() - began:.0f} s, {gap:.1f} s without a row at most"
        )
        say(f"  neighbours: {_told(site, beside)}")
        for pill, run in zip(PILLS, killers, strict=True):
            say(f"  {pill.name}: {lost(site, run)} deaths, {', '.join(questions(site, [run]))}")
        same = site.pids["scheduler"] == scheduler
        say(f"  common worker died {site.output.count('The worker died')} times, scheduler lost: {not same}")


def asleep(sites: Sites) -> None:
    """Ten runs are in calls of 20 s that must not be made twice."""
    with sites({}) as site:
        runs = launch(site, *((f"run {n}", [("work", 20_000)] * 2) for n in range(10)))
        wait_for(lambda: begun(site) == len(runs))
        suspend(site, ASLEEP_S)
        woke = time.monotonic()
        wait_for(lambda: still(site), LONGEST_S)
        say(
            f"asleep for {ASLEEP_S:g} s: all still {time.monotonic() - woke:.0f} s later; {_told(site, runs)}"
        )


def clock(sites: Sites) -> None:
    """Ten runs in slow calls that must not be made twice, each followed by many quick ones."""
    with tempfile.TemporaryDirectory(prefix="agentsite-clock-") as name:
        wall = Clock(Path(name))
        with _environment(wall.environ), sites(wall.environ) as site:
            for ahead in (-3600, -4200, 0, 3600):
                calls = [("work", 3000), *[("work_key", 20)] * 8]
                runs = launch(site, *((f"{ahead} {n}", calls) for n in range(10)))
                wait_for(lambda: begun(site) > 0)
                wall.set(ahead)
                gap = longest_gap(site, lambda: still(site), LONGEST_S)
                say(f"clock at {ahead:+d} s: {gap:.1f} s without a row at most; {_told(site, runs)}")
            first = rows(site, "SELECT min(at), max(at) FROM runs_step")[0]
            say(f"  rows from {first[0]} to {first[1]}")


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    """For a database server that is started meanwhile: its clock is the same."""
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _sites(database: str, workers: int) -> Sites:
    @contextlib.contextmanager
    def site(environ: dict[str, str]) -> Iterator[Site]:
        with contextlib.ExitStack() as stack:
            own = ENVIRON | environ
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="agentsite-worn-"))
            if database == "postgres":
                programs = postgres.binaries()
                if programs is None:
                    raise SystemExit("The programs of PostgreSQL (initdb, postgres) were not found.")
                own["DATABASE_URL"] = stack.enter_context(postgres.cluster(programs))
            yield stack.enter_context(
                running_site(Path(folder) / "data", own, options=("--workers", str(workers)))
            )

    return site


MEASURES = {"frozen": frozen, "pills": pills, "asleep": asleep, "clock": clock}


def main() -> None:
    """Measure what is named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", choices=[*MEASURES, []], default=[])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for name in options.what or MEASURES:
        MEASURES[name](_sites(options.database, options.workers))


if __name__ == "__main__":
    main()
