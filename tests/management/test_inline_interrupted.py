"""Ctrl-C ends a run that is driven inline with a sentence: what it says was cut off has no answer."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from agentsite.environment import ROOT
from runs.models import Run
from tests.commands import database_url
from tests.launching import ALLOW, FINAL, think
from tests.stack import LONGEST_S, own_environ, wait_for

pytestmark = [pytest.mark.django_db(transaction=True)]

INTERRUPTED = 130


@contextmanager
def at_the_gate(tmp_path: Path) -> Iterator[tuple[Run, Popen[str]]]:
    """A process that drives a run inline, in a call that lasts until the gate opens; then its model is slow."""
    played = {"replies": {"decision": [think("gate"), FINAL]}, "pace": {"model_s": 5.0}}
    settings = {"tools": ["gate"], "rules": ALLOW}
    words: list[str] = ["--machine", "ruled", "--goal", "tides", "--inline"]
    words += ["--settings", json.dumps(settings), "--script", json.dumps(played)]
    environ = own_environ(tmp_path) | {"DATABASE_URL": database_url(), "REDIS_URL": ""}
    environ |= {"AGENTSITE_TOOLS": "tests.agentsite.gate:GATE", "GATE_FILE": str(tmp_path / "open")}
    command = [sys.executable, "manage.py", "launch", *words]
    with Popen(command, cwd=ROOT, env=environ, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            wait_for(lambda: status() == "started")
            yield Run.objects.get(), process
        finally:
            process.kill()


def status() -> Any:
    return Run.objects.filter(exchanges__name="gate").values_list("exchanges__status", flat=True).first()


def interrupted(process: Popen[str]) -> list[str]:
    """What the process says after Ctrl-C, before its exit code."""
    process.send_signal(signal.SIGINT)
    _, complained = process.communicate(timeout=LONGEST_S)
    assert process.returncode == INTERRUPTED
    return complained.splitlines()


def test_a_call_that_ctrl_c_cuts_off_is_named(tmp_path: Path) -> None:
    with at_the_gate(tmp_path) as (run, process):
        assert interrupted(process) == [
            f"Interrupted. Run {run.pk} stays queued. Cut off mid-call: run {run.pk}, gate. "
            "The outcome is unknown."
        ]
    assert status() == "started"


def test_a_call_whose_answer_is_kept_is_not(tmp_path: Path) -> None:
    with at_the_gate(tmp_path) as (run, process):
        (tmp_path / "open").touch()
        wait_for(lambda: status() == "answered")
        assert interrupted(process) == [f"Interrupted. Run {run.pk} stays queued."]
