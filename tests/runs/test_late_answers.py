"""Two workers at one ask: the first was taken for lost, and its answer comes all the same, early or late.

The rows follow from one of the two answers, and that one stands in the exchange; what either cost is counted once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from runs import actions, store
from runs.driver import journey as journeys
from runs.driver import ledger as ledgers
from runs.driver.ports import NoSuchModel
from runs.engine.effects import ModelReplied, Usage
from runs.models import Run
from runs.store import copying
from tests.runs.running import (
    FINAL,
    MeddledJourney,
    WorkerKilled,
    _every_run_verifies,
    die_in,
    in_threads,
    launch,
    lose_worker,
    make_due,
    slice_of,
    think,
    work,
)

pytestmark = [pytest.mark.database]

__all__ = ["_every_run_verifies"]

DEAR = Usage(input_tokens=500, output_tokens=50, cost_usd=0.005)
OTHER = ModelReplied(text='{"thought": "FINAL ANSWER: 41", "action": null}', usage=DEAR)
"""What the model said to the worker that was taken for lost: something else, and dearer."""


def at_call(number: int, deed: Callable[[], None]) -> Callable[[], None]:
    """`deed` in the call of that number."""
    calls: list[int] = []

    def meddle() -> None:
        calls.append(1)
        if len(calls) == number:
            deed()

    return meddle


def frozen_in_the_second_call() -> tuple[Run, MeddledJourney]:
    """A run whose worker sleeps in a model call that a row asks for, beyond its lease."""
    run = launch("no JSON", FINAL)

    def asleep() -> None:
        raise WorkerKilled

    journey = die_in(run, worker="frozen", before=at_call(2, asleep))
    assert run.exchanges.get(seq=2).answer_json is None
    return run, journey


def wake(journey: MeddledJourney) -> None:
    """The first worker's answer is there; its seat is not."""
    journey.ledger.keep(journey.ledger.asked, OTHER)


def fits(run: Run, cost_usd: float) -> None:
    """Every row follows from what its exchange says; all that was paid is counted; so it is in copies."""
    assert run.cost_usd == pytest.approx(cost_usd)
    made, difference = actions.replay(run, by=None)
    assert difference is None
    assert made.answer == run.answer


def test_an_answer_that_comes_while_another_worker_asks_again_is_paid_and_not_used() -> None:
    run, journey = frozen_in_the_second_call()
    slice_of(run, after=lambda: wake(journey))
    assert run.answer == "42"
    assert run.exchanges.get(seq=2).cost_usd == 0.001
    fits(run, 0.002 + 0.005)
    assert run.model_calls == 3


def test_an_answer_that_comes_after_another_workers_is_paid_too() -> None:
    run, journey = frozen_in_the_second_call()
    slice_of(run)
    wake(journey)
    run.refresh_from_db()
    assert (run.answer, run.model_calls) == ("42", 3)
    fits(run, 0.002 + 0.005)


def test_an_answer_that_comes_first_is_the_one_that_is_used() -> None:
    run, journey = frozen_in_the_second_call()
    wake(journey)
    assert slice_of(run).calls == []
    assert run.answer == "41"
    fits(run, 0.001 + 0.005)
    assert run.model_calls == 2


def test_an_answer_that_comes_while_the_run_is_refused_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    run, journey = frozen_in_the_second_call()
    load = store.load

    def gone(_: Run) -> Any:
        raise NoSuchModel("gone")

    def loaded(*given: Any) -> Any:
        found = load(*given)
        wake(journey)
        return found

    monkeypatch.setattr(store, "load", loaded)
    monkeypatch.setattr(journeys, "ports_of", gone)
    work(run)
    assert run.exit_reason == "model_error"
    assert run.cost_usd == pytest.approx(0.001 + 0.005)


@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_whose_end_was_not_heard_of_is_counted_once(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database wrote the row, and the connection broke before it could say so."""
    run = launch("no JSON", FINAL)
    commit = store.commit

    def unheard(batch: store.Batch) -> str:
        commit(batch)
        raise OperationalError("the connection was closed")

    def broken() -> None:
        monkeypatch.setattr(ledgers.store, "commit", unheard)

    with pytest.raises(OperationalError):
        slice_of(run, after=at_call(number, broken))
    monkeypatch.undo()
    lose_worker(run)
    make_due(run.pk)
    work(run)
    assert (run.answer, run.model_calls) == ("42", 2)
    fits(run, 0.002)


@pytest.mark.parametrize("hours", [-1, 1])
def test_how_long_a_move_took_a_clock_that_jumps_does_not_say(
    hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launch(think("search", q="tides"), FINAL, limits={"active_seconds": 60})
    right = timezone.now

    def jump() -> None:
        monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=hours))

    slice_of(run, after=at_call(1, jump))
    monkeypatch.undo()
    took = list(run.steps.values_list("ms", flat=True))
    assert min(took) >= 0 and sum(took) < 60_000
    assert sum(took) / 1000 <= run.active_seconds + 0.01
    assert actions.fork(run, at=run.steps.filter(kind="transition")[0].seq, by=None).active_seconds >= 0


@pytest.mark.skipif(
    "connection.vendor != 'postgresql'", reason="SQLite has one writer: nobody writes meanwhile"
)
def test_no_answer_comes_between_the_sums_of_a_replay_and_its_exchanges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, journey = frozen_in_the_second_call()
    totals_at = copying.totals_at

    def summed(source: Run, at: int) -> Any:
        totals = totals_at(source, at)
        assert in_threads(1, lambda _: has_to_wait(journey)) == [True]
        return totals

    monkeypatch.setattr(copying, "totals_at", summed)
    made, difference = actions.replay(run, by=None)
    assert difference is None
    assert made.cost_usd == 0.001


def has_to_wait(journey: MeddledJourney) -> bool:
    """Whether the first worker's answer can't be written now."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1ms'")
    try:
        wake(journey)
    except OperationalError:
        return True
    return False
