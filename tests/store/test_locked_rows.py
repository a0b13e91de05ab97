"""[PostgreSQL] Rows that somebody holds for long, as the fork of a long run does: all others go on meanwhile."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.db.models.functions import Now

from runs import tasks
from runs.driver import holds
from runs.models import Run
from runs.store import leases
from runs.store.leases import RENEW_S
from tests.launching import FINAL, launch, think
from tests.running import locked, make_due, no_renewer, on_postgresql, work
from tests.stack import LONGEST_S, wait_for

pytestmark = [
    pytest.mark.database,
    on_postgresql("SQLite locks no rows"),
    pytest.mark.usefixtures("every_run_verifies"),
]


def hold_of(run: Run) -> holds.Hold:
    """A worker's hold, whose lease has all but run out."""
    make_due(run.pk)
    lease = leases.claim(run.pk, "alpha")
    assert lease is not None
    Run.objects.filter(pk=run.pk).update(lease_until=Now() + timedelta(seconds=RENEW_S))
    return holds.Hold(lease)


def renewed(*those: holds.Hold) -> list[bool]:
    fresh = Run.objects.filter(lease_until__gt=Now() + timedelta(seconds=2 * RENEW_S))
    return [fresh.filter(pk=hold.lease.run_id).exists() for hold in those]


def test_a_row_that_is_locked_does_not_keep_other_leases_from_being_renewed() -> None:
    runs = [launch(FINAL) for _ in range(5)]
    *stuck, free = [hold_of(run) for run in runs]
    with locked(*runs[:4]):
        began = time.monotonic()
        settled = [holds.renew(hold) for hold in (*stuck, free)]
        assert time.monotonic() - began < RENEW_S, "or the next round would be late"
        assert settled == [False] * 4 + [True]
        assert renewed(*stuck, free) == [False] * 4 + [True]
    assert not any(hold.lost for hold in stuck), "nobody has taken it"
    assert all(holds.renew(hold) for hold in stuck)
    assert renewed(*stuck) == [True] * 4


def test_a_lease_whose_row_was_locked_is_renewed_at_the_next_glance() -> None:
    """And not in the next round only, which may be too late."""
    run = launch(FINAL)
    lease = hold_of(run).lease
    refused = threading.Event()
    renew = leases.renew

    def noted(lease: leases.Lease) -> bool:
        try:
            return renew(lease)
        except OperationalError:
            refused.set()
            raise

    with pytest.MonkeyPatch.context() as patch, ExitStack() as held:
        patch.setattr(leases, "renew", noted)
        with locked(run):
            hold = held.enter_context(holds.held(lease))
            holds.renew_now()
            assert refused.wait(LONGEST_S)
            assert renewed(hold) == [False]
        wait_for(lambda: renewed(hold) == [True], RENEW_S / 2)
    wait_for(no_renewer)


def test_a_row_that_is_locked_does_not_keep_other_runs_from_being_given_back() -> None:
    runs = [launch(FINAL) for _ in range(3)]
    stuck, *free = [hold_of(run) for run in runs]
    with locked(runs[0]), ExitStack() as calls:
        for hold in (stuck, *free):
            calls.enter_context(hold.cuttable())
        began = time.monotonic()
        assert [holds.leave(hold) for hold in (stuck, *free)] == [False, True, True]
        assert time.monotonic() - began < RENEW_S


def test_a_question_whose_run_is_locked_is_decided_in_a_later_sweep_and_the_others_in_this_one() -> None:
    rules = [{"when": {"tool": "send"}, "do": "ask", "deadline_s": 60}]
    stuck, free = (work(launch(think("send", to="bob"), FINAL, rules=rules)) for _ in range(2))
    for run in (stuck, free):
        run.interrupts.update(deadline=Now() - timedelta(seconds=1))
    with locked(stuck):
        began = time.monotonic()
        tasks.sweep()
        assert time.monotonic() - began < RENEW_S
        assert [run.interrupts.get().status for run in (stuck, free)] == ["pending", "expired"]
    tasks.sweep()
    assert stuck.interrupts.get().status == "expired"
