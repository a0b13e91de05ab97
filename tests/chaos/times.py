"""How long things take when something is broken: `python -m tests.chaos.times [decision] [takeover] [frozen]`.

A real stack (`manage.py up`) on a data directory of its own; this process is the person, and looks at the database.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.stack import Site, free_port, wait_for

DECISIONS, DECISIONS_DOWN, KILLS, STEPS, LONG_RUNS = 105, 30, 40, 60, 5
CALLS = 15
"""Calls of one run that are decided, one after the other."""

LONG = 18
"""Calls of a run of several slices: of more than 120 moves."""

HELD = {"when": {"tool": "*"}, "do": "ask"}
OPEN = {"when": {"tool": "*"}, "do": "allow"}


def say(line: str) -> None:
    """One line of the report, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def times(seconds: list[float]) -> str:
    """Percentiles in a line."""
    ordered = sorted(seconds)
    p50, p95, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95, 0.99))
    return f"{len(ordered)} times, p50 {p50:.3f} s, p95 {p95:.3f} s, p99 {p99:.3f} s, longest {ordered[-1]:.3f} s"


@contextmanager
def stack(**environ: str) -> Iterator[Site]:
    """A site, and this process on its data."""
    with tempfile.TemporaryDirectory(prefix="agentsite-times-") as name:
        site = Site(Path(name) / "data", free_port(), environ)
        site.start()
        try:
            yield site
        finally:
            site.stop()


def script(calls: int, *, seconds: float = 0.0) -> dict[str, Any]:
    """So many calls of a tool that sends, then the answer."""
    thoughts = [
        {"thought": f"I send {n}", "action": {"tool": "send", "args": {"n": n}}} for n in range(calls)
    ]
    send = {"params": {"n": "integer"}, "effects": "read", "results": [{"output": "sent"}]}
    return {
        "replies": {"decision": [*thoughts, {"thought": "FINAL ANSWER: done", "action": None}]},
        "tools": {"send": send},
        "pace": {"tool_s": seconds, "stream": False},
    }


def decision(broker: str) -> None:
    """From a decision to the run's next move."""
    down = {"REDIS_URL": f"redis://127.0.0.1:{free_port()}"} if broker == "down" else {}
    with stack(**down) as site:
        person = _person(site)
        pid = site.pids["broker"] if broker == "frozen" else 0
        if pid:
            os.kill(pid, signal.SIGSTOP)
        try:
            count = DECISIONS if broker == "up" else DECISIONS_DOWN
            say(f"decision → the run goes on, broker {broker}: {times(person('decisions', count))}")
        finally:
            if pid:
                os.kill(pid, signal.SIGCONT)


def takeover() -> None:
    """From a worker's death to the next row of the run that it held, with the usual lease."""
    with stack() as site:
        person = _person(site)
        say(f"killed worker → its run goes on, lease 20 s: {times(person('kills', KILLS))}")


def frozen() -> None:
    """What a step costs while the broker is silent: within a slice, and of runs that a worker has for several."""
    with stack() as site:
        person = _person(site)
        usual = person("steps", STEPS)
        with site.frozen("broker"):
            silent = person("steps", STEPS)
        _compared("a step", usual, silent)
        usual = person("long", LONG_RUNS, "")
        silent = person("long", LONG_RUNS, "broker")
        _compared("a step of a run of several slices", usual, silent)


def _compared(what: str, usual: list[float], silent: list[float]) -> None:
    for name, took in (("up", usual), ("frozen", silent)):
        say(f"{what}, broker {name}: {times(took)}")
    more = sum(silent) / len(silent) - sum(usual) / len(usual)
    say(f"{what} costs {more * 1000:+.2f} ms with a frozen broker")


def _person(site: Site) -> Callable[..., list[float]]:
    """Does things in a process that has the site's own environment, and gives the times it took.

    Some are done to a process of the site: the worker, where no other is named.
    """
    import json
    import subprocess

    def do(what: str, count: int, whom: str = "worker") -> list[float]:
        pid = str(site.pids.get(whom, 0))
        command = [sys.executable, "-m", "tests.chaos.times", "inside", what, str(count), pid]
        own = {"PYTHONPATH": os.getcwd(), "DJANGO_SETTINGS_MODULE": "agentsite.settings"}  # noqa: PTH109
        done = subprocess.run(command, env=site.environ | own, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
        return seconds

    return do


# --- inside the site's environment --------------------------------------------------------------------------------


def inside(what: str, count: int, worker: int) -> list[float]:
    """The deeds of the person."""
    import django

    django.setup()
    deeds = {"decisions": _decisions, "kills": _kills, "steps": _steps, "long": _long}
    return deeds[what](count, worker)


def _start(rule: dict[str, Any], played: dict[str, Any]) -> Any:
    from runs import actions

    settings = {"rules": [rule]}
    return actions.start_run(machine="ruled", goal="times", settings=settings, owner=None, script=played)


def _until(condition: Callable[[], Any]) -> Any:
    return wait_for(condition, 90, 0.005)


def _decisions(count: int, worker: int) -> list[float]:
    """Approve, one after the other, and look when the run's next row of its own is there."""
    took: list[float] = []
    while len(took) < count:
        took += _decided(_start(HELD, script(CALLS)))
    return took


def _decided(run: Any) -> list[float]:
    """All the questions of one run."""
    from runs import actions
    from runs.models import Interrupt, Run, Step

    took = []
    for _ in range(CALLS):
        open_one = _until(Interrupt.objects.filter(run=run, status="pending").first)
        _until(Run.objects.filter(pk=run.pk, worker="").exists)
        began = time.monotonic()
        actions.decide(open_one.pk, verdict="approve", by=None, channel="web")
        _until(Step.objects.filter(run=run, seq__gt=open_one.seq).exclude(kind="decision").exists)
        took.append(time.monotonic() - began)
    return took


def _kills(count: int, worker: int) -> list[float]:
    """kill -9 the worker while it is in a slow call of one run for each kill; they are taken over all at once."""
    from runs.models import Run

    took: list[float] = []
    while len(took) < count:
        runs = [_start(OPEN, script(3, seconds=3.0)) for _ in range(min(20, count - len(took)))]
        ids = [run.pk for run in runs]
        mine = Run.objects.filter(pk__in=ids)
        _until(_all_running(mine, len(ids)))
        time.sleep(1.0)
        held = dict(mine.filter(status="running").values_list("pk", "head"))
        os.kill(worker, signal.SIGKILL)
        died = time.monotonic()

        def all_taken_over(held: dict[int, int] = held, died: float = died) -> bool:
            for run_id, head in Run.objects.filter(pk__in=held).values_list("pk", "head"):
                if head > held[run_id]:
                    del held[run_id]
                    took.append(time.monotonic() - died)
            return not held

        wait_for(all_taken_over, 90, 0.02)
        _until(_all_ended(mine))
        worker = _worker_again(worker)
    return took


def _all_running(runs: Any, count: int) -> Callable[[], bool]:
    return lambda: runs.filter(status="running").count() == count


def _all_ended(runs: Any) -> Callable[[], bool]:
    return lambda: not runs.filter(ended_at__isnull=True).exists()


def _worker_again(before: int) -> int:
    from django.conf import settings

    from agentsite.supervise import is_alive, read_record

    def other() -> int | None:
        who = read_record(settings.DATA_DIR / "run" / "up.json").get("children", {}).get("worker")
        return int(who["pid"]) if who and is_alive(who) and who["pid"] != before else None

    found: int = _until(other)
    return found


def _steps(count: int, worker: int) -> list[float]:
    """Slices of a run by this process: what a step takes, from commit to commit, rings and hints included."""
    from runs import driver

    took = []
    for _ in range(count):
        run = _start_quietly(script(4))
        began = time.monotonic()
        run = driver.drive_inline(run.pk)
        took.append((time.monotonic() - began) / run.steps.filter(kind="transition").count())
    return took


def _long(count: int, broker: int) -> list[float]:
    """What a step takes in a run of several slices by the site's own worker; the broker freezes once it has begun."""
    from runs.models import Run

    took = []
    for _ in range(count):
        run = _start(OPEN, script(LONG, seconds=0.05))
        mine = Run.objects.filter(pk=run.pk)
        _until(mine.filter(head__gt=4).exists)
        if broker:
            os.kill(broker, signal.SIGSTOP)
        try:
            _until(mine.filter(ended_at__isnull=False).exists)
        finally:
            if broker:
                os.kill(broker, signal.SIGCONT)
        first, *_, last = run.steps.order_by("seq").values_list("at", flat=True)
        took.append((last - first).total_seconds() / run.steps.filter(kind="transition").count())
    return took


def _start_quietly(played: dict[str, Any]) -> Any:
    from runs import actions

    return actions.start_run(
        machine="ruled",
        goal="steps",
        settings={"rules": [OPEN]},
        owner=None,
        script=played,
        driven_by="the caller",
    )


def decisions() -> None:
    """With the broker up, away, and silent."""
    for broker in ("up", "down", "frozen"):
        decision(broker)


MEASURES: dict[str, Callable[[], None]] = {
    "decision": decisions,
    "takeover": takeover,
    "frozen": frozen,
}


def main() -> int:
    """What is named, or all."""
    match sys.argv[1:]:
        case ["inside", what, count, worker]:
            import json

            sys.stdout.write(json.dumps(inside(what, int(count), int(worker))) + "\n")
        case names:
            for name in names or MEASURES:
                MEASURES[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
