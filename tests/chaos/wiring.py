"""How one process of the bench differs from another, and what all of them share."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess

from django.db import DatabaseError, connections

from runs.store import leases

THREADS = 2
"""Runs that a worker drives at once."""

IDLE_S = 0.03
"""Seconds between two looks of a process that has nothing to do."""

LOOK_S = 0.2
"""Seconds between two looks of the scheduler for what is due and who is lost."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wiring:
    """How one process differs from an undisturbed one."""

    seed: int = 0
    failpoint: str = ""
    """As FAILPOINTS has it."""
    clock_s: float = 0.0
    """By so much the process's own clock is wrong."""
    database_clock_s: float = 0.0
    """SQLite asks the process for the time: by so much that is wrong."""
    file_bytes: int = 0
    """No file may grow beyond this; 0: any size."""
    without: str = ""
    """The protection that is off (controls.py)."""
    hints: bool = False
    only: tuple[int, ...] = ()
    """A worker of these runs alone; none: of all."""
    batch: str = ""
    """A launcher: how the labels of its runs begin."""
    level: int = 0
    """A launcher: so many runs are kept unfinished."""
    threads: int = THREADS
    most_lost: int = leases.MOST_LOST


@dataclass
class Actor:
    """A process of the bench."""

    kind: str
    process: BaseProcess
    wiring: Wiring
    born: float

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process.pid is not None
        return self.process.pid


Life = Callable[[Wiring, random.Random], None]


@contextlib.contextmanager
def unharmed() -> Iterator[None]:
    """Faults of the database are the bench's own doing (a full disk, a restart): a process tries again."""
    try:
        yield
    except (DatabaseError, OSError) as fault:
        log.warning("%s: %s", type(fault).__name__, fault)
        connections.close_all()
        time.sleep(0.1)
