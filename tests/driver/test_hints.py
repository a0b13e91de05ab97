"""No run waits for a broker: what takes no hint at once is driven on, and what takes it has the run back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from agentsite.celery import app
from agentsite.hands import Hands
from runs import actions, driver, hints, live, tasks
from runs.driver import Slice
from runs.driver.desk import HANDS
from runs.messenger import Messenger
from runs.models import Interrupt, Run
from runs.store import backups, leases
from tests.families import child_of, family
from tests.launching import FINAL, launch, think
from tests.running import pending, transitions, work
from tests.stack import wait_for

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


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
    """One that takes nothing until it is told to; hints are on, and slices are short."""
    broker = Broker(takes=False)
    settings.HINTS = True
    monkeypatch.setattr(hints, "messenger", Messenger(broker.send, patience_s=30))
    monkeypatch.setattr(driver, "Slice", lambda: Slice(moves=50))
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
    lease = leases.claim(run.pk, "another")
    assert lease is not None
    tasks.drive_run(run.pk)
    assert Run.objects.get(pk=run.pk).head == run.head
    leases.let_go(lease)


def test_a_hand_of_the_worker_stays_only_while_nobody_waits_for_it(broker: Broker) -> None:
    run, hands = long_run(), Hands()
    hands.take([*range(-HANDS - 1, 0)])  # no such runs, one more than there are hands
    wait_for(lambda: not hands.taken)
    hands.drive(run.pk)
    assert (Run.objects.get(pk=run.pk).status, slices(run)) == ("queued", 1)
    hands.take([])
    hands.drive(run.pk)
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


# --- what a person does is told ----------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, settings: Any) -> tuple[list[int], list[int]]:
    """Of which runs a worker is told, and of which the viewers."""
    settings.HINTS = True
    sent: list[int] = []
    rings: list[int] = []
    monkeypatch.setattr(app, "send_task", lambda name, args, **_: sent.append(args[0]))
    monkeypatch.setattr(
        hints.messenger, "post", lambda *run_ids: [*map(hints.send, run_ids)]
    )  # without a thread
    monkeypatch.setattr(live, "ring", lambda run_id, seq: rings.append(run_id))
    return sent, rings


def asking() -> Run:
    """A run that waits for leave to send, after a step."""
    return work(launch(think("search", q="a"), think("send", to="bob"), FINAL))


def restored() -> Run:
    """A run that a restore has paused."""
    run = asking()
    backups.pause_unfinished("Restored from a backup.")
    return run


def paused() -> Run:
    """A run that a person has paused."""
    return actions.pause(asking(), by=None)


DEEDS: dict[str, tuple[Callable[[], Run], Callable[[Run], Any]]] = {
    "decide": (
        asking,
        lambda run: actions.decide(pending(run).pk, verdict="approve", by=None, channel="web"),
    ),
    "pause": (asking, lambda run: actions.pause(run, by=None)),
    "resume": (paused, lambda run: actions.resume(run, by=None)),
    "abort": (asking, lambda run: actions.abort(run, by=None)),
    "rewind": (asking, lambda run: actions.rewind(run, to=transitions(run)[0], by=None)),
    "resume restored": (restored, lambda run: actions.resume_restored([run.pk], by=None)),
    "pin": (asking, lambda run: actions.pin(run, path=f"st:{transitions(run, 'executed')[0]}", by=None)),
    "compact": (asking, lambda run: actions.compact_now(run, by=None)),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_workers_and_viewers_are_told_of_what_a_person_does(
    deed: str, told: tuple[list[int], list[int]]
) -> None:
    begin, do = DEEDS[deed]
    run = begin()
    hints, rings = told
    hints.clear()
    rings.clear()
    do(run)
    assert (hints, rings) == ([run.pk], [run.pk])


def test_a_launch_a_fork_and_the_end_of_a_halt_are_told_to_workers(told: tuple[list[int], list[int]]) -> None:
    hints, rings = told
    run = launch(FINAL)
    assert hints == [run.pk]
    waits = asking()
    copy = actions.fork(waits, at=transitions(waits)[0], by=None)
    assert hints == [run.pk, waits.pk, copy.pk]
    hints.clear()
    rings.clear()
    actions.halt_site(by=None, reason="")
    assert (hints, rings) == ([], [run.pk, waits.pk, copy.pk])
    rings.clear()
    assert actions.unhalt_site(by=None) == 2
    assert (hints, sorted(rings)) == ([run.pk, copy.pk], [run.pk, waits.pk, copy.pk])


def test_of_a_run_that_the_caller_drives_no_worker_is_told(told: tuple[list[int], list[int]]) -> None:
    hints, _ = told
    waits = asking()
    hints.clear()
    actions.fork(waits, at=transitions(waits)[0], by=None, driven_by="the caller")
    assert hints == []


def test_the_end_of_a_child_by_hand_is_told_to_its_parent(told: tuple[list[int], list[int]]) -> None:
    run = work(family(think("send", to="bob")))
    child = child_of(run)
    hints, rings = told
    hints.clear()
    rings.clear()
    actions.abort(child, by=None)
    assert (hints, rings) == ([child.pk, run.pk], [child.pk, run.pk])


def test_what_a_top_up_lets_go_on_elsewhere_is_told_too(told: tuple[list[int], list[int]]) -> None:
    run = work(launch(think("search", q="a"), FINAL, limits={"cost_usd": 0.0005}))
    copy = work(actions.fork(run, at=transitions(run)[0], by=None, settings={"limits": None}))
    assert [pending(one).kind for one in (run, copy)] == ["limit", "limit"]
    hints, rings = told
    hints.clear()
    rings.clear()
    actions.decide(pending(run).pk, verdict="top_up", args={"cost_usd": 1.0}, by=None, channel="web")
    assert (hints, rings) == ([run.pk, copy.pk], [run.pk, copy.pk])


def test_who_decides_too_late_makes_what_the_deadline_decided_known(
    told: tuple[list[int], list[int]],
) -> None:
    rule = {"when": {"tool": "send"}, "do": "ask", "deadline_s": 3600}
    run = work(launch(think("send", to="bob"), FINAL, rules=[rule]))
    question = pending(run)
    Interrupt.objects.filter(pk=question.pk).update(deadline=Now() - timedelta(seconds=1))
    hints, rings = told
    hints.clear()
    rings.clear()
    with pytest.raises(actions.Conflict):
        actions.decide(question.pk, verdict="approve", by=None, channel="web")
    assert (hints, rings) == ([run.pk], [run.pk])
