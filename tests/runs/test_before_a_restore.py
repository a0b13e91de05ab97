"""What was handed out before a restore, and may still be in somebody's hands: seats, and numbers of runs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from runs import actions, store
from runs.models import Run
from runs.store import backups
from runs.store.appending import append
from tests.runs.running import (
    ALLOW,
    FINAL,
    _every_run_verifies,
    kinds,
    launch,
    make_due,
    slice_of,
    think,
    work,
)
from tests.runs.test_late_answers import at_call

pytestmark = [pytest.mark.database]

__all__ = ["_every_run_verifies"]

Dump = dict[Any, list[str]]


def dumped() -> Dump:
    """What a backup of this moment holds of the database."""
    return {table: list(backups.lines_of(table)) for table in backups.tables()}


def restore(dump: Dump) -> None:
    backups.load(lambda table: dump[table], "Restored from a backup.")


def now(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


# --- seats --------------------------------------------------------------------------------------------------------


def test_a_worker_of_before_a_restore_is_fenced() -> None:
    """The next epoch after the backup's is the one of whoever took the run after the backup."""
    run = launch(FINAL)
    make_due(run.pk)
    dump = dumped()
    lease = store.claim(run.pk, "frozen")
    assert lease is not None
    restore(dump)
    assert now(run).status == "paused"
    assert now(run).epoch != lease.epoch
    assert not store.renew(lease)
    actions.resume(now(run), by=None)
    assert now(run).epoch != lease.epoch


def test_a_deed_of_a_worker_of_before_a_restore_is_not_begun() -> None:
    run = launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW)
    make_due(run.pk)
    dump = dumped()
    with pytest.raises(store.Fenced):
        slice_of(run, only="decision", after=at_call(2, lambda: restore(dump)))
    assert now(run).status == "paused"
    assert kinds(run) == ["pause"]
    assert not run.exchanges.exists()


def test_a_worker_of_before_a_restore_writes_to_no_run_that_has_ended() -> None:
    """What is restored may be another site's: its run of that number has ended, and this one's had a worker."""
    run = work(launch(FINAL))
    restore(dumped())
    with pytest.raises(store.Fenced), transaction.atomic():
        append(run, "note", ())
    assert now(run).status == "succeeded"


def test_after_any_number_of_restores_of_one_backup_no_epoch_comes_again() -> None:
    run = launch(FINAL)
    make_due(run.pk)
    dump = dumped()
    handed_out = [run.epoch]
    for _ in range(30):
        restore(dump)
        handed_out.append(now(run).epoch)
        actions.resume(now(run), by=None)
        handed_out.append(now(run).epoch)
        lease = store.claim(run.pk, "frozen")
        assert lease is not None
        handed_out.append(lease.epoch)
    assert len(set(handed_out)) == len(handed_out)


def test_epochs_have_room_after_any_number_of_restores() -> None:
    """Each of a backup that was made after the one before."""
    run = launch(FINAL)
    for _ in range(30):
        restore(dumped())
        assert 2**20 <= now(run).epoch < 2**30


# --- numbers ------------------------------------------------------------------------------------------------------


def test_a_number_that_was_given_before_a_restore_is_not_given_again() -> None:
    """A worker may still hold the first run of that number, under an epoch that the second one comes to."""
    launch(FINAL)
    dump = dumped()
    before = launch(FINAL)
    restore(dump)
    after = launch(FINAL)
    assert after.pk > before.pk


def test_a_restore_that_is_taken_back_takes_no_number_back() -> None:
    launch(FINAL)
    dump = dumped()
    before = launch(FINAL)
    with pytest.raises(RuntimeError), transaction.atomic():
        restore(dump)
        raise RuntimeError
    assert now(before).status == "queued"
    assert launch(FINAL).pk > before.pk
