"""What a real site is worn down with: runs of slow calls, a suspend, and a clock that is set for its processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from agentsite.supervise import state_of
from tests.agentsite.pills import TOOLS
from tests.stack import Site, comes

ENVIRON = {"AGENTSITE_TOOLS": "tests.agentsite.pills:TOOLS"}
SETTINGS = {"rules": [{"when": {"tool": "*"}, "do": "allow"}], "tools": [tool.name for tool in TOOLS]}
FINAL = {"thought": "FINAL ANSWER: done", "action": None}
LAUNCH = """
import json
from runs import actions
for goal, script in json.loads({told!r}):
    print(actions.start_run(machine="ruled", goal=goal, owner=None, settings={settings!r}, script=script).pk)
"""

CLOCK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *ahead;

static long shift(void) {
    if (!ahead) {
        static long none;
        int file = open(getenv("CLOCK_FILE"), O_RDONLY);
        void *seen = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        ahead = seen == MAP_FAILED ? &none : seen;
        if (file >= 0) close(file);
    }
    return *ahead;
}

int clock_gettime(clockid_t which, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, which, now);
    if (!code && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec fine;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec, now->tv_usec = fine.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *kept) {
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (kept) *kept = fine.tv_sec;
    return fine.tv_sec;
}
"""
"""A library that shifts the wall's clock of the processes that load it by the seconds in a file."""

Call = tuple[str, int]
"""A tool, and how many milliseconds its call takes."""


# --- runs -----------------------------------------------------------------------------------------------------------


def launch(site: Site, *runs: tuple[str, list[Call]]) -> list[int]:
    """Start runs of these goals and calls, which the site's worker drives."""
    told = json.dumps([(goal, _script_of(calls)) for goal, calls in runs])
    printed = site.manage("shell", "-c", LAUNCH.format(told=told, settings=SETTINGS))
    return [int(line) for line in printed.splitlines() if line.isdecimal()]


def _script_of(calls: list[Call]) -> dict[str, Any]:
    thoughts = [
        {"thought": f"I use {tool}", "action": {"tool": tool, "args": {"ms": ms}}} for tool, ms in calls
    ]
    return {"replies": {"decision": [*thoughts, FINAL]}}


def rows(site: Site, query: str) -> list[Any]:
    """Return all rows of a query on the site's own database."""
    if url := site.environ.get("DATABASE_URL"):
        with psycopg.connect(url) as server:
            return server.execute(query).fetchall()
    with contextlib.closing(sqlite3.connect(site.data_dir / "agentsite.sqlite3", timeout=20)) as database:
        return database.execute(query).fetchall()


def begun(site: Site) -> int:
    """Return how many calls are under way that must not be made twice."""
    return int(rows(site, "SELECT count(*) FROM runs_exchange WHERE status = 'started'")[0][0])


def still(site: Site) -> bool:
    """Return whether each run has ended or waits for a person."""
    return not rows(site, "SELECT id FROM runs_run WHERE ended_at IS NULL AND status <> 'waiting'")


def succeeded(site: Site, runs: list[int]) -> int:
    """Return how many of the runs have succeeded."""
    among = ", ".join(map(str, runs))
    return len(rows(site, f"SELECT id FROM runs_run WHERE status = 'succeeded' AND id IN ({among})"))


def questions(site: Site, runs: list[int]) -> list[str]:
    """Return the kind of each question of the runs."""
    among = ", ".join(map(str, runs))
    asked = f"SELECT kind FROM runs_interrupt WHERE run_id IN ({among}) ORDER BY run_id, seq"
    return [kind for (kind,) in rows(site, asked)]


def lost(site: Site, run: int) -> int:
    """Return how many workers were lost on the run."""
    return int(
        rows(site, f"SELECT count(*) FROM runs_step WHERE run_id = {run} AND kind = 'recovered'")[0][0]
    )


def longest_gap(site: Site, until: Callable[[], bool], seconds: float) -> float:
    """Return the longest time without a committed row until something is so; TimeoutError if it isn't in time."""
    seen = time.monotonic()
    newest, longest = None, 0.0

    def looked() -> bool:
        nonlocal seen, newest, longest
        last, now = rows(site, "SELECT max(id) FROM runs_step")[0][0], time.monotonic()
        if last != newest:
            longest, newest, seen = max(longest, now - seen), last, now
        return until()

    if not comes(looked, seconds, 0.02):
        ago = time.monotonic() - seen
        raise TimeoutError(f"not so after {seconds:g} seconds, the last row came {ago:.1f} s ago")
    return longest


# --- faults ---------------------------------------------------------------------------------------------------------


def suspend(site: Site, seconds: float) -> None:
    """Stop each process of the site, the supervisor first, for so long, and let all go on together."""
    pids = _family(site)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _family(site: Site) -> list[int]:
    """Return the supervisor, then all that it and its children have started."""
    assert site.process is not None
    found = [site.process.pid]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return [pid for pid in found if state_of(pid) != "Z"]


class Clock:
    """The clock on the wall, as the processes of a site see it that have `environ`."""

    def __init__(self, folder: Path) -> None:
        source, library = folder / "clock.c", folder / "clock.so"
        self.file = folder / "clock"
        self.set(0)
        source.write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        self.environ = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(self.file)}

    @staticmethod
    def can_be_set() -> bool:
        """Return whether there is a C compiler."""
        return shutil.which("cc") is not None

    def set(self, ahead: int) -> None:
        """Have the clock be so many seconds ahead of this machine's."""
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("l", ahead))
