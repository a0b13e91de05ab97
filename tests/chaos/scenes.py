"""The scenes that are played by themselves: the poisoned run, and the negative controls."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

from django.conf import settings
from django.db import connection
from django.db.models import Count

from runs import actions, driver
from runs.models import LOOKS, Exchange, Interrupt, Run, RunStatus, Step
from tests.chaos import freezing, leftovers, plays
from tests.chaos.bench import Bench
from tests.chaos.controls import CONTROLS
from tests.chaos.findings import Findings, Violation
from tests.chaos.invariants import check, lost_before_questions
from tests.chaos.people import start
from tests.chaos.plants import PLANTS, Cast
from tests.chaos.wiring import LOOK_S
from tests.running import kinds
from tests.stack import comes


def poison(bench: Bench) -> None:
    """A run that kills each worker that takes it; beside it, in the same process, others that are slow.

    It must wait for a person, who is told how many workers were lost. The others must end without a question: as in the
    product, each has a process of its own once the common one was lost.
    """
    call = plays.Planned("poison", "poison", 1)
    run = start(plays.play_of("ruled", "poison", [call]))
    slow_ms = int(settings.LEASE_SECONDS * 1000 * 0.6)
    slow = [
        start(plays.play_of("ruled", f"beside-{n}", [plays.Planned("doze", f"beside-{n}", slow_ms)] * 2)).pk
        for n in range(3)
    ]
    bench.deaths.clear()
    common = bench.spawn("worker", only=(run.pk, *slow), threads=4, most_lost=bench.most_lost)

    def all_stand() -> bool:
        moving = _moving(run.pk, *slow)
        if moving:
            bench.look_for_lost()
            bench.bury_the_dead()
        if common not in bench.actors:
            for pk in moving - {pk for one in bench.actors for pk in one.wiring.only}:
                bench.spawn("worker", only=(pk,), threads=1, most_lost=bench.most_lost)
        return not moving

    comes(all_stand, 80 * settings.LEASE_SECONDS + 60, 0.02)
    bench.stop_all("worker")
    bench.deaths.clear()
    bench.report.poison_kills = kinds(run).count("recovered")
    bench.report.findings.take("D4b", _wrongly_asked(bench, run, slow))
    for waiting in Run.objects.filter(pk__in=(run.pk, *slow), ended_at__isnull=True):
        actions.abort(waiting, by=None)


def _moving(*run_ids: int) -> set[int]:
    """Return which of the runs have not ended and wait for no person."""
    unfinished = Run.objects.filter(pk__in=run_ids, ended_at__isnull=True)
    return set(unfinished.exclude(status=RunStatus.WAITING).values_list("pk", flat=True))


def _wrongly_asked(bench: Bench, run: Run, slow: list[int]) -> Iterator[Violation]:
    """The poisoned run has one open question, the others never had one."""
    told = lost_before_questions(run)
    run.refresh_from_db()
    if run.status != RunStatus.WAITING or told != [bench.most_lost]:
        yield Violation(
            "D4b", run.pk, f"it kills every worker and is {run.status}; asked after {told} losses"
        )
    for pk in Interrupt.objects.filter(run__in=slow).values_list("run", flat=True):
        yield Violation("D4b", pk, "a poisoned neighbour had it ask a person")


def asleep(bench: Bench) -> None:
    """A machine that sleeps for longer than the lease: calls that end normally are saved, and no person is asked."""
    bench.report.findings.take("D4", _asked_about(_sleep(bench, "")))


def _sleep(bench: Bench, name: str) -> list[Run]:
    """Have a worker sleep while it is in calls that must not be made twice; one with nothing to do wakes first."""
    labels = [f"asleep-{name}-{n}" for n in range(3)]
    runs = [start(plays.play_of("ruled", label, [plays.Planned("toil", label, 1)])) for label in labels]
    only = tuple(run.pk for run in runs)
    busy = bench.spawn("worker", only=only, threads=len(runs))
    begun = Exchange.objects.filter(run__in=only, name="toil", status=Exchange.Status.STARTED)
    _until(bench, lambda: begun.count() == len(runs), 10 * settings.LEASE_SECONDS)
    os.kill(busy.pid, signal.SIGSTOP)
    time.sleep(freezing.BEYOND * settings.LEASE_SECONDS)
    idle = bench.spawn("worker", only=only, without=name)
    comes(lambda: not idle.process.is_alive(), settings.LEASE_SECONDS / 2, 0.02)
    os.kill(busy.pid, signal.SIGCONT)
    moving = Run.objects.filter(pk__in=only, ended_at__isnull=True).exclude(status=RunStatus.WAITING)
    _until(bench, lambda: not moving.exists(), 10 * settings.LEASE_SECONDS)
    bench.stop_all("worker")
    return list(Run.objects.filter(pk__in=only))


def _asked_about(runs: list[Run]) -> Iterator[Violation]:
    for pk in Interrupt.objects.filter(run__in=runs, kind="may_have_happened").values_list("run", flat=True):
        yield Violation(
            "D4", pk, "its worker slept through a call, and a person is asked whether it happened"
        )


def control(bench: Bench, name: str) -> str:
    """Take a protection away; what the check finds then. Empty: nothing, and the bench is blind there."""
    found = Findings()
    runs = _SCENES[name](bench, name, found)
    bench.stop_all()
    check(Run.objects.filter(pk__in=[run.pk for run in runs]), found, bench.dice)
    hits = [str(one) for one in found.violations if one.invariant == CONTROLS[name].invariant]
    return hits[0] if hits else ""


def _one_deed(bench: Bench, name: str, tool: str, place: str) -> list[Run]:
    """A worker without the protection dies at `place`; another one goes on."""
    run = start(plays.play_of("ruled", f"control-{name}", [plays.Planned(tool, f"control-{name}", 1)]))
    first = bench.spawn("worker", only=(run.pk,), without=name, failpoint=f"{place}:kill9")
    first.process.join(30)
    bench.actors.remove(first)
    bench.spawn("worker", only=(run.pk,), without=name)
    _until(bench, partial(_has_ended, run.pk), 10 * settings.LEASE_SECONDS + 10)
    run.refresh_from_db()
    return [run]


def _key(bench: Bench, name: str, found: Findings) -> list[Run]:
    return _one_deed(bench, name, "pay", "effect_done")


def _remember(bench: Bench, name: str, found: Findings) -> list[Run]:
    return _one_deed(bench, name, "pay", "remembered")


def _started(bench: Bench, name: str, found: Findings) -> list[Run]:
    return _one_deed(bench, name, "shout", "effect_done")


def _count(bench: Bench, name: str, found: Findings) -> list[Run]:
    """More workers are lost on the run than may be, and still no person is asked."""
    run = start(plays.play_of("ruled", "poison-control", [plays.Planned("poison", "poison-control", 1)]))
    for _ in range(bench.most_lost + 2):
        actor = bench.spawn("worker", only=(run.pk,), without=name, most_lost=bench.most_lost)
        Run.objects.filter(pk=run.pk).exclude(worker="").update(
            lease_until=run.created_at, silent_looks=LOOKS
        )
        actor.process.join(20)
        if actor.process.is_alive():
            break
        bench.actors.remove(actor)
    run.refresh_from_db()
    actions.abort(run, by=None)
    run.refresh_from_db()
    return [run]


def _fence(bench: Bench, name: str, found: Findings) -> list[Run]:
    """Two workers that know of no epoch, on runs whose every call takes longer than until its worker counts as lost."""
    unique = next(one for one in Step._meta.constraints if one.name == "step_once")
    Step._meta.constraints = [one for one in Step._meta.constraints if one is not unique]
    with connection.schema_editor() as editor:
        editor.remove_constraint(Step, unique)
    slow_ms = int((settings.LEASE_SECONDS + 2 * LOOKS * LOOK_S) * 1000)
    calls = [plays.Planned("doze", "control-fence", slow_ms + n) for n in range(2)]
    runs = [start(plays.play_of("ruled", f"control-fence-{n}", calls)) for n in range(2)]
    only = tuple(run.pk for run in runs)
    for _ in range(3):
        bench.spawn("worker", only=only, without=name, threads=2)
    twice = (
        Step.objects.filter(run__in=only).values("run", "seq").annotate(times=Count("pk")).filter(times__gt=1)
    )
    _until(bench, twice.exists, 16 * settings.LEASE_SECONDS)
    return list(Run.objects.filter(pk__in=only))


def _purse(bench: Bench, name: str, found: Findings) -> list[Run]:
    """A run that may make two calls, by a worker that looks at no limit."""
    calls = [plays.Planned("look", "control-purse", n) for n in range(1, 4)]
    made = plays.limited(plays.play_of("ruled", "control-purse", calls), {"cost_usd": 0.002}, "stop")
    return [_driven(bench, name, start(made))]


def _shared(bench: Bench, name: str, found: Findings) -> list[Run]:
    """A fork of a run that has used half of its limit, by a worker that knows of no family."""
    calls = [plays.Planned("look", "control-shared", n) for n in range(1, 6)]
    made = plays.limited(plays.play_of("ruled", "control-shared", calls), {"cost_usd": 0.0105}, "stop")
    run = driver.drive_inline(start(made).pk)
    row = run.steps.filter(kind="transition", live=True).order_by("seq").values_list("seq", flat=True)[0]
    return [run, _driven(bench, name, actions.fork(run, at=row, by=None))]


def _leak(bench: Bench, name: str, found: Findings) -> list[Run]:
    """A worker that loses descriptors and threads with every run that it drives, between the first one and the next."""
    actor = bench.spawn("worker", without=name)
    before: dict[str, int] = {}
    for number in range(2):
        label = f"control-leak-{number}"
        run = start(plays.play_of("ruled", label, [plays.Planned("look", label, 1)]))
        _until(bench, partial(_has_ended, run.pk), 10 * settings.LEASE_SECONDS)
        before = before or leftovers.lightest(actor.pid)
    found.take("I12", leftovers.heavier("a worker", before, leftovers.lightest(actor.pid)))
    return []


def _driven(bench: Bench, name: str, run: Run) -> Run:
    """The run, once workers without the protection have driven it to its end."""
    bench.spawn("worker", only=(run.pk,), without=name)
    _until(bench, partial(_has_ended, run.pk), 10 * settings.LEASE_SECONDS)
    run.refresh_from_db()
    return run


def _looks(bench: Bench, name: str, found: Findings) -> list[Run]:
    runs = _sleep(bench, name)
    found.take("D4", _asked_about(runs))
    for waiting in Run.objects.filter(pk__in=[run.pk for run in runs], ended_at__isnull=True):
        actions.abort(waiting, by=None)
    return runs


_SCENES = {
    "looks": _looks,
    "key": _key,
    "remember": _remember,
    "started": _started,
    "count": _count,
    "purse": _purse,
    "shared": _shared,
    "leak": _leak,
    "fence": _fence,
}


def plant(bench: Bench, name: str) -> str:
    """Plant a fault, and take it away again; what the check of it said. Empty: nothing."""
    if bench.cast is None:
        bench.cast = Cast.made()
    hits = [one for one in PLANTS[name].found(bench.cast) if one.invariant == PLANTS[name].invariant]
    return str(hits[0]) if hits else ""


def _has_ended(run_id: int) -> bool:
    return Run.objects.filter(pk=run_id, ended_at__isnull=False).exists()


def _until(bench: Bench, condition: Callable[[], bool], seconds: float) -> None:
    """Wait for it as long as that; meanwhile lost runs are looked for."""

    def looked() -> bool:
        found = condition()
        if not found:
            bench.look_for_lost()
        return found

    comes(looked, seconds)
