"""A machine that sleeps and a clock that jumps end leases early; no run is taken from a worker that lives."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from runs import tasks
from runs.driver import holds
from runs.models import LOOKS, Run
from runs.store import jumps, leases
from tests.launching import FINAL, launch
from tests.running import no_renewer, work
from tests.stack import wait_for

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def held_run() -> tuple[Run, leases.Lease]:
    run = launch(FINAL)
    lease = leases.claim(run.pk, "alpha")
    assert lease is not None
    return run, lease


def sleep(run: Run, for_: timedelta = timedelta(seconds=45)) -> None:
    """The machine wakes up: its clock says that the lease ended long ago."""
    Run.objects.filter(pk=run.pk).update(lease_until=Now() - for_)


def test_nobody_takes_a_run_whose_lease_ended_while_the_machine_slept() -> None:
    run, lease = held_run()
    sleep(run)
    tasks.sweep()
    assert leases.claim(run.pk, "beta") is None
    assert leases.renew(lease), "its worker has woken up too"
    for _ in range(LOOKS):
        tasks.sweep()
    assert leases.claim(run.pk, "beta") is None
    assert Run.objects.get(pk=run.pk).worker == "alpha"
    assert not run.steps.filter(kind="recovered").exists()
    leases.let_go(lease)
    work(run)


def test_a_worker_that_gives_no_sign_is_lost_after_a_few_looks() -> None:
    run, lease = held_run()
    sleep(run)
    taken = []
    for _ in range(LOOKS):
        taken.append(leases.claim(run.pk, "beta"))
        tasks.sweep()
    assert taken == [None] * LOOKS
    found = leases.claim(run.pk, "beta")
    assert found is not None and found.epoch == lease.epoch + 1
    assert run.steps.filter(kind="recovered").count() == 1
    leases.let_go(found)
    work(run)


def test_looks_before_a_renewal_do_not_count_later() -> None:
    run, lease = held_run()
    sleep(run)
    for _ in range(LOOKS - 1):
        tasks.sweep()
    assert leases.renew(lease)
    sleep(run)
    tasks.sweep()
    assert leases.claim(run.pk, "beta") is None
    leases.renew(lease)
    leases.let_go(lease)
    work(run)


def test_a_lost_run_does_not_wait_for_an_hour_because_the_clock_was_set_back() -> None:
    run, _ = held_run()
    sleep(run, for_=-timedelta(hours=1))
    for _ in range(2 * LOOKS):
        tasks.sweep()
    found = leases.claim(run.pk, "beta")
    assert found is not None
    leases.let_go(found)
    work(run)


def test_a_queued_run_does_not_wait_for_an_hour_because_the_clock_was_set_back() -> None:
    run = launch(FINAL)
    Run.objects.filter(pk=run.pk).update(due_at=Now() + timedelta(hours=1))
    tasks.sweep()
    assert work(run).status == "succeeded"


def jumped(seconds: float) -> jumps.Clocks:
    """The clocks as a sweep saw them before the database's jumped by so much."""
    clocks = jumps.Clocks()
    clocks.follow()
    assert clocks.ahead is not None
    clocks.ahead -= seconds
    return clocks


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_no_run_is_taken_from_a_worker_when_the_databases_clock_jumps(seconds: float) -> None:
    """Its own has not: it renews when it would anyway, later than the sweep takes to look a few times."""
    run, lease = held_run()
    sleep(run, for_=timedelta(seconds=seconds))
    clocks = jumped(seconds)
    for _ in range(LOOKS):
        clocks.follow()
        leases.look_for_lost()
    assert leases.claim(run.pk, "beta") is None
    assert Run.objects.filter(
        pk=run.pk, lease_until__lt=Now() + timedelta(seconds=leases.LEASE_S + 1)
    ).exists()
    leases.let_go(lease)
    work(run)


def test_a_queued_run_does_not_wait_longer_because_the_clock_was_set_back_by_minutes() -> None:
    run = launch(FINAL)
    Run.objects.filter(pk=run.pk).update(
        due_at=Now() + timedelta(minutes=10), hinted_at=Now() + timedelta(minutes=10)
    )
    jumped(-600.0).follow()
    assert Run.objects.due().filter(pk=run.pk).exists()
    assert work(run).status == "succeeded"


def test_a_run_that_waits_for_its_next_attempt_waits_on_where_no_clock_jumps() -> None:
    run = launch(FINAL)
    Run.objects.filter(pk=run.pk).update(due_at=Now() + timedelta(minutes=10))
    for seconds in (0.0, 3600.0):
        jumped(seconds).follow()
    assert not Run.objects.due().filter(pk=run.pk).exists()
    Run.objects.filter(pk=run.pk).update(due_at=Now())
    work(run)


def test_a_run_that_was_hinted_at_before_the_clock_was_set_back_is_hinted_at_again() -> None:
    run = launch(FINAL)
    Run.objects.filter(pk=run.pk).update(hinted_at=Now() + timedelta(hours=1))
    tasks.sweep()
    assert Run.objects.filter(pk=run.pk, hinted_at__lte=Now()).exists()
    work(run)


def test_a_worker_renews_at_once_when_its_clock_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own beat may be seconds away, and does not count the time that the machine slept."""
    run, lease = held_run()
    sleep(run)
    monkeypatch.setattr(holds, "GLANCE_S", 0.01)
    ahead = iter([0.0, *[45.0] * 1000])
    monkeypatch.setattr(holds, "clock_ahead", lambda: next(ahead, 45.0))
    monkeypatch.setattr(leases, "RENEW_S", 3600.0)
    wait_for(no_renewer)  # one that began earlier knows the clock as it was
    with holds.held(lease):
        wait_for(Run.objects.filter(pk=run.pk, lease_until__gt=Now()).exists)
    leases.let_go(lease)
    work(run)
