"""One database, many processes, many faults; then quiet, and the check."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Max

from runs import actions
from runs.models import Run, RunStatus, Step
from runs.store import leases
from tests.chaos import canaries, freezing, leftovers, pages, plays, purses, saved
from tests.chaos.findings import Violation
from tests.chaos.freezing import Freezer
from tests.chaos.invariants import check, flipped_byte_is_found
from tests.chaos.people import start
from tests.chaos.plants import Cast
from tests.chaos.processes import live
from tests.chaos.report import Report
from tests.chaos.weak_broker import WeakBroker
from tests.chaos.wiring import LOOK_S, Actor, Wiring
from tests.stack import comes

PLACES = (
    ("before_claim", 3),
    ("after_claim", 3),
    ("model_asked", 4),
    ("model_answered", 4),
    ("summary_asked", 1),
    ("inside_compaction", 1),
    ("inside_question", 1),
    ("inside_put", 1),
    ("after_effect", 6),
    ("before_ask_commit", 6),
    ("between_moves", 12),
    ("before_conclusion_commit", 6),
    ("inside_commit", 8),
    ("after_started", 3),
    ("effect_begun", 3),
    ("effect_done", 3),
    ("after_commit_before_ring", 8),
    ("before_hint", 3),
)
"""Kill points of workers (docs/invariants.md, K2 to K10 and K12), and up to which of the times they are reached."""

PLACES_OF = {
    "person": (("before_hint", 8), ("inside_commit", 8)),
    "launcher": (("before_hint", 8),),
    "meddler": (("before_hint", 8), ("inside_commit", 8), ("inside_rollback", 1)),
    "copier": (("inside_fork", 2), ("after_fork_files", 2)),
    "keeper": (("backup_after_table", 12), ("backup_before_rename", 2)),
}
"""The same of the others (K1, K11, K12)."""

QUIET_S = 90.0
"""Seconds within which every run must end once nothing disturbs any more."""

BEHIND_S = 120.0
"""By so much a wrong clock is wrong, at most."""

PLANNED_S = 3.0
"""Seconds that a process has to reach its failpoint, before it may be killed at random."""

ROWS_A_FAULT = 6
LONGEST_WAIT_S = 0.4
"""Between two faults so many rows are waited for, at most for so many leases."""

LEAST_TO_WEIGH = 40
"""Kills that a part has at least where a worker is weighed in it."""

FAULTS_A_SUSPEND = 36
"""Faults between two suspends of all processes together."""

WORKERS_A_FREEZE = 12
"""Workers that are started between two that freeze inside a write."""

FAULTS_A_LOOK = 4
"""Faults between two looks at the purses."""

YOUNG_S = 0.15
"""Seconds that a process gets before it is killed at random: it should be in the middle of something."""


@dataclass(frozen=True)
class Death:
    """A worker died while it held a run: when, and how far the run was."""

    run: int
    head: int
    at: float
    """By the bench's own clock."""
    part: str


class Bench:
    """The stage, and the one who disturbs."""

    def __init__(self, database: str, seed: int, *, workers: int, level: int, most_lost: int) -> None:
        self.dice = random.Random(seed)
        self.most_lost = most_lost
        """Where runs are poisoned: workers lost on one until a person is asked."""
        self.seed, self.workers, self.level = seed, workers, level
        self.report = Report(database, seed, settings.LEASE_SECONDS)
        self.context = get_context("forkserver")
        self.context.set_forkserver_preload(["tests.chaos.processes"])
        self.actors: list[Actor] = []
        self.deaths: list[Death] = []
        self.freezer = Freezer(self.report, self.dice)
        self.hints = False
        self.part = ""
        self.began = time.monotonic()
        self.looked = 0.0
        self.wanted_row = 0
        self.broker = WeakBroker(self.dice)
        self.batches = 0
        self.writers = itertools.count()
        self.open_pages = pages.OpenPages()
        self.canaries = canaries.Canaries.fresh()
        self.cast: Cast | None = None
        """Runs to plant faults in, once there are such."""
        self.most_set_aside = 0
        self.weighed = 0
        """The process that is weighed, while one is."""
        self.weights: list[dict[str, int]] = []

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
        self.freezer.forget_all_but(self.actors)

    # the play

    def torment(self, kills: int, cast: Callable[[], None], pause_s: float) -> None:
        """Disturb until so many have been killed."""
        before = self.report.kills.total()
        self.batches += 1
        said, faults = before, 0
        while self.report.kills.total() - before < kills:
            if self.report.kills.total() >= said + 100:
                said = self.report.kills.total()
                sys.stderr.write(f"{self.part}: {said} kills, {time.monotonic() - self.began:.0f} s\n")
            self.bury_the_dead()
            self._see_take_overs()
            cast()
            self.freezer.wake(self.actors, self.kill)
            self._let_them_move()
            faults += 1
            if faults % FAULTS_A_SUSPEND == FAULTS_A_SUSPEND // 3:
                self.report.findings.take("D4", self.freezer.suspend(self.actors, self.weighed))
            else:
                self._disturb()
            self.broker.mend()
            self._look_on(faults)
            time.sleep(self.dice.uniform(0.2, 1.8) * pause_s)

    def bury_the_dead(self) -> None:
        """Those that a failpoint, or a run, has killed."""
        for actor in [one for one in self.actors if not one.process.is_alive()]:
            place = actor.wiring.failpoint.split(":")[0]
            if actor.process.exitcode != -signal.SIGKILL:
                self.report.faults[f"{actor.kind} that ended by itself"] += 1
            self._buried(actor, f"at {place}" if place else "by a run")

    def _look_on(self, faults: int) -> None:
        """In the middle of it: what pages have, and what purses hold."""
        self.open_pages.look()
        if self.weighed:
            self.weights.append(leftovers.weight_of(self.weighed))
        if faults % FAULTS_A_LOOK == 0:
            self.most_set_aside = max(self.most_set_aside, purses.set_aside())
            self.report.findings.take("I6", purses.now(purses.moving()))

    def _let_them_move(self) -> None:
        """Between two faults some rows are written, or on a slow machine nothing would ever be in the middle."""
        comes(lambda: self._last_row() >= self.wanted_row, LONGEST_WAIT_S * settings.LEASE_SECONDS, 0.03)
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

    def _disturb(self) -> None:
        """One fault, by chance."""
        now = time.monotonic()
        asleep = self.freezer.pids
        grown = [one for one in self.actors if now - one.born > YOUNG_S and one.pid not in asleep]
        workers = [one for one in grown if one.kind in ("worker", "crowd", "sweeper", "celery")]
        others = [one for one in grown if one not in workers]
        lot = self.dice.random()
        if lot < 0.1 and workers:
            self.freezer.freeze(self._victim(workers))
        elif lot < 0.15 and others:
            self.kill(self.dice.choice(others))
        elif lot < 0.21 and self.hints:
            if how := self.broker.hurt():
                self.report.faults[f"broker {how}"] += 1
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

    def oddity(self) -> dict[str, Any]:
        """How the next worker differs: most wait for their death at a failpoint, some have a wrong clock."""
        lot = self.dice.random()
        if lot < 0.57:
            place, most = self.dice.choice(PLACES)
            return {"failpoint": f"{place}:kill9:{self.dice.randint(1, most)}"}
        if lot < 0.65:
            self.report.faults["worker with a wrong clock"] += 1
            return {"clock_s": self.dice.uniform(-BEHIND_S, BEHIND_S)}
        if lot < 0.7 and connection.vendor == "sqlite":
            self.report.faults["worker whose database clock jumped ahead"] += 1
            return {"database_clock_s": self.dice.uniform(0, 2 * settings.LEASE_SECONDS)}
        if lot < 0.73 and connection.vendor == "sqlite":
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
            if kind == "celery" and self.dice.random() < 0.2:
                odd = {"failpoint": f"before_claim:kill9:{self.dice.randint(1, 3)}"}  # K9: its hint is taken
            if kind in PLACES_OF and self.dice.random() < 0.5:
                place, most = self.dice.choice(PLACES_OF[kind])
                odd = {"failpoint": f"{place}:kill9:{self.dice.randint(1, most)}"}
            if kind in freezing.WRITERS and next(self.writers) % WORKERS_A_FREEZE == 1:
                odd = freezing.inside_a_write(kind, self.dice)
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
        self.keep("copier", 1, level=self.level)
        self.keep("keeper", 1)

    @contextlib.contextmanager
    def playing(self, part: str) -> Iterator[None]:
        """A part of the play; the report says how long it took."""
        began, self.part = time.monotonic(), part
        yield
        self.report.parts[part] = time.monotonic() - began

    def without_broker(self, kills: int, pause_s: float) -> None:
        """Everything is found in the database; one worker is never disturbed."""
        for model in canaries.MODELS if kills else ():
            start(plays.keyed(f"first-{self.seed}", model))
        self._weighing("worker", kills, lambda some: self.torment(some, self.without_hints, pause_s))
        self.stop_all()

    def around_a_broker(self, kills: int, pause_s: float) -> None:
        """Hints are sent, lost, repeated and late."""
        self.broker.start()
        self.hints = True
        self._weighing("celery", kills, lambda some: self.torment(some, self.with_hints, pause_s))
        self.hints = False
        self.broker.mend_now()
        self.report.findings.take("I10", self.canaries.in_broker())
        self.stop_all()
        self.report.findings.take("I12", leftovers.broker_clients_left())

    def _weighing(self, kind: str, kills: int, torment: Callable[[int], None]) -> None:
        """I12: an undisturbed worker weighs at the end no more than in the first half of its work."""
        if kills < LEAST_TO_WEIGH:
            torment(kills)
            return
        actor = self.spawn(kind)
        self.actors.remove(actor)
        self.weighed, self.weights = actor.pid, []
        torment(kills)
        self.weighed = 0
        last = leftovers.lightest(actor.pid)
        actor.process.kill()
        actor.process.join()
        first = leftovers.judged_from(self.weights, last)
        self.report.findings.take("I12", leftovers.heavier(f"a {kind}", first, last))
        told = ", ".join(f"{name} {first.get(name, 'cold')} to {last[name]}" for name in leftovers.FLOORS)
        self.report.seen[f"weight, {kind}"] = told

    # the end

    def calm(self, *, runs: Callable[[], Any] = Run.objects.all) -> None:
        """No more faults: every run ends, or the check will say so."""
        self.broker.mend_now()
        self.stop_all()
        self.spawn("worker", threads=3)
        self.spawn("person")
        comes(partial(self._is_calm, runs), QUIET_S, 0.1)
        self.stop_all()

    def _is_calm(self, runs: Callable[[], Any]) -> bool:
        """Whether every run has ended; where not, see to it that they can."""
        for paused in runs().filter(status=RunStatus.PAUSED):
            actions.resume(paused, by=None)
        if not runs().filter(ended_at__isnull=True).exists():
            return True
        self.look_for_lost()
        self.bury_the_dead()
        self._see_take_overs()
        if not any(one.kind == "worker" for one in self.actors):
            self.spawn("worker", threads=3)
        return False

    def look_for_lost(self) -> None:
        """Do the scheduler's part where none is on the stage: runs are lost only once somebody has looked."""
        if time.monotonic() - self.looked >= LOOK_S:
            self.looked = time.monotonic()
            leases.look_for_lost()

    def judge(self) -> None:
        """The check of all that can be told of runs, and of what was open and kept meanwhile."""
        report, findings = self.report, self.report.findings
        report.counts = check(Run.objects.all(), findings, self.dice)
        report.statuses = Counter(Run.objects.values_list("status", flat=True))
        for page in self.open_pages.pages.values():
            page.catch_up()
            findings.take("I7", pages.page_is_right(page, Run.objects.get(pk=page.run_id)))
        sample = Run.objects.filter(head__gt=3).order_by("?").first()
        if sample is not None and not flipped_byte_is_found(sample):
            findings.take("I13", [Violation("I13", sample.pk, "a flipped byte was not found")])
        self._keep_secrets()
        self._leave_nothing()
        self._tell()

    def _keep_secrets(self) -> None:
        """I10."""
        findings, secrets = self.report.findings, self.canaries
        findings.take("I10", secrets.in_tables())
        findings.take("I10", secrets.in_files(Path(settings.DATA_DIR)))
        _, client = pages.onlooker()
        shown = [
            *Run.objects.filter(goal__startswith=canaries.GOAL, head__gt=0).order_by("?")[:1],
            *Run.objects.filter(head__gt=0).order_by("?")[:1],
        ]
        findings.take("I10", secrets.in_pages(shown, client))

    def _leave_nothing(self) -> None:
        """I11 and I12, as far as they can be told while the report is still to be written."""
        findings = self.report.findings
        for actor in self.actors:
            if actor.process.is_alive():
                findings.take("I11", [Violation("I11", None, f"a {actor.kind} is left")])
        findings.take("I11", leftovers.forgotten_parts(Path(settings.DATA_DIR) / "runs"))
        findings.take("I12", leftovers.connections_left())

    def _tell(self) -> None:
        """What there was to look at: a check that never had anything to find says nothing."""
        runs, seen = Run.objects.all(), self.report.seen
        made = Counter(runs.exclude(origin="").values_list("origin", flat=True))
        limited = len(purses.limited())
        raised = Step.objects.filter(kind=Step.Kind.LIMIT).count()
        seen["limits"] = (
            f"{limited} families, {raised} times raised, at most {self.most_set_aside} reservations at once, "
            f"{purses.lost_calls():,.0f} tokens of lost calls"
        )
        seen["copies"] = ", ".join(f"{count} {origin}" for origin, count in sorted(made.items())) or "none"
        seen["suspends"] = (
            f"{self.freezer.suspends} of all processes, with {self.freezer.under_way} calls under way that must not"
            " be made twice"
        )
        seen["compactions"] = str(Step.objects.filter(kind=Step.Kind.COMPACTION).count())
        folder = Path(settings.DATA_DIR) / "runs"
        known = set(runs.values_list("pk", flat=True))
        seen["files"] = (
            f"{len(leftovers.unnamed_parts(folder))} without a name, "
            f"{len(leftovers.folders_of_nobody(folder, known))} folders of runs that never came to be"
        )
        seen["backups"] = ", ".join(path.name for path in saved.found()) or "none"
        answers = sum(page.answers for page in self.open_pages.pages.values())
        seen["pages"] = f"{len(self.open_pages.pages)} open under fire, {answers} answers of the catch-up"
        secrets = self.canaries
        seen["canaries"] = (
            f"{len(secrets.texts)} in {secrets.columns} columns, {secrets.files} files, {secrets.keys} keys"
            f" of the broker, {secrets.pages} pages; used by {runs.filter(goal__startswith=canaries.GOAL).count()} runs"
        )
