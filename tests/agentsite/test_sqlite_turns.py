"""Threads of one process write to a SQLite file in turn, and none waits inside SQLite."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import IntegrityError
from pytest_django import DjangoDbBlocker

from agentsite.environment import sqlite_database
from agentsite.sqlite3.base import DatabaseWrapper, Turn
from tests.stack import LONGEST_S

Open = Callable[..., DatabaseWrapper]
SETTINGS = {"AUTOCOMMIT": True, "CONN_HEALTH_CHECKS": False, "CONN_MAX_AGE": 0, "TIME_ZONE": None}


@pytest.fixture
def opened(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Open]:
    """Connections to one file, each as a thread of its own would have it."""
    made: list[DatabaseWrapper] = []

    def open_one(patience_s: float = LONGEST_S) -> DatabaseWrapper:
        described: dict[str, Any] = sqlite_database(tmp_path / "turns.sqlite3")
        described["OPTIONS"]["timeout"] = patience_s
        wrapper = DatabaseWrapper({**SETTINGS, **described}, alias="turns")
        wrapper.inc_thread_sharing()
        wrapper.ensure_connection()
        made.append(wrapper)
        return wrapper

    with django_db_blocker.unblock():
        with open_one().cursor() as cursor:
            cursor.execute("CREATE TABLE note (text TEXT UNIQUE)")
        yield open_one
        for wrapper in made:
            wrapper.close()


def write(wrapper: DatabaseWrapper, text: str) -> None:
    with wrapper.cursor() as cursor:
        cursor.execute("INSERT INTO note VALUES (%s)", (text,))


def begin(wrapper: DatabaseWrapper) -> None:
    wrapper.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)


def in_thread(deed: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=deed)
    thread.start()
    return thread


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < end


def test_freeing_a_cursor_never_waits_for_a_connection_that_waits_to_write(
    opened: Open, tmp_path: Path
) -> None:
    """The mutex of a connection that waits in SQLite is held; a garbage collection would wait for it."""
    waiting, other = opened(), sqlite3.connect(tmp_path / "turns.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # as another process does
    cursors = [waiting.connection.cursor() for _ in range(3)]
    for cursor in cursors:
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            cursor.execute("BEGIN IMMEDIATE")  # its statement is never reset
    del cursor
    inside = threading.Event()
    waiting.connection.set_trace_callback(lambda statement: inside.set())
    writer = in_thread(lambda: write(waiting, "after"))
    assert inside.wait(LONGEST_S)
    longest = 0.0
    while cursors:
        began = time.monotonic()
        cursors.pop()
        longest = max(longest, time.monotonic() - began)
    other.execute("ROLLBACK")
    writer.join()
    other.close()
    assert longest < 1


def test_the_turn_goes_to_the_thread_that_has_waited_longest() -> None:
    turn, order = Turn(), list[int]()

    def write_as(number: int) -> None:
        assert turn.take(LONGEST_S)
        order.append(number)
        turn.give()

    assert turn.take(0)
    threads = []
    for number in range(8):
        threads.append(in_thread(lambda number=number: write_as(number)))  # type: ignore[misc]
        until(lambda number=number: turn.waiting == number + 1)  # type: ignore[misc]
    turn.give()
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def test_a_writer_that_waits_too_long_is_refused_as_sqlite_does_and_gets_its_turn_later(opened: Open) -> None:
    holder, hasty = opened(), opened(patience_s=0.05)
    begin(holder)
    write(holder, "held")
    with pytest.raises(OperationalError, match="database is locked") as refused:
        write(hasty, "refused")
    assert getattr(refused.value.__cause__, "sqlite_errorname", "") == "SQLITE_BUSY"
    holder.commit()
    write(hasty, "in turn")


def test_another_process_that_keeps_the_lock_too_long_is_told_as_locked(opened: Open, tmp_path: Path) -> None:
    hasty, other = opened(patience_s=0.05), sqlite3.connect(tmp_path / "turns.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(OperationalError, match="database is locked"):
        write(hasty, "refused")
    other.execute("ROLLBACK")
    other.close()
    write(hasty, "free")


def fail(wrapper: DatabaseWrapper) -> None:
    with pytest.raises(IntegrityError):
        write(wrapper, "twice")


def roll_back(wrapper: DatabaseWrapper) -> None:
    begin(wrapper)
    write(wrapper, "gone")
    wrapper.rollback()


def close_in_the_middle(wrapper: DatabaseWrapper) -> None:
    begin(wrapper)
    write(wrapper, "gone")
    wrapper.close()


@pytest.mark.parametrize("ending", [fail, roll_back, close_in_the_middle])
def test_however_a_write_ends_the_next_thread_gets_its_turn(
    opened: Open, ending: Callable[[DatabaseWrapper], None]
) -> None:
    one, other = opened(), opened(patience_s=1)
    write(one, "twice")
    ending(one)
    assert not one.has_turn
    write(other, "next")


def test_readers_wait_for_no_writer(opened: Open) -> None:
    writer, reader = opened(), opened(patience_s=0)
    begin(writer)
    write(writer, "open")
    with reader.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM note")
        assert cursor.fetchone() == (0,)
    writer.commit()


def test_many_threads_write_beside_another_process_and_nobody_is_told_locked(
    opened: Open, tmp_path: Path
) -> None:
    other = sqlite3.connect(
        tmp_path / "turns.sqlite3", isolation_level=None, check_same_thread=False, timeout=60
    )
    wrappers = [opened() for _ in range(12)]
    faults: list[Exception] = []

    def write_often(wrapper: DatabaseWrapper, name: int) -> None:
        try:
            for number in range(15):
                begin(wrapper)
                write(wrapper, f"{name} {number}")
                wrapper.commit()
                wrapper.set_autocommit(True)
        except Exception as fault:
            faults.append(fault)

    def write_beside() -> None:
        for number in range(60):
            other.execute("INSERT INTO note VALUES (?)", (f"other {number}",))

    threads = [in_thread(write_beside)]
    threads += [in_thread(lambda w=w, n=n: write_often(w, n)) for n, w in enumerate(wrappers)]  # type: ignore[misc]
    for thread in threads:
        thread.join()
    assert not faults
    assert other.execute("SELECT COUNT(*) FROM note").fetchone() == (12 * 15 + 60,)
    other.close()
