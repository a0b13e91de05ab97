"""/healthz says that all is well only where the site can work, and never hangs itself."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from runs.store import health
from tests.cast import cast_member, signed_in
from tests.launching import FINAL, launch
from tests.running import lookers, stuck
from tests.stack import wait_for

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

AT_ONCE_S = 1.0
"""Less than anybody waits for a look."""


@pytest.fixture(autouse=True)
def _looked_at_anew() -> Iterator[None]:
    """What another test has seen is forgotten, and nobody looks any more when the test ends."""
    for look in (health.disk, health.database):
        look.forget()
    yield
    wait_for(lambda: not lookers())


def asked(client: Client | None = None) -> tuple[int, str, float]:
    """Status, sentence, and how long it took."""
    began = time.monotonic()
    answer = (client or Client()).get("/healthz")
    return answer.status_code, answer.content.decode().strip(), time.monotonic() - began


def well() -> bool:
    return asked()[0] == 200


def test_a_stuck_database_is_told_within_seconds_and_then_at_once_by_one_thread() -> None:
    client = signed_in(cast_member("eve"))  # a browser brings its cookies
    with stuck():
        status, sentence, took = asked(client)
        assert (status, sentence) == (503, "The database has not answered for 2 seconds.")
        assert took < health.PATIENCE_S + AT_ONCE_S
        for _ in range(20):
            status, _, took = asked(client)
            assert status == 503
            assert took < AT_ONCE_S
        assert len(lookers()) == 1
    wait_for(well)


def test_many_who_ask_at_once_wait_for_one_look() -> None:
    told: list[int] = []
    with stuck():
        threads = [threading.Thread(target=lambda: told.append(asked()[0])) for _ in range(10)]
        for thread in threads:
            thread.start()
        assert len(lookers()) <= 1
        for thread in threads:
            thread.join()
    assert told == [503] * 10
    wait_for(well)


def test_a_row_that_is_being_written_is_no_fault_and_a_look_keeps_no_writer_waiting() -> None:
    run = launch(FINAL)
    assert well()
    if connection.vendor == "postgresql":  # SQLite locks no rows
        other = connection.copy()
        other.inc_thread_sharing()
        with closing(other):
            other.set_autocommit(False)
            with other.cursor() as cursor:
                cursor.execute("UPDATE runs_run SET head = head WHERE id = %s", [run.pk])
            health.database.forget()
            assert well()
            other.rollback()


def test_what_was_seen_a_moment_ago_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = health.Look("The world", lambda: looks.append(1), str)
    for _ in range(100):
        assert look.fault() == ""
    assert len(looks) == 1
    monkeypatch.setattr(health, "HOLDS_S", -1.0)
    assert look.fault() == ""
    assert len(looks) == 2


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of some kilobytes, and nothing free on it."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    with pytest.raises(OSError, match="No space left"), (folder / "filled").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_told(tmp_path: Path, settings: Any) -> None:
    with small_disk(tmp_path / "disk") as disk:
        settings.DATA_DIR = disk
        fill(disk)
        assert asked()[:2] == (503, "The disk takes no writes: No space left on device.")
        (disk / "filled").unlink()
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        wait_for(well)
        assert not list(disk.iterdir())  # a look leaves nothing


def test_a_disk_that_may_only_be_read_is_told(tmp_path: Path, settings: Any) -> None:
    with small_disk(tmp_path / "disk") as disk:
        settings.DATA_DIR = disk
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert asked()[:2] == (503, "The disk takes no writes: Read-only file system.")


def test_a_data_directory_that_is_gone_is_told(tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    assert asked()[:2] == (503, "The disk takes no writes: No such file or directory.")


def test_the_log_says_once_what_is_wrong_and_once_that_it_is_over(
    tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, settings.DATA_DIR = settings.DATA_DIR, tmp_path / "gone"
    with caplog.at_level(logging.WARNING, health.log.name):
        monkeypatch.setattr(health, "HOLDS_S", -1.0)  # each question is a look
        for _ in range(3):
            assert not well()
        settings.DATA_DIR = there
        wait_for(well)
    fault, over = [record.getMessage() for record in caplog.records if record.name == health.log.name]
    assert fault.startswith("The disk takes no writes: No such file or directory. It says: ")
    assert over == "The disk answers again."
