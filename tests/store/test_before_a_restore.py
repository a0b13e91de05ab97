"""What was handed out before a restore, and may still be in somebody's hands: seats, numbers of runs, keys of calls."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from runs import actions
from runs.driver import Slice
from runs.engine.effects import ToolReturned
from runs.models import Run
from runs.store import backups, errors, leases
from runs.store.appending import append
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import decide, kinds, make_due, transitions, work
from tests.workers import OTHER, at_call, die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

Dump = dict[Any, list[str]]


def dumped() -> Dump:
    """What a backup of this moment holds of the database."""
    return {table: list(backups.lines_of(table)) for table in backups.tables()}


def restore(dump: Dump) -> None:
    backups.load(lambda table: dump[table], "Restored from a backup.")


def now(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def paused_and_resumed(run: Run) -> Run:
    """The two rows that a restore leads to as well, so that the rows after them have the same numbers."""
    actions.pause(now(run), by=None)
    return actions.resume(now(run), by=None)


def numbers_begin_again() -> None:
    """As where a backup is restored into a new database."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'runs_run'")
            return
        cursor.execute("SELECT setval(pg_get_serial_sequence('runs_run', 'id'), MAX(id)) FROM runs_run")


# --- seats --------------------------------------------------------------------------------------------------------


def test_a_worker_of_before_a_restore_is_fenced() -> None:
    """The next epoch after the backup's is the one of whoever took the run after the backup."""
    run = launch(FINAL)
    make_due(run.pk)
    dump = dumped()
    lease = leases.claim(run.pk, "frozen")
    assert lease is not None
    restore(dump)
    assert now(run).status == "paused"
    assert now(run).epoch != lease.epoch
    assert not leases.renew(lease)
    actions.resume(now(run), by=None)
    assert now(run).epoch != lease.epoch


def test_a_deed_of_a_worker_of_before_a_restore_is_not_begun() -> None:
    run = launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW)
    make_due(run.pk)
    dump = dumped()
    with pytest.raises(errors.Fenced):
        slice_of(run, only="decision", after=at_call(2, lambda: restore(dump)))
    assert now(run).status == "paused"
    assert kinds(run) == ["pause"]
    assert not run.exchanges.exists()


def test_a_worker_of_before_a_restore_writes_to_no_run_that_has_ended() -> None:
    """What is restored may be another site's: its run of that number has ended, and this one's had a worker."""
    run = work(launch(FINAL))
    restore(dumped())
    with pytest.raises(errors.Fenced), transaction.atomic():
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
        lease = leases.claim(run.pk, "frozen")
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


# --- keys of calls ------------------------------------------------------------------------------------------------


def test_no_key_of_a_call_is_given_to_another_one_after_a_restore() -> None:
    """The far side would take the new call for the old one, and do nothing."""
    launch(FINAL)
    dump = dumped()
    first = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    before = slice_of(first).keys
    restore(dump)
    numbers_begin_again()
    second = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    assert second.pk == first.pk
    after = slice_of(second).keys
    assert (len(before), len(after)) == (1, 1)
    assert before != after


def waits_for_a_yes() -> tuple[Run, Dump]:
    """A run that asks whether it may send, and a backup of it; then it has as many rows as it has after a restore."""
    run = work(launch(think("send", to="bob"), FINAL))
    dump = dumped()
    paused_and_resumed(run)
    return run, dump


def restored(run: Run, dump: Dump) -> Run:
    restore(dump)
    return actions.resume(now(run), by=None)


def test_the_same_call_of_the_same_run_has_the_same_key_after_a_restore() -> None:
    """The rows of the restore, and whoever pauses it in one of its two lives, do not move it."""
    run = work(launch(think("send", to="bob"), FINAL))
    dump = dumped()
    decide(run, "approve")
    before = slice_of(run).keys
    run = paused_and_resumed(restored(run, dump))
    decide(run, "approve")
    assert slice_of(run).keys == before
    assert len(before) == 1 and len(before[0]) <= 64


def test_calls_that_a_run_made_after_the_backup_have_their_keys_again() -> None:
    """It moved while the backup was made, and went on: what it sends again, the far side can tell."""
    run = launch(
        think("send", to="bob"), think("send", to="bob"), think("send", to="eve"), FINAL, rules=ALLOW
    )
    make_due(run.pk)
    dump = dumped()
    before = slice_of(run).keys
    run = paused_and_resumed(restored(run, dump))
    after = slice_of(run).keys
    while run.status == "waiting":
        decide(run, "approve")
        after += slice_of(run).keys
    assert after == before
    assert len(set(after)) == 3


def test_the_same_call_after_a_rollback_has_another_key() -> None:
    """It is wanted once more: a far side that knows the first one must not take it for that."""
    run = launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW)
    paused_and_resumed(run)
    first = slice_of(run, Slice(moves=9)).keys
    actions.pause(now(run), by=None)
    actions.rewind(now(run), to=transitions(run)[0], by=None)
    actions.resume(now(run), by=None)
    again = slice_of(run).keys
    assert (len(first), len(again)) == (1, 1)
    assert again != first


def test_another_call_at_the_same_row_has_another_key_after_a_restore() -> None:
    run, dump = waits_for_a_yes()
    decide(run, "approve")
    before = slice_of(run).keys
    seq = run.exchanges.get(name="send").seq
    run = restored(run, dump)
    decide(run, "edit", args={"to": "carol"})
    after = slice_of(run).keys
    assert run.exchanges.get(name="send").seq == seq
    assert (len(before), len(after)) == (1, 1)
    assert before != after


def test_a_call_that_was_begun_before_the_backup_keeps_its_key() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    key = run.exchanges.get(name="send").key
    run = restored(run, dumped())
    assert run.exchanges.get(name="send").key == key


def test_a_tools_answer_of_before_a_restore_goes_to_no_other_call() -> None:
    run, dump = waits_for_a_yes()
    decide(run, "approve")
    late = die_in(run, before=kill, only="send")
    run = restored(run, dump)
    decide(run, "edit", args={"to": "carol"})
    die_in(run, before=kill, only="send")
    assert late.at.asked is not None and late.at.asked.seq == run.exchanges.get(name="send").seq
    late.keep(late.at.asked, ToolReturned(value="sent to bob"))
    assert run.exchanges.get(name="send").answer_json is None


def test_a_models_answer_of_before_a_restore_goes_to_no_other_question() -> None:
    """It is paid all the same."""
    run = launch("no JSON", FINAL)
    dump = dumped()
    paused_and_resumed(run)
    late = die_in(run, before=at_call(2, kill))
    run = restored(run, dump)
    die_in(run, before=at_call(2, kill))
    seq = late.at.snapshot.head
    assert run.exchanges.filter(seq=seq, status="asked").exists()
    paid = now(run).cost_usd
    late.keep(late.at.asked, OTHER)
    assert run.exchanges.get(seq=seq).answer_json is None
    assert now(run).cost_usd == pytest.approx(paid + 0.005)
