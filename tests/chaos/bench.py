"""One database, many processes, many faults; then quiet, and the check."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Max

from agentsite import broker
from runs import actions
from runs.models import Run, RunStatus, Step
from runs.store import MOST_LOST
from tests.chaos import plays
from tests.chaos.controls import CONTROLS
from tests.chaos.invariants import Counts, Violation, check, flipped_byte_is_found, weight_of
from tests.chaos.processes import Wiring, live, start
from tests.runs.running import kinds

PLACES = (
    ("before_claim", 3),
    ("after_claim", 3),
    ("before_model_call", 3),
    ("after_effect", 6),
    ("before_ask_commit", 6),
    ("before_conclusion_commit", 6),
    ("inside_commit", 8),
    ("after_started", 3),
    ("effect_begun", 3),
    ("effect_done", 3),
    ("after_commit_before_ring", 8),
    ("before_hint", 3),
)
"""Kill points (K1 to K12 of reliability.md), and up to which of the times that they are reached."""

QUIET_S = 90.0
"""Seconds within which every run must end once nothing disturbs any more."""

BEHIND_S = 120.0
"""By so much a wrong clock is wrong, at most."""

PLANNED_S = 3.0
"""Seconds that a process has to reach its failpoint, before it may be killed at random."""

ROWS_A_FAULT = 6
LONGEST_WAIT_S = 0.4
"""Between two faults so many rows are waited for, at most for so many leases."""

WARM_S = 2.0
"""Seconds after which a worker has loaded and opened what it needs."""

YOUNG_S = 0.15
"""Seconds that a process gets before it is killed at random: it should be in the middle of something."""


@dataclass
class Actor:
    """A process of the bench."""

    kind: str
    process: BaseProcess
    wiring: Wiring
    born: float

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process.pid is not None
        return self.process.pid


@dataclass(frozen=True)
class Death:
    """A worker died while it held a run: when, and how far the run was."""

    run: int
    head: int
    at: float
    """By the bench's own clock."""
    part: str


@dataclass
class Report:
    """What happened, and what was found."""

    database: str
    seed: int
    lease_s: float
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    killed_holding: int = 0
    take_over_s: dict[str, list[float]] = field(default_factory=dict)
    """By the part of the play: from a worker's death to the next row of the run that it held."""
    counts: Counts | None = None
    statuses: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    poison_kills: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of each part of the play."""
    controls: dict[str, str] = field(default_factory=dict)
    """By the control: what was seen, or empty where it did not turn red."""


class Bench:
    """The stage, and the one who disturbs."""

    def __init__(self, database: str, seed: int, *, workers: int, level: int, most_lost: int) -> None:
        self.dice = random.Random(seed)
        self.most_lost = most_lost
        """Where runs are poisoned: so many workers are lost before one is given up."""
        self.seed, self.workers, self.level = seed, workers, level
        self.report = Report(database, seed, settings.LEASE_SECONDS)
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(["tests.chaos.processes"])
        self.actors: list[Actor] = []
        self.deaths: list[Death] = []
        self.frozen: list[tuple[float, Actor]] = []
        self.hints = False
        self.part = ""
        self.began = time.monotonic()
        self.wanted_row = 0
        self.broker: subprocess.Popen[bytes] | None = None
        self.broker_back: float = 0.0
        self.batches = 0

    # processes

    def spawn(self, kind: str, **wiring: Any) -> Actor:
        """One more process."""
        wired = Wiring(seed=self.dice.randrange(1 << 30), hints=self.hints, **wiring)
        process = self.context.Process(target=live, args=(kind, wired), daemon=True)
        process.start()
        actor = Actor(kind, process, wired, time.monotonic())
        self.actors.append(actor)
        return actor

    def kill(self, actor: Actor, how: str = "at random") -> None:
        """kill -9, and note whom it held."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(actor.pid, signal.SIGKILL)
            os.kill(actor.pid, signal.SIGCONT)
        actor.process.join()
        self._buried(actor, how)

    def _buried(self, actor: Actor, how: str) -> None:
        self.actors.remove(actor)
        self.report.kills[f"{actor.kind} {how}"] += 1
        died = time.monotonic()
        held = Run.objects.filter(worker__startswith=f"{actor.pid}-", status=RunStatus.RUNNING)
        lost = [Death(pk, head, died, self.part) for pk, head in held.values_list("pk", "head")]
        self.deaths += lost
        self.report.killed_holding += bool(lost)

    def stop_all(self, *kinds: str) -> None:
        """The end of these processes (of all), not counted as a fault."""
        for actor in [one for one in self.actors if not kinds or one.kind in kinds]:
            actor.process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(actor.pid, signal.SIGCONT)
            actor.process.join()
            self.actors.remove(actor)
        self.frozen = [(until, actor) for until, actor in self.frozen if actor in self.actors]

    # the play

    def torment(self, kills: int, cast: Callable[[], None], pause_s: float) -> None:
        """Disturb until so many have been killed."""
        before = self.report.kills.total()
        self.batches += 1
        said = before
        while self.report.kills.total() - before < kills:
            if self.report.kills.total() >= said + 100:
                said = self.report.kills.total()
                sys.stderr.write(f"{self.part}: {said} kills, {time.monotonic() - self.began:.0f} s\n")
            self.bury_the_dead()
            self._see_take_overs()
            cast()
            self._wake()
            self._let_them_move()
            self._disturb()
            self._mend_the_broker()
            time.sleep(self.dice.uniform(0.2, 1.8) * pause_s)

    def bury_the_dead(self) -> None:
        """Those that a failpoint, or a run, has killed."""
        for actor in [one for one in self.actors if not one.process.is_alive()]:
            place = actor.wiring.failpoint.split(":")[0]
            self._buried(actor, f"at {place}" if place else "by a run")

    def _let_them_move(self) -> None:
        """Between two faults some rows are written, or on a slow machine nothing would ever be in the middle."""
        until = time.monotonic() + LONGEST_WAIT_S * settings.LEASE_SECONDS
        while self._last_row() < self.wanted_row and time.monotonic() < until:
            time.sleep(0.03)
        self.wanted_row = self._last_row() + ROWS_A_FAULT

    def _last_row(self) -> int:
        return Step.objects.aggregate(last=Max("pk"))["last"] or 0

    def _see_take_overs(self) -> None:
        """Which runs have moved since their workers died."""
        ids = {death.run for death in self.deaths}
        heads = dict(Run.objects.filter(pk__in=ids).values_list("pk", "head"))
        moved = [death for death in self.deaths if heads.get(death.run, 0) > death.head]
        for death in moved:
            self.report.take_over_s.setdefault(death.part, []).append(time.monotonic() - death.at)
        self.deaths = [death for death in self.deaths if death not in moved]

    def _wake(self) -> None:
        for until, actor in [one for one in self.frozen if one[0] < time.monotonic()]:
            self.frozen.remove((until, actor))
            with contextlib.suppress(ProcessLookupError):
                os.kill(actor.pid, signal.SIGCONT)

    def _disturb(self) -> None:
        """One fault, by chance."""
        now = time.monotonic()
        asleep = {actor.pid for _, actor in self.frozen}
        grown = [one for one in self.actors if now - one.born > YOUNG_S and one.pid not in asleep]
        workers = [one for one in grown if one.kind in ("worker", "crowd", "sweeper", "celery")]
        others = [one for one in grown if one not in workers]
        lot = self.dice.random()
        if lot < 0.1 and workers:
            self._freeze(self._victim(workers))
        elif lot < 0.15 and others:
            self.kill(self.dice.choice(others))
        elif lot < 0.21 and self.hints:
            self._hurt_the_broker()
        elif lot < 0.23 and connection.vendor == "postgresql":
            self._cut_a_connection()
        elif lot < 0.8 and workers:
            self.kill(self._victim([one for one in workers if not self._is_planned(one)] or workers))

    def _cut_a_connection(self) -> None:
        """The database ends somebody's connection, in the middle of whatever it does."""
        self.report.faults["database connection cut"] += 1
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE datname ="
                " current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) AS one"
            )

    def _victim(self, workers: list[Actor]) -> Actor:
        """Rather one that holds a run than one that looks for work."""
        names = Run.objects.exclude(worker="").values_list("worker", flat=True)
        holding = {int(name.split("-")[0]) for name in names}
        busy = [one for one in workers if one.pid in holding]
        return self.dice.choice(busy if busy and self.dice.random() < 0.8 else workers)

    def _is_planned(self, actor: Actor) -> bool:
        """Whether it waits for its death at a failpoint, and has not waited for long."""
        return bool(actor.wiring.failpoint) and time.monotonic() - actor.born < PLANNED_S

    def _freeze(self, actor: Actor) -> None:
        """As a sleeping machine: longer than the lease, then it goes on as if nothing had been."""
        try:
            os.kill(actor.pid, signal.SIGSTOP)
        except ProcessLookupError:  # it has just died at its failpoint
            return
        self.report.faults["frozen beyond the lease, then woken"] += 1
        self.frozen.append((time.monotonic() + 1.3 * settings.LEASE_SECONDS, actor))

    def oddity(self) -> dict[str, Any]:
        """How the next worker differs: most wait for their death at a failpoint, some have a wrong clock."""
        lot = self.dice.random()
        if lot < 0.5:
            place, most = self.dice.choice(PLACES)
            return {"failpoint": f"{place}:kill9:{self.dice.randint(1, most)}"}
        if lot < 0.6:
            self.report.faults["worker with a wrong clock"] += 1
            return {"clock_s": self.dice.uniform(-BEHIND_S, BEHIND_S)}
        if lot < 0.65 and connection.vendor == "sqlite":
            self.report.faults["worker whose database clock jumped ahead"] += 1
            return {"database_clock_s": self.dice.uniform(0, 2 * settings.LEASE_SECONDS)}
        if lot < 0.68 and connection.vendor == "sqlite":
            self.report.faults["worker with a full disk"] += 1
            return {"file_bytes": self._nearly_full()}
        return {}

    def _nearly_full(self) -> int:
        """A size that the database's next writes pass."""
        name = Path(connection.settings_dict["NAME"])
        log = name.with_name(f"{name.name}-wal")
        return (log.stat().st_size if log.exists() else 0) + self.dice.randint(1, 30_000)

    def keep(self, kind: str, count: int, **wiring: Any) -> None:
        """So many of a kind."""
        for _ in range(count - sum(one.kind == kind for one in self.actors)):
            odd = self.oddity() if kind in ("worker", "sweeper", "celery") else {}
            if kind in ("person", "launcher", "meddler") and self.dice.random() < 0.5:
                place = self.dice.choice(("before_hint", "inside_commit"))
                odd = {"failpoint": f"{place}:kill9:{self.dice.randint(1, 8)}"}
            self.spawn(kind, **(odd | wiring))

    def without_hints(self) -> None:
        """The cast where no hint is ever sent: workers and the scheduler find everything in the database."""
        self.keep("worker", self.workers)
        self.keep("crowd", 1)
        self.keep("sweeper", 1)
        self._people()

    def with_hints(self) -> None:
        """The cast around a broker: Celery's workers, the scheduler, and somebody who repeats hints."""
        self.keep("celery", 2)
        self.keep("sweeper", 1)
        self.keep("hinter", 1)
        self._people()

    def _people(self) -> None:
        self.keep("person", 2)
        self.keep("launcher", 1, batch=f"{self.seed}-{self.batches}-{time.monotonic_ns()}", level=self.level)
        self.keep("meddler", 1)

    @contextlib.contextmanager
    def playing(self, part: str) -> Iterator[None]:
        """A part of the play; the report says how long it took."""
        began, self.part = time.monotonic(), part
        yield
        self.report.parts[part] = time.monotonic() - began

    def without_broker(self, kills: int, pause_s: float) -> None:
        """Everything is found in the database; one worker is never disturbed."""
        steady(self, lambda: self.torment(kills, self.without_hints, pause_s))
        self.stop_all()

    def around_a_broker(self, kills: int, pause_s: float) -> None:
        """Hints are sent, lost, repeated and late."""
        self.start_broker()
        self.hints = True
        self.torment(kills, self.with_hints, pause_s)
        self.hints = False

    # the broker

    def start_broker(self) -> None:
        """The embedded broker, as `up` starts it."""
        path = broker.prepare(settings.DATA_DIR)
        self.broker = subprocess.Popen(
            broker.command(settings.DATA_DIR, path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 10
        while not broker.replies(path) and time.monotonic() < until:
            time.sleep(0.02)

    def stop_broker(self) -> None:
        """The end of the broker."""
        if self.broker is not None:
            self.broker.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.broker.pid, signal.SIGCONT)
            self.broker.wait()
            self.broker = None

    def _hurt_the_broker(self) -> None:
        if self.broker_back:
            return
        how = self.dice.choice(("frozen", "restarted", "flushed", "off"))
        self.report.faults[f"broker {how}"] += 1
        match how:
            case "flushed":
                import redis

                with contextlib.suppress(redis.RedisError), redis.Redis.from_url(settings.REDIS_URL) as line:
                    line.flushall()
            case "frozen":
                assert self.broker is not None
                os.kill(self.broker.pid, signal.SIGSTOP)
                self.broker_back = time.monotonic() + self.dice.uniform(0.5, 4)
            case "restarted" | "off":
                self.stop_broker()
                for kept in (settings.DATA_DIR / "broker").rglob("*.aof"):
                    kept.unlink()
                wait = self.dice.uniform(1, 5) if how == "off" else 0.0
                self.broker_back = time.monotonic() + wait

    def _mend_the_broker(self) -> None:
        if not self.broker_back or time.monotonic() < self.broker_back:
            return
        self.broker_back = 0.0
        if self.broker is None:
            self.start_broker()
        else:
            os.kill(self.broker.pid, signal.SIGCONT)

    # the end

    def calm(self, *, runs: Callable[[], Any] = Run.objects.all) -> None:
        """No more faults: every run ends, or the check will say so."""
        if self.broker_back:
            self.broker_back = 1e-9
            self._mend_the_broker()
        self.stop_all()
        self.spawn("worker", threads=3)
        self.spawn("person")
        until = time.monotonic() + QUIET_S
        while time.monotonic() < until:
            for paused in runs().filter(status=RunStatus.PAUSED):
                actions.resume(paused, by=None)
            if not runs().filter(ended_at__isnull=True).exists():
                break
            self.bury_the_dead()
            self._see_take_overs()
            if not any(one.kind == "worker" for one in self.actors):
                self.spawn("worker", threads=3)
            time.sleep(0.1)
        self.stop_all()

    def judge(self) -> None:
        """The check, and the times."""
        report = self.report
        report.violations, report.counts = check(Run.objects.all())
        report.statuses = Counter(Run.objects.values_list("status", flat=True))
        sample = Run.objects.filter(head__gt=3).order_by("?").first()
        if sample is not None and not flipped_byte_is_found(sample):
            report.violations.append(Violation("I13", sample.pk, "a flipped byte was not found"))
        report.violations += self._leftovers()

    def _leftovers(self) -> Iterator[Violation]:
        """I11: no process of the bench is left."""
        for actor in self.actors:
            if actor.process.is_alive():
                yield Violation("I11", None, f"a {actor.kind} is left")


# --- parts of a run of the bench ----------------------------------------------------------------------------------


def poison(bench: Bench) -> None:
    """A run that kills each worker that takes it; beside it, in the same process, others that are slow.

    It must end with a reason, and they must not be drawn in.
    """
    call = plays.Planned("poison", "poison", 1)
    run = start(plays.play_of("ruled", "poison", [call]))
    slow_ms = int(settings.LEASE_SECONDS * 1000 * 0.6)
    slow = [
        start(plays.play_of("ruled", f"beside-{n}", [plays.Planned("doze", f"beside-{n}", slow_ms)] * 2)).pk
        for n in range(3 if bench.most_lost == MOST_LOST else 0)
    ]
    only = (run.pk, *slow)
    bench.deaths.clear()
    until = time.monotonic() + 80 * settings.LEASE_SECONDS + 60
    while time.monotonic() < until:
        bench.bury_the_dead()
        if not Run.objects.filter(pk__in=only, ended_at__isnull=True).exists():
            break
        if not any(one.kind == "worker" for one in bench.actors):
            bench.spawn("worker", only=only, threads=4, most_lost=bench.most_lost)
        time.sleep(0.02)
    bench.stop_all("worker")
    bench.deaths.clear()
    bench.report.poison_kills = kinds(run).count("recovered")


def steady(bench: Bench, moves: Callable[[], None]) -> None:
    """I12: a worker that is never disturbed weighs at the end what it weighed once it was warm."""
    actor = bench.spawn("worker")
    bench.actors.remove(actor)
    until = time.monotonic() + WARM_S
    while time.monotonic() < until:
        time.sleep(0.1)
    before = weight_of(actor.pid)
    moves()
    after = weight_of(actor.pid)
    actor.process.kill()
    actor.process.join()
    for name, slack in (("descriptors", 8), ("threads", 3), ("memory", 40_000)):
        if after[name] > before[name] * 1.1 + slack:
            bench.report.violations.append(
                Violation("I12", None, f"{name} of a worker: {before[name]} at first, {after[name]} at last")
            )


def control(bench: Bench, name: str) -> str:
    """Take a protection away; what the check finds then. Empty: nothing, and the bench is blind there."""
    wanted = CONTROLS[name]
    runs = _SCENES[name](bench, name)
    violations, _ = check(Run.objects.filter(pk__in=[run.pk for run in runs]))
    bench.stop_all()
    hits = [str(one) for one in violations if one.invariant == wanted.invariant]
    return hits[0] if hits else ""


def _one_deed(bench: Bench, name: str, tool: str, place: str) -> list[Run]:
    """A worker without the protection dies at `place`; another one goes on."""
    run = start(plays.play_of("ruled", f"control-{name}", [plays.Planned(tool, f"control-{name}", 1)]))
    first = bench.spawn("worker", only=(run.pk,), without=name, failpoint=f"{place}:kill9")
    first.process.join(30)
    bench.actors.remove(first)
    bench.spawn("worker", only=(run.pk,), without=name)
    _until(lambda: Run.objects.get(pk=run.pk).finished, 10 * settings.LEASE_SECONDS + 10)
    run.refresh_from_db()
    return [run]


def _key(bench: Bench, name: str) -> list[Run]:
    return _one_deed(bench, name, "pay", "effect_done")


def _remember(bench: Bench, name: str) -> list[Run]:
    return _one_deed(bench, name, "pay", "remembered")


def _started(bench: Bench, name: str) -> list[Run]:
    return _one_deed(bench, name, "shout", "effect_done")


def _count(bench: Bench, name: str) -> list[Run]:
    """More workers are lost on the run than may be, and still nobody gives it up."""
    run = start(plays.play_of("ruled", "poison-control", [plays.Planned("poison", "poison-control", 1)]))
    for _ in range(bench.most_lost + 2):
        actor = bench.spawn("worker", only=(run.pk,), without=name, most_lost=bench.most_lost)
        Run.objects.filter(pk=run.pk).exclude(worker="").update(lease_until=run.created_at)
        actor.process.join(20)
        if actor.process.is_alive():
            break
        bench.actors.remove(actor)
    run.refresh_from_db()
    actions.abort(run, by=None)
    run.refresh_from_db()
    return [run]


def _fence(bench: Bench, name: str) -> list[Run]:
    """Two workers that know of no epoch, on runs whose every call takes longer than the lease."""
    unique = next(one for one in Step._meta.constraints if one.name == "step_once")
    Step._meta.constraints = [one for one in Step._meta.constraints if one is not unique]
    with connection.schema_editor() as editor:
        editor.remove_constraint(Step, unique)
    slow_ms = int(settings.LEASE_SECONDS * 1300)
    calls = [plays.Planned("doze", "control-fence", slow_ms + n) for n in range(2)]
    runs = [start(plays.play_of("ruled", f"control-fence-{n}", calls)) for n in range(2)]
    only = tuple(run.pk for run in runs)
    for _ in range(3):
        bench.spawn("worker", only=only, without=name, threads=2)
    _until(
        lambda: not Run.objects.filter(pk__in=only, ended_at__isnull=True).exists(),
        8 * settings.LEASE_SECONDS,
    )
    return list(Run.objects.filter(pk__in=only))


_SCENES = {"key": _key, "remember": _remember, "started": _started, "count": _count, "fence": _fence}


def _until(condition: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
