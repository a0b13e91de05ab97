"""How a process that drives runs ends when it is told to: drained, and then for good."""

from __future__ import annotations

import os
import sys
import threading

from django.conf import settings

from runs import driver, hints, live

LAST_WORDS_S = 0.5
"""Seconds for the hints of what was let go, before a process ends in the middle of a call."""


def leave() -> None:
    """Drain; told a second time, without waiting.

    Where a call still waits for an answer that nobody wants, the process ends there and then.
    What such a call asks for is asked again by whoever takes the run; a deed that took too long is a person's to judge.
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
    """The same beside a main thread that ends the process itself where nothing hinders it."""
    threading.Thread(target=leave, name="leaving", daemon=True).start()
