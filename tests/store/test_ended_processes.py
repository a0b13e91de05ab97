"""Seats of a process that has ended: they are taken from it at once, and from no other."""

from __future__ import annotations

import pytest

from runs.models import Run
from runs.store import leases
from tests.launching import FINAL, launch

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def test_the_runs_of_a_process_that_has_ended_are_due_at_once_and_those_of_others_are_not(
    settings: pytest.FixtureRequest,
) -> None:
    runs = [launch(FINAL) for _ in range(3)]
    for run, process in zip(runs, ("aa11", "aa11", "aa112"), strict=True):
        settings.PROCESS_NAME = process  # type: ignore[attr-defined]
        assert leases.claim(run.pk, leases.new_worker()) is not None
    assert not Run.objects.due().exists()
    leases.lose_all("aa11")
    assert set(Run.objects.due()) == set(runs[:2])
    lease = leases.claim(runs[0].pk, leases.new_worker())
    assert lease is not None
    assert runs[0].steps.get(kind="recovered")


def test_the_run_of_one_worker_that_has_ended_is_due_at_once() -> None:
    run, other = launch(FINAL), launch(FINAL)
    worker = leases.new_worker()
    assert leases.claim(run.pk, worker) is not None
    assert leases.claim(other.pk, leases.new_worker()) is not None
    leases.lose(worker)
    assert list(Run.objects.due()) == [run]


def test_a_run_that_is_paused_is_not_taken_from_a_worker_that_has_ended() -> None:
    run = launch(FINAL)
    worker = leases.new_worker()
    assert leases.claim(run.pk, worker) is not None
    Run.objects.filter(pk=run.pk).update(status="paused")
    run.refresh_from_db()
    leases.lose(worker)
    assert Run.objects.get(pk=run.pk).lease_until == run.lease_until
