"""`manage.py` in a process of its own on the database of the test, forked from one that has loaded the project."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import NamedTuple

from django.conf import settings
from django.db import connection

from tests.forking import Forker


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
