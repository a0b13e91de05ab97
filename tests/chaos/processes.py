"""What runs in the bench's processes: workers, the scheduler, people, a launcher; forked from one that knows it all.

A worker is the product's own: `driver.drive`, the `sweeper` command, Celery's. What a test wants to be otherwise (a
failpoint, a wrong clock, a small disk, a protection that is off) is changed here, in the test's own process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import resource
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import django

django.setup()

from celery import current_app  # noqa: E402
from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, connections  # noqa: E402
from django.db.backends.signals import connection_created  # noqa: E402
from django.utils import timezone  # noqa: E402

from agentsite.celery import app  # noqa: E402
from agentsite.management.commands import sweeper  # noqa: E402
from agentsite.management.commands.up import worker_command  # noqa: E402
from runs import actions, driver, failpoints, store, tasks  # noqa: E402
from runs.models import Exchange, Interrupt, Run, RunStatus  # noqa: E402
from runs.store import leases  # noqa: E402
from tests.chaos import controls, plays  # noqa: E402
from tests.chaos.far_side import EFFECTS  # noqa: E402

THREADS = 2
"""Runs that a worker drives at once."""

IDLE_S = 0.03
"""Seconds between two looks of a process that has nothing to do."""

log = logging.getLogger(__name__)

__all__ = ["Wiring", "live"]


@dataclass(frozen=True)
class Wiring:
    """How one process differs from an undisturbed one."""

    seed: int = 0
    failpoint: str = ""
    """As FAILPOINTS has it."""
    clock_s: float = 0.0
    """By so much the process's own clock is wrong."""
    database_clock_s: float = 0.0
    """SQLite asks the process for the time: by so much that is wrong."""
    file_bytes: int = 0
    """No file may grow beyond this; 0: any size."""
    without: str = ""
    """The protection that is off (controls.py)."""
    hints: bool = False
    only: tuple[int, ...] = ()
    """A worker of these runs alone; none: of all."""
    batch: str = ""
    """A launcher: how the labels of its runs begin."""
    level: int = 0
    """A launcher: so many runs are kept unfinished."""
    threads: int = THREADS
    most_lost: int = store.MOST_LOST


def live(kind: str, wiring: Wiring) -> None:
    """The life of a process of this kind."""
    _end_with(os.getppid())
    _write_to(Path(settings.DATA_DIR) / "logs" / f"{kind}.log")
    settings.HINTS = wiring.hints
    # As on a busy site the real numbers are too long for a lease of a second or two.
    driver.POSTPONED_S, tasks.HINT_AGAIN_S, sweeper.LATE_S = 1.0, 1.0, 2.0
    names = SimpleNamespace(token_hex=lambda n: f"{os.getpid()}-{secrets.token_hex(4)}")
    driver.secrets = names  # type: ignore[assignment]  # a worker's name says which process it is
    failpoints.PLANNED = {item.split(":")[0]: item.split(":")[1:] for item in wiring.failpoint.split(",")}
    store.MOST_LOST = leases.MOST_LOST = wiring.most_lost
    _shift_clocks(wiring)
    if wiring.without:
        controls.CONTROLS[wiring.without].take_away()
    if wiring.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (wiring.file_bytes, wiring.file_bytes))
    _LIVES[kind](wiring, random.Random(wiring.seed))


def _end_with(parent: int) -> None:
    """No process outlives the bench."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
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
        with _unharmed():
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
            with _unharmed():
                found = list(Run.objects.due().values_list("pk", flat=True)[:20])
                if found:
                    run_id = dice.choice(found)
                    list(threads.map(_drive_once, [run_id] * 6))
            time.sleep(IDLE_S)


def _drive_once(run_id: int) -> None:
    with _unharmed():
        driver.drive(run_id)
        connections.close_all()


def _sweeper(wiring: Wiring, dice: random.Random) -> None:
    """The real scheduler; without hints it drives all that is due itself."""
    call_command("sweeper", every=0.2)


def _celery(wiring: Wiring, dice: random.Random) -> None:
    """The real worker, as `up` starts it, with fewer threads."""
    words = worker_command()
    words = words[words.index("worker") :]
    words[words.index("--concurrency") + 1] = "4"
    app.worker_main(words)


def _hinter(wiring: Wiring, dice: random.Random) -> None:
    """Repeats hints, out of order, and hints at runs that want nothing."""
    while True:
        with _unharmed():
            found = list(Run.objects.order_by("-pk").values_list("pk", flat=True)[:60])
            for run_id in dice.choices(found, k=10) * 2 if found else ():
                tasks.hint(run_id)
            current_app.pool.force_close_all() if dice.random() < 0.05 else None
        time.sleep(0.3)


# --- people -------------------------------------------------------------------------------------------------------


def _launcher(wiring: Wiring, dice: random.Random) -> None:
    """Launches a run whenever too few are unfinished; it may be killed between the row and the hint."""
    number = 0
    while True:
        with _unharmed():
            unfinished = Run.objects.filter(ended_at__isnull=True, parent__isnull=True).count()
            for _ in range(max(0, wiring.level - unfinished)):
                number += 1
                start(plays.play(f"{wiring.batch}-{number}", dice))
        time.sleep(IDLE_S)


def start(play: plays.Play) -> Run:
    """Launch a play."""
    return actions.start_run(
        machine=play.machine, goal=play.label, settings=play.settings, owner=None, script=play.script
    )


def _person(wiring: Wiring, dice: random.Random) -> None:
    """Answers every question: some calls are refused; of a call that may have happened the far side is asked."""
    while True:
        with _unharmed():
            for interrupt in Interrupt.objects.filter(status=Interrupt.Status.PENDING)[:20]:
                with contextlib.suppress(store.Conflict, store.NotPossible, store.BadDecision):
                    _answer(interrupt, dice)
        time.sleep(IDLE_S)


def _answer(interrupt: Interrupt, dice: random.Random) -> None:
    verdict, message = "approve", ""
    if interrupt.kind == "may_have_happened":
        # the far side is told that nothing may come under that key any more: a frozen worker may wake up
        if EFFECTS.close_key(_key_of(interrupt)):
            verdict, message = "respond", "It did."
    elif dice.random() < 0.2:
        verdict, message = "reject", "No."
    actions.decide(
        interrupt.pk,
        verdict=verdict,
        by=None,
        channel="web",
        message=message,
        revision=interrupt.revision,
        fingerprint=interrupt.fingerprint,
    )


def _key_of(interrupt: Interrupt) -> str:
    """The key of the call that the question is about."""
    lost = Exchange.objects.filter(run_id=interrupt.run_id, seq__lt=interrupt.seq, kind="tool_call")
    return lost.order_by("-seq").values_list("key", flat=True)[0]


def _meddler(wiring: Wiring, dice: random.Random) -> None:
    """Pauses, resumes and rolls back runs of its own batch while they are driven."""
    while True:
        with _unharmed(), contextlib.suppress(store.Conflict, store.NotPossible):
            _meddle(wiring, dice)
        time.sleep(IDLE_S)


def _meddle(wiring: Wiring, dice: random.Random) -> None:
    mine = Run.objects.filter(ended_at__isnull=True, goal__startswith="steered", parent__isnull=True)
    if mine.count() < 3:
        label = f"steered-{os.getpid()}-{dice.randint(0, 10**9)}"
        start(plays.play_of("ruled", label, plays.calls_of(label, dice, 5)))
    for paused in mine.filter(status=RunStatus.PAUSED):
        actions.resume(paused, by=None)
    run = dice.choice(list(mine))
    targets = list(run.steps.filter(kind="transition", live=True).values_list("seq", flat=True))
    rolled_back = run.steps.filter(kind="rewind").count()
    if targets and rolled_back < 2 and dice.random() < 0.2:
        actions.rewind(run, to=dice.choice(targets), by=None)
    elif dice.random() < 0.2:
        actions.pause(run, by=None)


@contextlib.contextmanager
def _unharmed() -> Iterator[None]:
    """Faults of the database are the bench's own doing (a full disk, a restart): a process tries again."""
    try:
        yield
    except (DatabaseError, OSError) as fault:
        log.warning("%s: %s", type(fault).__name__, fault)
        connections.close_all()
        time.sleep(0.1)


Life = Callable[[Wiring, random.Random], None]

_LIVES: dict[str, Life] = {
    "worker": _worker,
    "crowd": _crowd,
    "sweeper": _sweeper,
    "celery": _celery,
    "hinter": _hinter,
    "launcher": _launcher,
    "person": _person,
    "meddler": _meddler,
}
