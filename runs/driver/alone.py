"""Drives a run in a process of its own after its worker was lost, so that it can take no other run down again.

The process ends once the run has moved, and the run goes on among the others.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import threading
import time

from django.conf import settings

from runs import store
from runs.driver.away import once_there
from runs.driver.holds import closing

AT_ONCE = 2
"""Such processes that one worker starts at the same time: each loads the project."""

_room = threading.BoundedSemaphore(AT_ONCE)
_running: set[subprocess.Popen[bytes]] = set()


def drive_alone(run_id: int) -> list[int]:
    """Start a process for the run and wait until it ends. Return the runs that want a worker next."""
    with _room:
        if closing():
            return []
        token = f"alone-{secrets.token_hex(8)}"
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "drive_alone", str(run_id), token]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        _running.add(process)
        try:
            code = process.wait()
        finally:
            _running.discard(process)
    if code:
        once_there(lambda: store.lose(run_id, token))
    return [run_id]


def tell_to_leave(seconds: float) -> None:
    """Let the processes drain, and wait for them at most `seconds` in all."""
    for process in list(_running):
        process.terminate()
    until = time.monotonic() + seconds
    for process in list(_running):
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return
