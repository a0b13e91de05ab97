"""The chaos bench's command: `python -m tests.chaos --kills 2000 --database sqlite|postgres|both [--seed N]`."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks import postgres
from tests.chaos import MODEL_KEY, leftovers
from tests.chaos.findings import Violation

ROOT = Path(__file__).resolve().parent.parent.parent
INSIDE = "CHAOS_INSIDE"


def arguments() -> argparse.Namespace:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=2000, help="how many processes are killed, per database")
    parser.add_argument("--database", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument(
        "--seed", type=int, default=None, help="what a report printed, to disturb alike again"
    )
    parser.add_argument("--lease", type=float, default=2.0, help="seconds of the workers' lease")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--level", type=int, default=16, help="runs that are kept unfinished")
    parser.add_argument(
        "--most-lost", type=int, default=3, help="workers lost on a run until a person is asked"
    )
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between two faults, as a mean")
    parser.add_argument(
        "--without", nargs="*", choices=("poison", "asleep", "controls", "broker"), default=[]
    )
    return parser.parse_args()


def main() -> int:
    """Each database in a process of its own, whose environment names it."""
    options = arguments()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 20)
    if os.environ.get(INSIDE):
        return inside(options, seed)
    wanted = ("sqlite", "postgres") if options.database == "both" else (options.database,)
    return max(outside(options, database, seed) for database in wanted)


def outside(options: argparse.Namespace, database: str, seed: int) -> int:
    """A data directory and a database that go away, and the bench on them."""
    left: list[Violation] = []
    with tempfile.TemporaryDirectory(prefix="agentsite-chaos-") as name, _database(database) as url:
        folder = Path(name)
        (folder / "logs").mkdir()
        (folder / "static").mkdir()
        (folder / "broker").mkdir(mode=0o700)
        own = {
            INSIDE: database,
            "DJANGO_SETTINGS_MODULE": "agentsite.settings",
            "AGENTSITE_DATA_DIR": name,
            "AGENTSITE_TOOLS": "tests.chaos.far_side:TOOLS",
            "CHAOS_LEDGER": str(folder / "effects.sqlite3"),
            "DATABASE_URL": url,
            "DATABASE_POOL": "0",
            "REDIS_URL": f"unix://{folder / 'broker' / 'valkey.sock'}",
            "LEASE_SECONDS": str(options.lease),
            "LOG_LEVEL": "ERROR",
            "CELERY_SKIP_CHECKS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            MODEL_KEY: f"canary{secrets.token_hex(16)}",
            "PYTHONFAULTHANDLER": "1",
        }
        words = [*sys.argv[1:], "--seed", str(seed)]
        command = [sys.executable, "-m", "tests.chaos", *words]
        code = _run(command, os.environ | own)
        if code and os.environ.get("CHAOS_KEEP"):
            _keep(folder, url, Path(os.environ["CHAOS_KEEP"]))
        left += leftovers.of_the_bench(folder)
    left += leftovers.of_folders(folder, *([Path(url.partition("host=")[2])] if "host=" in url else []))
    return max(ended(code), _told(left))


def _run(command: list[str], environment: dict[str, str]) -> int:
    """Run it to its end; whoever ends this process politely ends the bench politely, which takes all its own along."""
    bench = subprocess.Popen(command, cwd=ROOT, env=environment)
    before = signal.signal(signal.SIGTERM, lambda *_: bench.terminate())
    try:
        return bench.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


def _keep(folder: Path, url: str, where: Path) -> None:
    """What a red bench leaves, to be looked at: its data directory, and a dump where its database is elsewhere."""
    subprocess.run(["cp", "-r", str(folder), str(where)], check=False)
    programs = postgres.binaries()
    if url and programs is not None:
        subprocess.run([programs / "pg_dump", "--file", where / "database.sql", url], check=False)


def ended(code: int) -> int:
    """The exit code for a bench that ended so; one that was killed has found nothing, and says so."""
    if code >= 0:
        return code
    sys.stdout.write(f"The bench itself was ended by {signal.Signals(-code).name}.\nRED\n")
    return 1


def _told(left: list[Violation]) -> int:
    """I11, once the bench itself is gone: what is left of it."""
    for one in left:
        sys.stdout.write(f"{one}\n")
    if left:
        sys.stdout.write("RED\n")
    return 1 if left else 0


@contextlib.contextmanager
def _database(kind: str) -> Iterator[str]:
    if kind == "sqlite":
        yield ""
        return
    programs = postgres.binaries()
    if programs is None:
        raise SystemExit("The programs of PostgreSQL (initdb, postgres) were not found on this machine.")
    with postgres.cluster(programs) as url:
        yield url


def inside(options: argparse.Namespace, seed: int) -> int:
    """The bench itself; 1 where a violation was found or a control stayed green."""
    import django

    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tests.chaos import bench as stage
    from tests.chaos import leftovers, pages, report, scenes, world
    from tests.chaos.far_side import EFFECTS

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings.HINTS = False
    settings.STORAGES["staticfiles"]["BACKEND"] = "django.contrib.staticfiles.storage.StaticFilesStorage"
    pages.in_small_portions()
    world.furnish()
    call_command("migrate", verbosity=0)
    EFFECTS.create()
    bench = stage.Bench(
        os.environ[INSIDE], seed, workers=options.workers, level=options.level, most_lost=options.most_lost
    )
    share = 0 if "broker" in options.without else options.kills // 5
    began = time.monotonic()
    bench.canaries.let_loose()
    try:
        with bench.playing("no hints"):
            bench.without_broker(options.kills - share, options.pause)
        if share:
            with bench.playing("hints, broken broker"):
                bench.around_a_broker(share, options.pause)
        with bench.playing("calm"):
            bench.calm()
        if "poison" not in options.without:
            with bench.playing("poison"):
                scenes.poison(bench)
        if "asleep" not in options.without:
            with bench.playing("asleep"):
                scenes.asleep(bench)
        with bench.playing("check"):
            bench.judge()
        if "controls" not in options.without:
            with bench.playing("controls"):
                bench.report.controls = {name: scenes.plant(bench, name) for name in scenes.PLANTS}
                bench.report.controls |= {name: scenes.control(bench, name) for name in scenes.CONTROLS}
    finally:
        bench.stop_all()
        bench.broker.stop()
        bench.canaries.silence()
    bench.report.findings.take("I11", leftovers.of_the_bench(Path(settings.DATA_DIR)))
    bench.report.seconds = time.monotonic() - began
    sys.stdout.write(report.text_of(bench.report) + "\n")
    sys.stdout.flush()
    return 0 if report.is_green(bench.report) else 1


if __name__ == "__main__":
    sys.exit(main())
