"""Keep the answer of a call on this machine's disk until the database has it.

An unrepeatable call may have ended while its answer still waits for the database. A worker that dies in between leaves
the answer here. The next worker on this machine uses it, and no person is asked about the call. Nothing is synced: this
is for a dying process, not for a dying machine.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from pydantic import ValidationError

from runs.engine.effects import ANSWER, Answer

KEPT_S = 7 * 24 * 3600.0
"""Seconds for which an answer waits for the next worker."""


def put(key: str, answer: Answer) -> None:
    """Write the answer to the call of that idempotency key; a refusing disk loses only this second copy."""
    path = path_of(key)
    draft = path.with_suffix(".new")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(ANSWER.dump_json(answer))
        draft.replace(path)
        _forget_old(path.parent)


def _forget_old(folder: Path) -> None:
    """Delete expired answers: the run was aborted or deleted before the call was concluded."""
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > KEPT_S:
            path.unlink(missing_ok=True)


def get(key: str) -> Answer | None:
    """Return the answer to the call of that key; None if this machine has none."""
    try:
        return ANSWER.validate_json(path_of(key).read_bytes())
    except (OSError, ValidationError):
        return None


def drop(key: str) -> None:
    """Forget the answer: the database has it."""
    with suppress(OSError):
        path_of(key).unlink()


def path_of(key: str) -> Path:
    """Return where the answer to the call of that key is kept."""
    return Path(settings.DATA_DIR) / "answers" / f"{key}.json"
