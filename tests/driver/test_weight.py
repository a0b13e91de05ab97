"""A process that drives runs for long weighs no more than after its first ones."""

import gc
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos import leftovers
from tests.launching import busy_run

pytestmark = [pytest.mark.django_db(transaction=True)]

WARM, MORE = 12, 48
"""Runs until a process has met all that it keeps for good, and those after them."""
LEAK_KIB = 100
"""What no run may leave behind on average; seen: 0 to 20."""


def test_a_process_that_drives_many_runs_keeps_nothing_of_them() -> None:
    drive(WARM)
    first = leftovers.weight_of(os.getpid())
    drive(MORE)
    last = leftovers.weight_of(os.getpid())
    assert list(leftovers.heavier("this process", first, last)) == []
    assert last["memory"] - first["memory"] < LEAK_KIB * MORE


def drive(runs: int) -> None:
    for _ in range(runs):
        busy_run()
    gc.collect()


def test_the_files_of_a_connection_are_no_descriptors(tmp_path: Path) -> None:
    before = leftovers.weight_of(os.getpid())
    with ExitStack() as opened:
        for name in ("db.sqlite3", "db.sqlite3-wal", "db.sqlite3-shm"):
            opened.enter_context((tmp_path / name).open("w"))
        assert leftovers.weight_of(os.getpid())["descriptors"] == before["descriptors"]
        opened.enter_context((tmp_path / "other").open("w"))
        assert leftovers.weight_of(os.getpid())["descriptors"] == before["descriptors"] + 1


def test_memory_is_judged_once_the_process_is_warm() -> None:
    cold, warm = weight(work=leftovers.WARM_WORK - 1), weight(work=leftovers.WARM_WORK)
    assert "memory" not in leftovers.judged_from([cold, cold], last=weight(work=10 * leftovers.WARM_WORK))
    first = leftovers.judged_from([cold, warm], last=weight(work=2 * leftovers.WARM_WORK))
    assert list(leftovers.heavier("it", first, weight(memory=200_000))) != []
    assert list(leftovers.heavier("it", first, weight())) == []


def weight(work: int = 0, memory: int = 100_000) -> dict[str, int]:
    return dict.fromkeys(leftovers.FLOORS, 5) | {"work": work, "memory": memory}
