"""A site under load: whether everybody is served, how long the longest wait is, and whether a lock is ever told.

    python3 -m tests.benchmarks.load [--runs N] [--answers N] [--writers N] [--calls N] [--freezes N] [--busy N]
                                     [--postgres]

Starts `manage.py up` on a new SQLite file (or a new PostgreSQL cluster) with a second worker beside it, and as many
busy processes as are asked for. One part after the other:

    backlog   queued runs of one call each, until all have ended
    answers   questions that are answered through their pages, all sent within a second
    writers   runs that write without pause, all at the same time
    calls     runs that are all in a model call of CALL_S at the same time, and the memory of all processes meanwhile
    freezes   the same, while a worker is stopped (SIGSTOP) again and again, in the middle of whatever it does

Prints for each part its length, the longest time without a committed row in the whole site while there was work, and
how long the slowest page took that somebody opened meanwhile. At the end: refused answers, and log lines that tell of a
lock. Exits with 1 where a wait is longer than LONGEST_S, an answer was refused, or a lock was told.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import django

from tests.benchmarks import postgres
from tests.pages import forms_of
from tests.stack import Site, free_port, prepare, wait_for

LONGEST_S = 2.0
"""How long nobody may have to wait."""

SECONDS = 900.0
"""How long a part may take at most."""

LOOK_S = 0.25

CALL_S = 10.0

SEARCH = {"params": {"q": "string"}, "effects": "read", "results": [{"output": "three results"}]}
SEND = {"params": {"to": "string"}, "effects": "send", "results": [{"output": "sent"}]}
FINAL = {"thought": "FINAL ANSWER: done", "action": None}


def think(tool: str, **args: str) -> dict[str, Any]:
    """A thought that calls a tool."""
    return {"thought": f"I use {tool}", "action": {"tool": tool, "args": args}}


class Client:
    """Somebody who is signed in: one connection for each thread, one session for all."""

    def __init__(self, site: Site) -> None:
        self.place = urlsplit(site.url)
        self.cookies: dict[str, str] = {}
        self.own = threading.local()
        link = urlsplit(site.fresh_link())
        _, page = self.ask("GET", f"{link.path}?{link.query}".rstrip("?"))
        form = next(form for form in forms_of(page) if form.method == "post")
        self.ask("POST", form.action or link.path, form.fields)

    def ask(self, method: str, path: str, fields: dict[str, str] | None = None) -> tuple[int, str]:
        """The status and the body of what comes back."""
        line = getattr(self.own, "line", None)
        if line is None:
            line = self.own.line = HTTPConnection(self.place.hostname or "", self.place.port, timeout=60)
        body = urlencode(fields) if fields is not None else None
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        if body is not None:
            headers |= {
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": f"{self.place.scheme}://{self.place.netloc}",
            }
        line.request(method, path, body, headers)
        answer = line.getresponse()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                cookie, _, said = value.partition(";")[0].partition("=")
                self.cookies[cookie] = said
        return answer.status, answer.read().decode()


class Visitor:
    """Opens a page again and again, and remembers how long the slowest took."""

    def __init__(self, client: Client, path: str) -> None:
        self.client, self.path = client, path
        self.slowest = 0.0
        self.faults = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look_again_and_again)

    def __enter__(self) -> Visitor:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def _look_again_and_again(self) -> None:
        while not self.ended.wait(LOOK_S):
            began = time.monotonic()
            status, _ = self.client.ask("GET", self.path)
            self.faults += status != 200
            self.slowest = max(self.slowest, time.monotonic() - began)


def launch(
    count: int, replies: list[Any], goal: str, pace: dict[str, Any] | None = None, **settings: Any
) -> list[int]:
    """Launch `count` runs of one script; their keys."""
    from runs import actions

    script = {"replies": {"decision": replies}, "tools": {"search": SEARCH, "send": SEND}, "pace": pace or {}}
    given: dict[str, Any] = {
        "machine": "ruled",
        "goal": goal,
        "settings": {"max_steps": len(replies) + 1, **settings},
        "owner": None,
        "script": script,
    }
    return [actions.start_run(**given).pk for _ in range(count)]


def wait_until(runs: list[int], *statuses: str) -> None:
    """Wait until all the runs have one of these statuses; look seldom enough to leave the processor to the site."""
    wait_for(lambda: not left(runs, *statuses), SECONDS, every=LOOK_S)


def left(runs: list[int], *statuses: str) -> int:
    """How many of the runs have none of these statuses yet."""
    from django.db import connection

    from runs.models import Run

    count = Run.objects.filter(pk__gte=runs[0], pk__lte=runs[-1]).exclude(status__in=statuses).count()
    connection.close()
    return count


ENDED = ("succeeded", "stopped", "failed", "cancelled")


def longest_gap(runs: list[int], began: float) -> float:
    """Seconds from one committed row of these runs to the next, and from the beginning to the first."""
    from runs.models import Step

    rows = Step.objects.filter(run__gte=runs[0], run__lte=runs[-1])
    moments = sorted(moment.timestamp() for moment in rows.values_list("at", flat=True))
    after = [began, *(moment for moment in moments if moment > began)]
    return max((later - before for before, later in pairwise(after)), default=0.0)


def told(name: str, runs: list[int], began: float, visitor: Visitor, longest: float | None = None) -> float:
    """Print what came of a part; the longest wait of it."""
    gap = longest_gap(runs, began) if longest is None else longest
    print(
        f"{name:10}{len(runs):6} runs {time.time() - began:7.1f} s   longest without a row {gap:5.2f} s   "
        f"slowest page {visitor.slowest:5.2f} s, {visitor.faults} not shown",
        flush=True,
    )
    return max(gap, visitor.slowest)


def backlog(client: Client, count: int) -> float:
    """Queued runs of one call each; the workers begin while the last ones are still launched."""
    with Visitor(client, "/runs/") as visitor:
        began = time.time()
        runs = launch(count, [think("search", q="tides"), FINAL], "one call")
        wait_until(runs, *ENDED)
    return told("backlog", runs, began, visitor)


def answers(client: Client, count: int) -> tuple[float, Counter[int]]:
    """Questions that are answered through their pages, all sent within a second; the statuses that came back."""
    from runs.models import Interrupt

    runs = launch(count, [think("send", to="bob"), FINAL], "ask me")
    wait_until(runs, "waiting")
    questions = [str(pk) for pk in Interrupt.objects.filter(run__in=runs).values_list("pk", flat=True)]
    paths = [f"/interrupts/{question}/" for question in questions]
    with ThreadPoolExecutor(8) as readers:
        pages = list(readers.map(lambda path: client.ask("GET", path)[1], paths))
    forms = [next(form for form in forms_of(page) if form.action.endswith("/decision/")) for page in pages]
    waits: list[float] = []

    def answer(nth: int) -> int:
        due = began_at + nth / count
        time.sleep(max(0.0, due - time.monotonic()))
        fields = {**forms[nth].fields, "verdict": "approve", "sure": "yes"}
        status, _ = client.ask("POST", forms[nth].action, fields)
        waits.append(time.monotonic() - due)
        return status

    with ThreadPoolExecutor(count) as people, Visitor(client, "/runs/") as visitor:
        began, began_at = time.time(), time.monotonic() + 0.5
        statuses = Counter(people.map(answer, range(count)))
        answered = time.time() - began - 0.5
        if set(statuses) != {302}:
            sys.exit(f"The answers were not taken: {dict(statuses)}")
        wait_until(runs, *ENDED)
    longest = told("answers", runs, began, visitor)
    waits.sort()
    print(
        f"{'':10}answered in {answered:.1f} s: {dict(statuses)}; an answer took "
        f"{waits[len(waits) // 2]:.2f} s (median), {waits[-1]:.2f} s (longest)"
    )
    return longest, statuses


def writers(client: Client, count: int) -> float:
    """Runs that write without pause, all at the same time."""
    runs = launch(count, [*[think("search", q="tides")] * 60, FINAL], "write")
    with Visitor(client, "/runs/") as visitor:
        began = time.time()
        wait_until(runs, *ENDED)
    return told("writers", runs, began, visitor)


def calls(site: Site, client: Client, count: int) -> float:
    """Runs of one slow model call each, all at once; how much longer it took than the call."""
    runs = launch(count, [FINAL], "one slow call", {"model_s": CALL_S})
    with Visitor(client, "/runs/") as visitor:
        began = time.time()
        wait_until(runs, "running")
        memory = sum(map(megabytes, site.pids.values()))
        wait_until(runs, *ENDED)
    longer = time.time() - began - CALL_S
    told("calls", runs, began, visitor, longest=max(0.0, longer))
    print(f"{'':10}{memory:.0f} MB in all processes of `up` meanwhile")
    return visitor.slowest


def megabytes(pid: int) -> float:
    """The memory of a process; what it shares with others counts in part (Pss)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


def freezes(site: Site, client: Client, count: int, times: int) -> float:
    """The same, while the site's worker is stopped again and again, and replaced."""
    runs = launch(count, [*[think("search", q="tides")] * 60, FINAL], "write under freezes")
    with Visitor(client, "/runs/") as visitor:
        began = time.time()
        for _ in range(times):
            wait_for(lambda: "worker" in site.pids, 60)
            pid = site.pids["worker"]
            time.sleep(4.0)  # it comes up, and takes runs
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
            wait_for(lambda pid=pid: site.pids.get("worker", pid) != pid, 60)  # type: ignore[misc]
        wait_until(runs, *ENDED)
    return told("freezes", runs, began, visitor)


@contextlib.contextmanager
def beside(command: list[str], environ: dict[str, str], log: Path) -> Iterator[None]:
    """A process for as long as the `with` lasts."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
        try:
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()


def measure(options: argparse.Namespace, url: str) -> bool:
    """Play all parts on one site; whether nobody waited too long."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        data = Path(folder, "data")
        prepare(data)
        own = {"DATABASE_URL": url} if url else {}
        site = Site(data, free_port(), own)
        site.start()
        stack.callback(site.stop)
        # Set up when the broker's socket is there: a launch of here leaves its hint, as a launch of the form does.
        os.environ |= {"AGENTSITE_DATA_DIR": str(data), "DATABASE_POOL": "0", **own}
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")
        django.setup()
        from agentsite.management.commands.up import worker_command

        logs = data / "logs"
        second = {**site.environ, "DATABASE_POOL": "40"}
        stack.enter_context(beside(worker_command(), second, logs / "second.log"))
        for number in range(options.busy):
            spin = [sys.executable, "-c", "while True: pass"]
            stack.enter_context(beside(spin, site.environ, logs / f"busy{number}.log"))
        client = Client(site)
        waits, statuses = [], Counter[int]()
        if options.runs:
            waits.append(backlog(client, options.runs))
        if options.answers:
            longest, statuses = answers(client, options.answers)
            waits.append(longest)
        if options.writers:
            waits.append(writers(client, options.writers))
        if options.calls:
            waits.append(calls(site, client, options.calls))
        if options.freezes:
            waits.append(freezes(site, client, options.writers or 64, options.freezes))
        lines = [line for log in logs.glob("*.log*") for line in log.read_text(errors="replace").splitlines()]
        locked = [line for line in lines if "locked" in line]
        refused = sum(count for status, count in statuses.items() if status not in (200, 302))
        print(
            f"refused answers {refused}, lines that tell of a lock {len(locked)}", *locked[:5], sep="\n    "
        )
        return not (locked or refused or max(waits, default=0.0) > LONGEST_S)


def main() -> None:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--freezes", type=int, default=5)
    parser.add_argument("--busy", type=int, default=1, help="processes that keep a core busy (1)")
    parser.add_argument("--postgres", action="store_true", help="on a new PostgreSQL cluster")
    options = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    if not options.postgres:
        sys.exit(0 if measure(options, "") else 1)
    found = postgres.binaries()
    if found is None:
        sys.exit("There is no initdb on this machine.")
    with postgres.cluster(found, "max_connections=250") as url:
        sys.exit(0 if measure(options, url) else 1)


if __name__ == "__main__":
    main()
