"""No run waits for a broker: what takes no hint at once is driven on, and what takes it has the run back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agentsite.management.commands import sweeper
from runs import store, tasks
from runs.messenger import Messenger
from runs.models import Run
from tests.runs.running import FINAL, _every_run_verifies, launch, think
from tests.stack import wait_for

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

__all__ = ["_every_run_verifies"]


class Broker:
    """Takes hints, or takes none."""

    def __init__(self, *, takes: bool) -> None:
        self.takes = takes
        self.hints: list[int] = []

    def send(self, run_id: int) -> bool:
        if self.takes:
            self.hints.append(run_id)
        return self.takes


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Broker:
    """One that takes nothing until it is told to; hints are on."""
    broker = Broker(takes=False)
    settings.HINTS = True
    monkeypatch.setattr(tasks, "_messenger", Messenger(broker.send, patience_s=30), raising=False)
    return broker


def long_run() -> Run:
    """Of more than two slices."""
    return launch(*(think("search", n=number) for number in range(18)), FINAL)


def slices(run: Run) -> int:
    """How often it was taken."""
    return Run.objects.get(pk=run.pk).epoch - run.epoch


def test_a_run_that_no_hint_can_be_sent_of_goes_on_where_it_is(broker: Broker) -> None:
    run = long_run()
    tasks.drive_run(run.pk)
    assert Run.objects.get(pk=run.pk).status == "succeeded"
    assert slices(run) > 2


def test_where_hints_are_taken_a_run_gives_its_worker_to_others_after_a_slice(broker: Broker) -> None:
    run = long_run()
    broker.takes = True
    tasks.drive_run(run.pk)
    assert (Run.objects.get(pk=run.pk).status, slices(run)) == ("queued", 1)
    assert broker.hints == [run.pk]


def test_two_that_are_told_of_one_run_do_not_both_have_it(broker: Broker) -> None:
    """As where a hint that was taken for lost arrives after all."""
    run = long_run()
    lease = store.claim(run.pk, "another")
    assert lease is not None
    tasks.drive_run(run.pk)
    assert Run.objects.get(pk=run.pk).head == run.head
    store.let_go(lease)


def test_a_hand_of_the_scheduler_stays_only_while_nobody_waits_for_it(broker: Broker) -> None:
    run, hands = long_run(), sweeper.Hands()
    hands.take([*range(-sweeper.HANDS - 1, 0)])  # no such runs, one more than there are hands
    wait_for(lambda: not hands.taken)
    hands._drive(run.pk)
    assert (Run.objects.get(pk=run.pk).status, slices(run)) == ("queued", 1)
    hands.take([])
    hands._drive(run.pk)
    assert Run.objects.get(pk=run.pk).status == "succeeded"
    hands.let_go()


def test_while_the_broker_is_silent_nobody_waits_for_it_a_second_time() -> None:
    begun, speaks, sent = threading.Event(), threading.Event(), []

    def send(message: int) -> bool:
        begun.set()
        sent.append(message)
        return speaks.wait(60)

    messenger = Messenger(send, patience_s=0.01)
    assert not messenger.taken(1)
    assert begun.wait(60)
    wait_for(lambda: messenger.silent)
    assert not any(messenger.taken(message) for message in range(2, 1000))
    assert sent == [1]
    speaks.set()
    wait_for(lambda: messenger.taken(1000))
    assert set(sent) == {1, 1000}
