"""`manage.py` in a process of its own on the database of the test, forked from one that has loaded the project."""

from __future__ import annotations

import functools
import io
import json
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

from runs.models import Run
from runs.store import leases
from tests.forking import Forker
from tests.running import lose_worker


class Ended(NamedTuple):
    """How a command ended: below zero by that signal."""

    returncode: int
    stdout: str
    stderr: str


def command(*words: str, failpoints: str = "", timeout: float = 120) -> Ended:
    """Run it on this test's database, data directory and secret key."""
    forker = _forker(database_url(), settings.SECRET_KEY)
    return Ended(*forker.run(words, timeout, failpoints, Path(settings.DATA_DIR)))


def database_url() -> str:
    """Where another process finds the database of this test."""
    if connection.vendor == "sqlite":
        return f"sqlite:///{Path(connection.settings_dict['NAME']).absolute()}"
    place = connection.settings_dict
    return f"postgresql://{place['USER']}@/{place['NAME']}?host={place['HOST']}"


@functools.cache
def _forker(database: str, secret_key: str) -> Forker:
    return Forker(
        os.environ
        | {
            "DATABASE_URL": database,
            "SECRET_KEY": secret_key,
            "REDIS_URL": "",
            "AGENTSITE_DATA_DIR": str(settings.DATA_DIR),
            "DJANGO_SETTINGS_MODULE": "agentsite.settings",
        }
    )


def launch_and_die(played: dict[str, Any], place: str, tmp_path: Path, **run_settings: Any) -> Run:
    (tmp_path / "script.json").write_text(json.dumps(played))
    done = command(
        "launch",
        "--machine=ruled",
        "--goal=Write to bob",
        f"--settings={json.dumps(run_settings)}",
        f"--script={tmp_path / 'script.json'}",
        "--inline",
        failpoints=place,
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    run = Run.objects.get()
    assert leases.claim(run.pk, "too early") is None
    lose_worker(run)
    return run


def told(*words: str) -> tuple[str, int]:
    """What the command printed, and its exit code."""
    out = io.StringIO()
    code = 0
    try:
        call_command(*words, stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    return out.getvalue(), code


def refused(*words: str) -> str:
    """What a command that can't be done says; its exit code is 2."""
    with pytest.raises(CommandError) as caught:
        call_command(*words, stdout=io.StringIO())
    assert caught.value.returncode == 2
    return str(caught.value)
