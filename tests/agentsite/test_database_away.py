"""Runs go on within two seconds of the return of a database that was away, and the logs stay short."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from runs import driver
from runs.store import health
from tests.benchmarks.postgres import Cluster, binaries, own_cluster
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import lookers, stuck, work
from tests.stack import A_BUSY_SECOND, Site, running_site, wait_for
from tests.workers import MeddledJourney

pytestmark = pytest.mark.usefixtures("every_run_verifies")

AWAY_S = 12.0
"""Longer than a thread waits for a connection of the pool."""

BACK_WITHIN_S = 2 * A_BUSY_SECOND
CALLS = 18


@pytest.fixture
def server() -> Iterator[Cluster]:
    found = binaries()
    if found is None:
        pytest.skip("PostgreSQL is not installed")
    with own_cluster(found) as own:
        yield own


def played(calls: int, **pace: float) -> dict[str, Any]:
    """A script of so many calls that only read."""
    search = {"params": {"q": "string"}, "effects": "read", "results": [{"output": "three results"}]}
    replies = [*[think("search", q="tides")] * calls, FINAL]
    return {"replies": {"decision": replies}, "tools": {"search": search}, "pace": pace}


def launched(site: Site, script: dict[str, Any]) -> int:
    words = ("launch", "--machine", "ruled", "--goal", "tides", "--script", json.dumps(script))
    return int(site.manage(*words, code=None).removeprefix("Run ").partition(":")[0])


def seconds_at_work(site: Site) -> float:
    """Processor seconds of the site's processes so far."""
    ticks = (
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in site.pids.values()
    )
    return sum(int(part) for parts in ticks for part in parts) / os.sysconf("SC_CLK_TCK")


@pytest.mark.stack
@pytest.mark.parametrize("hints", ["1", "0"])
def test_runs_go_on_within_two_seconds_of_the_return_of_the_server(
    hints: str, server: Cluster, tmp_path: Path
) -> None:
    with (
        running_site(tmp_path / "data", {"DATABASE_URL": server.url, "HINTS": hints}, fresh=True) as site,
        psycopg.connect(server.url, autocommit=True) as before,
    ):
        walking = [launched(site, played(CALLS, tool_s=1.0)) for _ in range(3)]
        silent = launched(site, played(0, model_s=AWAY_S + 8))
        started = "SELECT count(*) FROM runs_run WHERE started_at IS NOT NULL"
        wait_for(lambda: before.execute(started).fetchone() == (4,))
        worked, logs = seconds_at_work(site), log_of(site)
        server.stop("fast")
        threading.Event().wait(AWAY_S)
        assert not site.answers()
        assert seconds_at_work(site) - worked < AWAY_S / 2
        server.start()
        back = datetime.now(UTC)
        wait_for(site.answers, BACK_WITHIN_S)
        with psycopg.connect(server.url, autocommit=True) as after:
            first = "SELECT min(at) FROM runs_step WHERE run_id = %s AND at > %s"
            for run in walking:
                wait_for(lambda run=run: after.execute(first, [run, back]).fetchone() != (None,))  # type: ignore[misc]
                (at,) = after.execute(first, [run, back]).fetchone() or ()
                assert (at - back).total_seconds() < BACK_WITHIN_S
            wait_for(lambda: after.execute(first, [silent, back]).fetchone() != (None,))
            row = "SELECT model_calls FROM runs_run WHERE id = %s"
            assert after.execute(row, [silent]).fetchone() == (1,), "the call under way was not made again"
            recovered = "SELECT count(*) FROM runs_step WHERE kind = 'recovered'"
            assert after.execute(recovered).fetchone() == (0,)
        told = log_of(site).removeprefix(logs)
        assert "Traceback" not in told
        assert len(told.splitlines()) <= 10, told


def log_of(site: Site) -> str:
    """What the worker and the scheduler have logged."""
    return "".join((site.data_dir / "logs" / f"{name}.log").read_text() for name in ("worker", "scheduler"))


# --- in one process -----------------------------------------------------------------------------------------------


def end_my_connection() -> None:
    """The server ends the session of this thread, which learns of it when it asks something."""
    other = connection.copy()
    other.inc_thread_sharing()
    with closing(other), other.cursor() as cursor, connection.cursor() as mine:
        mine.execute("SELECT pg_backend_pid()")
        cursor.execute("SELECT pg_terminate_backend(%s, 5000)", mine.fetchone())


class Cutting:
    """Slices of `drive` in whose calls of a tool something happens, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, deed: Any, only: str) -> None:
        self.deeds = [deed]
        self.called: list[str] = []
        monkeypatch.setattr(driver, "Worker", lambda hold: MeddledJourney(hold, after=self.once, only=only))

    def once(self) -> None:
        self.called.append("")
        if self.deeds:
            self.deeds.pop()()


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_run_whose_connection_the_server_has_ended_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only a server ends connections")
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    cutting = Cutting(monkeypatch, end_my_connection, "send")
    assert driver.drive(run.pk) == [run.pk]
    run.refresh_from_db()
    assert (run.status, run.worker) == ("queued", "")
    assert work(run).status == "succeeded"
    assert len(cutting.called) == 1, "its answer was kept"
    assert not run.steps.filter(kind="recovered").exists()


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_reply_that_comes_over_a_lost_connection_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of the run are read before anything is written."""
    if connection.vendor != "postgresql":
        pytest.skip("only a server ends connections")
    run = launch(FINAL, limits={"cost_usd": 1.0})
    cutting = Cutting(monkeypatch, end_my_connection, "decision")
    assert driver.drive(run.pk) == [run.pk]
    assert work(run).status == "succeeded"
    assert len(cutting.called) == 2
    assert (run.model_calls, run.cost_usd) == (2, 0.002)


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_run_goes_on_when_the_lock_that_kept_it_from_writing_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where another process was frozen in a write."""
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has one lock for all writers")
    run = launch(think("search", q="tides"), FINAL)
    locked = stuck()
    cutting = Cutting(monkeypatch, locked.__enter__, "search")
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.1)
    connection.close()

    def set_free() -> None:
        wait_for(lambda: not cutting.deeds and health.database.fault() == "The database is locked.")
        locked.__exit__(None, None, None)

    threading.Thread(target=set_free).start()
    assert driver.drive(run.pk) == [run.pk]
    assert work(run).status == "succeeded"
    assert not run.steps.filter(kind="recovered").exists()
    wait_for(lambda: not lookers())
