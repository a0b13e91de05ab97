"""Tools that kill their worker, and slow ones that change something: `AGENTSITE_TOOLS=tests.agentsite.pills:TOOLS`.

Each call notes in a file of the data directory that it ended: `happened` of the tools that can be asked reads it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runs.adapters.tool import Arguments, NotHappened, Place, Result, Tool
from runs.engine.effects import EffectClass

DEADLINE_S = 120.0


class For(Arguments):
    """How long a call takes."""

    ms: int = 0


def _pill(arguments: For, place: Place) -> Result:
    time.sleep(arguments.ms / 1000)
    os.kill(os.getpid(), signal.SIGKILL)
    return Result(None)


def _exit(arguments: For, place: Place) -> Result:
    os._exit(1)


def _work(arguments: For, place: Place) -> Result:
    time.sleep(arguments.ms / 1000)
    _note_of(place).touch()
    return Result("done")


def _has_happened(arguments: For, place: Place) -> Result | NotHappened | None:
    """What was cut off can't happen any more: the deed is this process's own."""
    return Result("done") if _note_of(place).exists() else NotHappened.FOR_SURE


def _note_of(place: Place) -> Path:
    return Path(os.environ["AGENTSITE_DATA_DIR"]) / f"{place.key}.done"


def _unknown(arguments: For, place: Place) -> None:
    return None


def _tool(
    name: str,
    effects: EffectClass,
    run: Callable[[For, Place], Result],
    *,
    idempotent: bool = False,
    happened: Callable[[For, Place], Any] | None = None,
) -> Tool:
    return Tool(name, f"The tool {name}.", For, effects, idempotent, DEADLINE_S, run, happened)


PILLS = [
    _tool("pill_none", "none", _pill),
    _tool("pill_read", "read", _pill),
    _tool("pill_exit", "read", _exit),
    _tool("pill_write_key", "write", _pill, idempotent=True),
    _tool("pill_send_asked", "send", _pill, happened=_has_happened),
    _tool("pill_write", "write", _pill),
    _tool("pill_send", "send", _pill),
    _tool("pill_execute", "execute", _pill),
    _tool("pill_execute_unknown", "execute", _pill, happened=_unknown),
]
WORK = [
    _tool("work_key", "write", _work, idempotent=True),
    _tool("work_asked", "write", _work, happened=_has_happened),
    _tool("work_read", "read", _work),
    _tool("work", "write", _work),
]
TOOLS = [*PILLS, *WORK]
