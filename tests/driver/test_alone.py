"""Processes of a run's own, after its worker was lost."""

from __future__ import annotations

import os
import signal

import pytest

from runs.driver import alone


def test_a_process_of_a_run_that_stays_stopped_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold the lock that everything waits for, and `up` sees its own processes only."""
    monkeypatch.setattr(alone, "LOOK_S", 0.05)
    process = alone.fork_context().Process(target=signal.pause)
    process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    alone.wait_for_end(process)
    assert process.exitcode == -signal.SIGKILL
