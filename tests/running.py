"""Drive runs in a test, look at them, and check that each holds together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.functions import Now

from runs import actions, driver
from runs.machines import CATALOGUE
from runs.models import FINISHED, LOOKS, Exchange, Interrupt, Run, RunStatus, Step
from runs.store import appending, loading, log, verifying
from runs.store.creating import terms_hash
from runs.store.log import lock
from tests.stack import LONGEST_S

# --- working ------------------------------------------------------------------------------------------------------


def work(run: Run) -> Run:
    """Let workers drive the run, and whoever they wake, as far as they go; delays are over at once."""
    wanting = [run.pk]
    while wanting:
        run_id = wanting.pop(0)
        make_due(run_id)
        wanting += driver.drive(run_id)
        if Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).exists() and run_id not in wanting:
            wanting.append(run_id)
    run.refresh_from_db()
    return run


def make_due(run_id: int) -> None:
    """The time that a delay waits for has come."""
    Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(due_at=Now() - timedelta(seconds=1))


def lose_worker(run: Run) -> None:
    """The worker that holds the run is dead, and its lease has run out long ago."""
    Run.objects.filter(pk=run.pk).exclude(worker="").update(
        lease_until=Now() - timedelta(hours=1), silent_looks=LOOKS
    )


def in_threads(count: int, deed: Any) -> list[Any]:
    """`deed(number)` in so many threads at once, each with its own connection; their results."""
    gate = threading.Barrier(count)
    results: list[Any] = [None] * count
    faults: list[BaseException] = []

    def body(number: int) -> None:
        try:
            gate.wait()
            results[number] = deed(number)
        except BaseException as fault:
            faults.append(fault)
        finally:
            connection.close()

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    return results


def on_postgresql(because: str) -> pytest.MarkDecorator:
    """For a test of what only a server's database does; `because` says why not on SQLite."""
    return pytest.mark.skipif(connection.vendor != "postgresql", reason=because)


def somebody_waits_for_a_lock() -> bool:
    """Whether a connection to this database waits for another's lock; asked on PostgreSQL alone."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # else each look of a transaction is its first
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchall())


@contextmanager
def locked(*runs: Run) -> Iterator[None]:
    """Somebody else holds the rows of these for as long as it takes; on SQLite that is all of the database."""
    taken, over = threading.Event(), threading.Event()

    def held() -> None:
        with transaction.atomic():
            for run in runs:
                lock(run.pk)
            taken.set()
            over.wait(60)
        connection.close()

    thread = threading.Thread(target=held)
    thread.start()
    assert taken.wait(LONGEST_S)
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def just_after(table: str, deed: Callable[[], object]) -> Iterator[None]:
    """Do it between the first answer that comes from `table` and what is read next."""
    done: list[str] = []

    def passing_on(execute: Callable[..., Any], sql: str, *more: Any) -> Any:
        found = execute(sql, *more)
        if not done and sql.startswith("SELECT") and f'FROM "{table}"' in sql:
            done.append(sql)
            deed()
        return found

    with connection.execute_wrapper(passing_on):
        yield
    assert done, f"nothing was read from {table}"


def no_renewer() -> bool:
    """Whether the thread that renews leases has ended."""
    return not any(thread.name == "lease-renewer" for thread in threading.enumerate())


# --- looking ------------------------------------------------------------------------------------------------------


def kinds(run: Run) -> list[str]:
    """The kinds of the rows, in order."""
    return list(run.steps.order_by("seq").values_list("kind", flat=True))


def pending(run: Run) -> Interrupt:
    """The question that is open."""
    return Interrupt.objects.get(run=run, status=Interrupt.Status.PENDING)


def decide(run: Run, verdict: str, **parts: Any) -> Any:
    """The operator answers the question that is open."""
    return actions.decide(pending(run).pk, verdict=verdict, by=None, channel="command", **parts)


def transitions(run: Run, edge: str | None = None) -> list[int]:
    """The seqs of the live transitions, by one edge or any."""
    rows = run.steps.filter(kind="transition", live=True).order_by("seq")
    return list((rows.filter(edge=edge) if edge else rows).values_list("seq", flat=True))


def check_everything() -> None:
    """What holds of every run at any time: its log verifies, and it can go on (docs/invariants.md, I1 to I3)."""
    for run in Run.objects.all():
        check_run(run)


def check_run(run: Run) -> None:
    """The same of one run."""
    misfit = verifying.verify(run, driver.tool_specs(run))
    assert misfit is None, f"run {run.pk}: {misfit}"
    rows = list(run.steps.order_by("seq").values_list("seq", "kind", "to"))
    assert [seq for seq, _, _ in rows] == list(range(1, run.head + 1))
    assert sum(kind == "stop" for _, kind, _ in rows) + sum(to == "end" for _, _, to in rows) <= 1
    check_prompt_hash(run)
    _check_way_on(run)


def check_prompt_hash(run: Run) -> None:
    blocks = loading.load_blocks(run, CATALOGUE[run.machine], run.head)
    assert run.prompt_hash == appending.prompt_chain("", blocks), (
        f"run {run.pk}: prompt_hash is not that of its rows"
    )


def _check_way_on(run: Run) -> None:
    """Ended, queued, held, or waiting for somebody who can answer."""
    if run.status != RunStatus.WAITING:
        assert run.status in (*FINISHED, "queued", "running", "paused")
        return
    ask = run.steps.filter(kind="ask", live=True).order_by("-seq").first()
    assert ask is not None
    exchange = Exchange.objects.get(run=run, seq=ask.seq)
    assert exchange.status == "asked", f"run {run.pk} waits for what has been answered"
    if exchange.kind == "human_call":
        assert pending(run).seq == ask.seq
    else:
        assert Run.objects.filter(parent=run, parent_seq=ask.seq, ended_at__isnull=True).exists()


def unseal(run: Run) -> None:
    """Hash the steps as versions did whose hashes covered nothing beside them."""
    before = terms_hash(run)
    for step in run.steps.order_by("seq"):
        step.seals = ""
        before = log.chain(before, step)
        Step.objects.filter(pk=step.pk).update(seals="", hash=before)
    Run.objects.filter(pk=run.pk).update(head_hash=before)


LOCKED = "LOCK TABLE runs_run IN ACCESS EXCLUSIVE MODE"


@contextmanager
def stuck() -> Iterator[None]:
    """The database while somebody else keeps every writer out."""
    other: BaseDatabaseWrapper = connection.copy()
    other.inc_thread_sharing()
    with closing(other):
        other.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        if other.vendor == "postgresql":
            with other.cursor() as cursor:
                cursor.execute(LOCKED)
        yield
        other.rollback()


def lookers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("look at ")]


def misfit_of(run: Run) -> verifying.Misfit | None:
    return verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run))
