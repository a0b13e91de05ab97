"""Drive a run in a process of its own after its worker was lost, so it can bring down no other run.

The process ends after a slice, and the run goes on among the others. Such processes are forked from one with the loaded
project. A lost worker may leave dozens of runs, and each would need a second of a core to load it.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from django.core.management import call_command

from runs.driver.away import once_there
from runs.driver.holds import closing
from runs.processes import state_of
from runs.store import leases

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext
    from multiprocessing.process import BaseProcess

AT_ONCE = 8
"""Such processes per worker."""

LOOK_S = 1.0
"""Seconds between two checks for a stopped process (SIGSTOP): it may hold a lock that all others wait for."""

log = logging.getLogger(__name__)

_guard = threading.Lock()
_running: dict[int, BaseProcess] = {}
"""By run."""


def drive_alone(run_id: int) -> list[int]:
    """Drive the run in a process of its own, and wait until it ends. Return the runs that want a worker next.

    If the run has one already, or no place is free, it is hinted at again without waiting.
    """
    token = leases.new_worker()
    process = fork_context().Process(target=call_command, args=("drive_alone", str(run_id), token))
    with _guard:
        if closing() or run_id in _running or len(_running) >= AT_ONCE:
            return []
        _running[run_id] = process
    log.info("run %s gets a process of its own", run_id)
    try:
        process.start()
        if closing():
            process.terminate()
        wait_for_end(process)
    finally:
        del _running[run_id]
    if process.exitcode:
        once_there(lambda: leases.lose(token))
    return [run_id]


@cache
def fork_context() -> ForkServerContext:
    """Return the fork server of such processes; most processes never need one."""
    from multiprocessing import get_context

    context = get_context("forkserver")
    context.set_forkserver_preload(["agentsite.preloaded"])
    return context


def wait_for_end(process: BaseProcess) -> None:
    """Wait until the process ends; kill one that stays stopped, if /proc tells (Linux)."""
    looks = 0
    while process.exitcode is None:
        process.join(LOOK_S)
        looks = looks + 1 if state_of(process.pid) == "T" else 0
        if looks > 2:
            log.warning("The process of a run was stopped (SIGSTOP) and is killed.")
            process.kill()


def tell_to_leave(seconds: float) -> None:
    """Let the processes drain, and wait for them at most `seconds` in all."""
    for process in list(_running.values()):
        if process.pid is not None:
            process.terminate()
    until, pause = time.monotonic() + seconds, threading.Event()
    while _running and time.monotonic() < until:
        pause.wait(0.05)
