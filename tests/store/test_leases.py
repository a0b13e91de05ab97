"""Who may write to a run: claims, leases, the epoch, and what a fenced worker leaves behind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models.functions import Now

from runs import driver, tasks
from runs.driver import Slice
from runs.engine.effects import ModelReplied, Usage
from runs.models import LOOKS, Run
from runs.store import decisions, errors, leases, log
from runs.store.leases import LEASE_S, claim, give_back, let_go, look_for_lost, postpone, renew
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import in_threads, kinds, lose_worker, make_due, work
from tests.stack import wait_for
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def test_of_two_claims_one_gets_the_run() -> None:
    run = launch(FINAL)
    first, second = claim(run.pk, "alpha"), claim(run.pk, "beta")
    assert first is not None
    assert second is None
    run.refresh_from_db()
    assert (run.status, run.worker, run.epoch) == ("running", "alpha", 1)
    assert kinds(run) == []


def test_claims_at_the_same_moment_give_one_lease() -> None:
    run = launch(FINAL)
    leases = in_threads(8, lambda number: claim(run.pk, f"worker-{number}"))
    assert sum(lease is not None for lease in leases) == 1
    run.refresh_from_db()
    assert run.epoch == 1


def test_an_expired_lease_is_taken_over_with_one_recovered_row() -> None:
    run = launch(FINAL)
    lost = claim(run.pk, "alpha")
    assert claim(run.pk, "beta") is None
    lose_worker(run)
    taken = claim(run.pk, "beta")
    assert lost is not None
    assert taken is not None
    assert taken.epoch == lost.epoch + 1
    assert kinds(run) == ["recovered"]
    assert claim(run.pk, "gamma") is None
    assert kinds(run) == ["recovered"]


def test_a_run_is_suspect_for_its_own_lost_worker_and_for_no_other_runs() -> None:
    """The other one's last step, about its lost worker, has the number of this one's."""
    lost, moved = launch(think("search", q="a"), FINAL), launch(FINAL)
    claim(lost.pk, "alpha")
    for worker in ("beta", "gamma"):
        lose_worker(lost)
        taken = claim(lost.pk, worker)
    assert taken is not None
    let_go(taken)
    slice_of(moved, Slice(moves=1))
    lost.refresh_from_db()
    assert (moved.head, kinds(lost)) == (lost.head, ["recovered"] * lost.head)
    with pytest.raises(leases.Suspect):
        claim(lost.pk, "delta", "refused")
    assert claim(moved.pk, "delta", "refused") is not None


def silence(run: Run, **lease: float) -> None:
    """The lease ends that long from now; what the looks of the sweep have counted stays."""
    Run.objects.filter(pk=run.pk).update(lease_until=Now() + timedelta(**lease))


def test_a_silent_worker_is_lost_after_three_looks_and_not_before() -> None:
    run = launch(FINAL)
    claim(run.pk, "alpha")
    silence(run, seconds=-1)
    for _ in range(LOOKS):
        assert claim(run.pk, "beta") is None
        look_for_lost()
    assert claim(run.pk, "beta") is not None


def test_a_worker_that_gives_a_sign_is_looked_for_anew() -> None:
    run = launch(FINAL)
    lease = claim(run.pk, "alpha")
    assert lease is not None
    silence(run, seconds=-1)
    look_for_lost()
    assert renew(lease)
    silence(run, seconds=-1)
    for _ in range(LOOKS - 1):
        look_for_lost()
    assert claim(run.pk, "beta") is None


def test_a_lease_that_lasts_longer_than_any_is_looked_for_too() -> None:
    """The clock was set back after the claim."""
    run, other = launch(FINAL), launch(FINAL)
    claim(run.pk, "alpha")
    claim(other.pk, "alpha")
    silence(run, hours=1)
    silence(other, seconds=LEASE_S)
    for _ in range(LOOKS):
        look_for_lost()
    wait_for(lambda: claim(run.pk, "beta"))
    assert claim(other.pk, "beta") is None


def test_a_worker_gives_back_the_run_that_it_names_and_no_other() -> None:
    run, other, of_beta = launch(FINAL), launch(FINAL), launch(FINAL)
    leases = [claim(each.pk, "alpha") for each in (run, other)] + [claim(of_beta.pk, "beta")]
    assert all(leases)
    give_back(run.pk, "alpha")
    give_back(of_beta.pk, "alpha")
    assert list(Run.objects.order_by("pk").values_list("worker", flat=True)) == ["", "alpha", "beta"]
    assert claim(run.pk, "gamma") is not None
    assert claim(other.pk, "gamma") is None
    assert claim(of_beta.pk, "gamma") is None


def test_one_look_can_be_for_some_runs_alone() -> None:
    run, other = launch(FINAL), launch(FINAL)
    for each in (run, other):
        claim(each.pk, "alpha")
        silence(each, seconds=-1)
    for _ in range(LOOKS):
        look_for_lost(Run.objects.filter(pk=run.pk))
    assert claim(other.pk, "beta") is None
    assert claim(run.pk, "beta") is not None


def test_a_run_that_is_queued_for_later_than_any_is_due_at_once() -> None:
    """The clock was set back after it was queued."""
    soon, late = launch(FINAL), launch(FINAL)
    Run.objects.filter(pk=soon.pk).update(due_at=Now() + timedelta(minutes=10))
    Run.objects.filter(pk=late.pk).update(due_at=Now() + timedelta(hours=1))
    look_for_lost()
    wait_for(lambda: claim(late.pk, "alpha"))
    assert claim(soon.pk, "alpha") is None


def test_renewing_prolongs_the_lease_and_fails_once_it_is_lost() -> None:
    run = launch(FINAL)
    lease = claim(run.pk, "alpha")
    assert lease is not None
    lose_worker(run)
    assert renew(lease)
    assert claim(run.pk, "beta") is None
    run.refresh_from_db()
    late = Run.objects.filter(pk=run.pk, lease_until__gt=Now() + timedelta(seconds=LEASE_S - 2))
    assert late.exists()
    lose_worker(run)
    assert claim(run.pk, "beta") is not None
    assert not renew(lease)


def test_an_old_lease_is_not_renewed_by_a_worker_of_the_same_name() -> None:
    run = launch(FINAL)
    first = claim(run.pk, "alpha")
    assert first is not None
    let_go(first)
    second = claim(run.pk, "alpha")
    assert second is not None
    assert (renew(first), renew(second)) == (False, True)


def test_letting_go_queues_the_run_again() -> None:
    run = launch(FINAL)
    lease = claim(run.pk, "alpha")
    assert lease is not None
    let_go(lease)
    run.refresh_from_db()
    assert (run.status, run.worker) == ("queued", "")
    assert claim(run.pk, "beta") is not None
    assert kinds(run) == []


def test_letting_go_of_a_lost_seat_does_not_touch_the_next_worker() -> None:
    run = launch(FINAL)
    lost = claim(run.pk, "alpha")
    lose_worker(run)
    taken = claim(run.pk, "beta")
    assert lost is not None
    assert taken is not None
    let_go(lost)
    postpone(lost, 30, ValueError("a fault"))
    run.refresh_from_db()
    assert (run.status, run.worker, run.epoch) == ("running", "beta", taken.epoch)


def test_a_postponed_run_is_not_due_for_a_while() -> None:
    run = launch(FINAL)
    lease = claim(run.pk, "alpha")
    assert lease is not None
    postpone(lease, 30, ValueError("a fault"))
    let_go(lease)
    assert kinds(run) == ["recovered"]
    assert claim(run.pk, "beta") is None
    assert not Run.objects.due().filter(pk=run.pk).exists()
    make_due(run.pk)
    assert claim(run.pk, "beta") is not None


def test_a_run_rests_whatever_keeps_the_row_about_its_fault_from_being_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unwritable(*_: Any) -> None:
        raise KeyError("something that the row needs")

    run = launch(FINAL)
    lease = claim(run.pk, "alpha")
    assert lease is not None
    monkeypatch.setattr(leases, "tell_fault", unwritable)
    postpone(lease, 30, ValueError("a fault"))
    let_go(lease)
    assert kinds(run) == []
    assert not Run.objects.due().filter(pk=run.pk).exists()


def test_a_run_is_not_claimed_before_it_is_due() -> None:
    run = launch(FINAL)
    Run.objects.filter(pk=run.pk).update(due_at=Now() + timedelta(seconds=60))
    assert claim(run.pk, "alpha") is None


@pytest.mark.parametrize("status", ["waiting", "paused"])
def test_a_run_that_waits_is_not_claimed(status: str) -> None:
    run = launch(think("send", to="bob"), FINAL)
    if status == "waiting":
        work(run)
    else:
        decisions.pause(run.pk, "alice")
    run.refresh_from_db()
    assert run.status == status
    assert claim(run.pk, "alpha") is None
    assert tasks.sweep() == 0


def test_a_fenced_worker_writes_nothing_and_its_paid_reply_is_charged() -> None:
    run = launch(think("search", q="tides"), FINAL)

    def taken_over() -> None:
        lose_worker(run)
        assert claim(run.pk, "beta") is not None

    with pytest.raises(errors.Fenced):
        slice_of(run, after=taken_over)
    run.refresh_from_db()
    assert kinds(run) == ["recovered"]
    assert run.worker == "beta"
    assert (run.model_calls, run.input_tokens, run.output_tokens, run.cost_usd) == (1, 100, 20, 0.001)


def test_a_fenced_workers_deed_is_answered_for_the_next_worker() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)

    def taken_over() -> None:
        lose_worker(run)
        assert claim(run.pk, "beta") is not None

    with pytest.raises(errors.Fenced):
        slice_of(run, after=taken_over, only="send")
    exchange = run.exchanges.get(name="send")
    assert (exchange.status, exchange.nth) == ("answered", 1)
    lose_worker(run)
    world = slice_of(run)
    assert "send" not in world.calls
    assert (run.status, run.tool_calls, run.model_calls) == ("succeeded", 1, 2)


def test_a_charge_beside_a_worker_is_not_overwritten_by_it() -> None:
    run = launch(think("search", q="tides"), FINAL)

    def charged() -> None:
        log.charge(run.pk, ModelReplied(text="", usage=Usage(input_tokens=7, output_tokens=3, cost_usd=0.5)))
        log.charge(run.pk, ModelReplied(text="", usage=Usage(), cached=True))

    slice_of(run, after=charged, only="search")
    assert run.status == "succeeded"
    assert (run.model_calls, run.cached_model_calls) == (4, 1)
    assert (run.input_tokens, run.output_tokens) == (207, 43)
    assert run.cost_usd == pytest.approx(0.502)


def test_a_slice_that_is_over_queues_the_run_and_the_next_goes_on() -> None:
    run = launch(*[think("search", q=str(number)) for number in range(4)], FINAL)
    slices = 0
    while not run.finished:
        slice_of(run, Slice(moves=3))
        slices += 1
        assert run.finished or (run.status, run.worker) == ("queued", "")
    assert slices > 3
    assert run.model_calls == 5
    assert run.cost_usd == 0.005


@pytest.mark.parametrize("moves", [1, 2, 3, 4, 5, 6, 7])
def test_a_slice_never_ends_between_the_row_of_a_deed_and_the_deed(moves: int) -> None:
    run = launch(think("send", to="bob"), think("send", to="eve"), FINAL, rules=ALLOW)
    while not run.finished:
        slice_of(run, Slice(moves=moves))
        assert run.status != "waiting"
    assert (run.status, run.tool_calls) == ("succeeded", 2)
    assert not run.interrupts.exists()


def test_a_slice_ends_by_time_where_another_run_waits_for_a_worker() -> None:
    run, other = (launch(*[think("search", q=str(number)) for number in range(3)], FINAL) for _ in range(2))
    slice_of(run, Slice(seconds=0))
    assert run.status == "queued"
    assert 0 < run.head < 5
    slice_of(other, Slice())
    assert other.status == "succeeded"


def test_a_slice_goes_on_for_as_long_as_no_other_run_waits() -> None:
    run = launch(*[think("search", q=str(number)) for number in range(3)], FINAL)
    paused = launch(FINAL)
    decisions.pause(paused.pk, "ann", "")
    slice_of(run, Slice(seconds=0))
    assert run.status == "succeeded"


def test_duplicate_hints_at_the_same_moment_harm_nothing() -> None:
    run = launch(*[think("send", to=str(number)) for number in range(5)], FINAL, rules=ALLOW)
    in_threads(6, lambda _: driver.drive(run.pk))
    work(run)
    assert (run.status, run.model_calls, run.tool_calls) == ("succeeded", 6, 5)
    assert run.epoch >= 1
    assert "recovered" not in kinds(run)


def test_many_workers_share_many_runs() -> None:
    launched = [launch(think("search", q="a"), think("send", to="b"), FINAL, rules=ALLOW) for _ in range(6)]

    def drive_all(number: int) -> None:
        for run in launched[number:] + launched[:number]:
            driver.drive(run.pk)

    in_threads(4, drive_all)
    for run in launched:
        work(run)
        assert (run.status, run.model_calls, run.tool_calls) == ("succeeded", 3, 2)


# --- the sweep ----------------------------------------------------------------------------------------------------


def test_the_sweep_hints_at_what_is_due_lost_or_never_picked_up_and_at_nothing_else() -> None:
    never, lost, paused, later, done, hinted = (launch(FINAL) for _ in range(6))
    claim(lost.pk, "alpha")
    lose_worker(lost)
    parked = work(launch(think("send", to="bob"), FINAL))
    decisions.pause(paused.pk, "alice")
    Run.objects.filter(pk=later.pk).update(due_at=Now() + timedelta(seconds=60))
    work(done)
    Run.objects.filter(pk=hinted.pk).update(hinted_at=Now())
    assert parked.status == "waiting"
    assert tasks.sweep() == 2
    seen = set(Run.objects.filter(hinted_at__isnull=False).values_list("pk", flat=True))
    assert seen == {never.pk, lost.pk, hinted.pk}


def test_the_sweep_does_not_hint_again_at_once_but_after_some_seconds() -> None:
    run = launch(FINAL)
    assert tasks.sweep() == 1
    assert tasks.sweep() == 0
    Run.objects.filter(pk=run.pk).update(hinted_at=Now() - timedelta(seconds=tasks.HINT_AGAIN_S + 1))
    assert tasks.sweep() == 1


def test_the_sweep_hints_at_a_delay_as_soon_as_it_is_over() -> None:
    run = launch({"$error": "transient"}, FINAL)
    tasks.sweep()
    driver.drive(run.pk)
    run.refresh_from_db()
    assert run.status == "queued"
    assert tasks.sweep() == 0
    make_due(run.pk)
    Run.objects.filter(pk=run.pk).update(hinted_at=Now() - timedelta(seconds=3))
    assert tasks.sweep() == 1


def late_question() -> Run:
    """A run whose question has been waiting for too long."""
    rules = [{"when": {"tool": "send"}, "do": "ask", "deadline_s": 60}]
    run = work(launch(think("send", to="bob"), FINAL, rules=rules))
    run.interrupts.update(deadline=Now() - timedelta(seconds=1))
    return run


@pytest.mark.parametrize("fault", [OperationalError("deadlock detected"), ValueError("it can't be read")])
def test_one_question_that_cant_be_decided_does_not_stop_the_sweep(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good, due = late_question(), late_question(), launch(FINAL)
    decide = decisions.decide

    def decided(interrupt_id: Any, said: decisions.Said) -> Any:
        if interrupt_id == bad.interrupts.get().pk:
            raise fault
        return decide(interrupt_id, said)

    monkeypatch.setattr(decisions, "decide", decided)
    assert tasks.sweep() == 2, "of the run that is due and of the one that was decided"
    assert good.interrupts.get().status == "expired"
    assert Run.objects.filter(pk=due.pk, hinted_at__isnull=False).exists()
    monkeypatch.undo()
    tasks.sweep()
    assert bad.interrupts.get().status == "expired"
