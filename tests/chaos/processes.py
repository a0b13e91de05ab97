"""What runs in the bench's processes: workers, the scheduler, people; forked from one that knows it all.

A worker is the product's own: `driver.drive`, the `sweeper` command, Celery's. What a test wants to be otherwise (a
failpoint, a wrong clock, a small disk, a protection that is off) is changed here, in the test's own process.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import django

django.setup()

from celery import current_app  # noqa: E402
from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connections  # noqa: E402
from django.db.backends.signals import connection_created  # noqa: E402
from django.utils import timezone  # noqa: E402

from agentsite import hands  # noqa: E402
from agentsite.celery import app  # noqa: E402
from agentsite.management.commands.up import worker_command  # noqa: E402
from runs import driver, failpoints, hints, tasks  # noqa: E402
from runs.models import Run  # noqa: E402
from runs.store import leases  # noqa: E402
from tests.chaos import controls, people, world  # noqa: E402
from tests.chaos.wiring import IDLE_S, LOOK_S, Life, Wiring, unharmed  # noqa: E402

__all__ = ["live"]


def live(kind: str, wiring: Wiring) -> None:
    """The life of a process of this kind."""
    _end_with_the_bench()
    _write_to(Path(settings.DATA_DIR) / "logs" / f"{kind}.log")
    settings.HINTS = wiring.hints
    # As on a busy site the real numbers are too long for a lease of a second or two.
    driver.POSTPONED_S, tasks.HINT_AGAIN_S, hands.LATE_S = 1.0, 1.0, 2.0
    driver.drive_alone = driver.drive  # what is changed here would not hold in a process of its own
    settings.PROCESS_NAME = str(os.getpid())
    failpoints.PLANNED = {item.split(":")[0]: item.split(":")[1:] for item in wiring.failpoint.split(",")}
    leases.MOST_LOST = wiring.most_lost
    os.environ["PGAPPNAME"] = f"{kind}-{os.getpid()}"  # a server's connections say whose they are
    world.furnish()
    _shift_clocks(wiring)
    if wiring.without:
        controls.CONTROLS[wiring.without].take_away()
    if wiring.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (wiring.file_bytes, wiring.file_bytes))
    _LIVES[kind](wiring, random.Random(wiring.seed))


def _end_with_the_bench() -> None:
    """No process outlives it. The server that it was forked from lives for as long as it does itself."""
    bench = multiprocessing.parent_process()
    assert bench is not None

    def watch() -> None:
        bench.join()
        os._exit(1)

    threading.Thread(target=watch, name="watch", daemon=True).start()


def _write_to(path: Path) -> None:
    """Whatever is written to the terminal goes into a file."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)


def _shift_clocks(wiring: Wiring) -> None:
    if wiring.clock_s:
        right, off = timezone.now, timedelta(seconds=wiring.clock_s)
        timezone.now = lambda: right() + off
    if wiring.database_clock_s:
        off = timedelta(seconds=wiring.database_clock_s)

        def strftime(form: str, *_: Any) -> str:
            return (datetime.now(UTC) + off).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]

        def shift(connection: Any, **_: Any) -> None:
            connection.connection.create_function("STRFTIME", 2, strftime)

        connection_created.connect(shift, weak=False)


# --- workers ------------------------------------------------------------------------------------------------------


def _worker(wiring: Wiring, dice: random.Random) -> None:
    """Drives whatever is due, in some threads; hints are not needed."""
    seeds = [dice.random() for _ in range(wiring.threads)]
    with ThreadPoolExecutor(wiring.threads) as threads:
        for seed in seeds:
            threads.submit(_hand, wiring, random.Random(seed))


def _hand(wiring: Wiring, dice: random.Random) -> None:
    while True:
        with unharmed():
            due = Run.objects.due()
            due = due.filter(pk__in=wiring.only) if wiring.only else due
            found = list(due.order_by("due_at").values_list("pk", flat=True)[:20])
            if found:
                driver.drive(dice.choice(found))
                continue
        time.sleep(IDLE_S)


def _crowd(wiring: Wiring, dice: random.Random) -> None:
    """Drives the same run by many hands at once, as a hint that was delivered many times would."""
    with ThreadPoolExecutor(6) as threads:
        while True:
            with unharmed():
                found = list(Run.objects.due().values_list("pk", flat=True)[:20])
                if found:
                    run_id = dice.choice(found)
                    list(threads.map(_drive_once, [run_id] * 6))
            time.sleep(IDLE_S)


def _drive_once(run_id: int) -> None:
    with unharmed():
        driver.drive(run_id)
        connections.close_all()


def _sweeper(wiring: Wiring, dice: random.Random) -> None:
    """Run the real scheduler."""
    call_command("sweeper", every=LOOK_S)


def _celery(wiring: Wiring, dice: random.Random) -> None:
    """The real worker, as `up` starts it, with fewer threads."""
    words = worker_command()
    words = words[words.index("worker") :]
    words[words.index("--concurrency") + 1] = "4"
    app.worker_main(words)


def _hinter(wiring: Wiring, dice: random.Random) -> None:
    """Repeats hints, out of order, and hints at runs that want nothing."""
    while True:
        with unharmed():
            found = list(Run.objects.order_by("-pk").values_list("pk", flat=True)[:60])
            for run_id in dice.choices(found, k=10) * 2 if found else ():
                hints.hint(run_id)
            current_app.pool.force_close_all() if dice.random() < 0.05 else None
        time.sleep(0.3)


_LIVES: dict[str, Life] = {
    "worker": _worker,
    "crowd": _crowd,
    "sweeper": _sweeper,
    "celery": _celery,
    "hinter": _hinter,
    "launcher": people.launcher,
    "person": people.person,
    "meddler": people.meddler,
    "copier": people.copier,
    "keeper": people.keeper,
}
