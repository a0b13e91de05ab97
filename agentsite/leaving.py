"""End a process that drives runs: drain it, then exit for good."""

from __future__ import annotations

import os
import sys
import threading

from django.conf import settings

from runs import driver, hints, live

LAST_WORDS_S = 0.5
"""Seconds for the hints of the released runs, before a process ends in the middle of a call."""


def leave() -> None:
    """Drain; a second time, without waiting.

    If a call still waits for an unwanted answer, the process exits at once. The run's next worker repeats such a call;
    for a call with side effects that took too long, a person decides.
    """
    driver.drain(0.0 if driver.closing() else settings.DRAIN_SECONDS, hints.hint)
    if not driver.holds_any():
        return
    threading.Event().wait(LAST_WORDS_S)
    live.flush()
    driver.cut_off(_end)


def _end() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


def leave_in_a_thread() -> None:
    """Do the same in a thread, beside a main thread that ends the process itself if it can."""
    threading.Thread(target=leave, name="leaving", daemon=True).start()
