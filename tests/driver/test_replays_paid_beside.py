"""Replays near a limit, of runs that paid what no row tells, or took back what a row tells."""

from __future__ import annotations

from typing import Any

import pytest

from runs import driver
from runs.driver import Slice
from runs.engine.replaying import Record, Replay
from runs.models import Run
from runs.store import leases
from tests.launching import FINAL, launch, script, think
from tests.priced import PRICE, THINKING, PricedJourney, lost_in_a_call, seat, travel
from tests.replaying import check_replay
from tests.running import decide, pending, work
from tests.workers import WorkerKilled, at_call, die_in, slice_of, wake

pytestmark = pytest.mark.usefixtures("every_run_verifies")


# --- paid beside the rows -------------------------------------------------------------------------------------------


def paid_beside(**settings: Any) -> Run:
    """A run at its limit, which a late answer has brought it to: $0.005 and 550 tokens that are in no row."""
    run = launch("no JSON", think("search", q="a"), think("search", q="b"), FINAL, max_steps=9, **settings)

    def asleep() -> None:
        raise WorkerKilled

    journey = die_in(run, worker="frozen", before=at_call(2, asleep))
    slice_of(run, limit=Slice(moves=2))
    wake(journey)
    return work(run)


@pytest.mark.parametrize(("name", "limit"), [("cost_usd", 0.006), ("tokens", 660)])
def test_a_replay_knows_what_was_paid_beside_the_rows(name: str, limit: float) -> None:
    run = paid_beside(limits={name: limit})
    assert pending(run).limit == name
    check_replay(run)
    decide(run, "top_up", args={name: limit})
    work(run)
    assert run.status == "succeeded"
    check_replay(run)


def test_what_was_paid_beside_the_rows_counts_on_to_the_next_question() -> None:
    run = paid_beside(limits={"tokens": 660})
    for _ in range(2):
        decide(run, "top_up", args={"tokens": 1 + run.input_tokens + run.output_tokens - 660})
        work(run)
        check_replay(run)
    assert run.steps.filter(kind="limit").count() == 2


def test_a_question_that_an_answer_leads_to_tells_what_was_used_with_that_answer() -> None:
    run = work(launch("no JSON", FINAL, limits={"tokens": 120}))
    assert pending(run).seq == 2
    check_replay(run)


def test_the_same_of_a_limit_that_a_family_shares() -> None:
    played = script(
        think("agent.kid", goal="Look"),
        FINAL,
        subgraphs={"kid": {"replies": {"decision": ["no JSON", FINAL]}}},
    )
    subgraphs = {"kid": {"machine": "ruled", "settings": {}}}
    run = work(launch(played=played, subgraphs=subgraphs, limits={"tokens": 240}))
    kid = Run.objects.get(parent=run)
    assert pending(kid).seq == 2
    check_replay(kid)


def test_a_replay_knows_that_what_was_paid_beside_the_rows_has_stopped_the_run() -> None:
    run = paid_beside(limits={"cost_usd": 0.006}, on_limit="stop")
    assert run.exit_reason == "cost_limit"
    check_replay(run)


def made_again(run: Run) -> Replay:
    """The run's rows made again with the price that its model had."""
    record = driver.record_of(run)
    known = {"price": PRICE, "context_tokens": PricedJourney.limit_tokens}
    return driver.made_again(record.model_copy(update=known))


def saying(record: Record, used: float) -> Record:
    """Return the record with another figure in its questions about limits."""
    rows = [
        row.model_copy(update={"effect": row.effect | {"figures": row.effect["figures"] | {"used": used}}})
        if row.effect and row.effect.get("figures")
        else row
        for row in record.rows
    ]
    return record.model_copy(update={"rows": tuple(rows)})


def test_a_question_that_tells_less_than_the_rows_is_a_difference_where_nothing_was_guessed() -> None:
    run = work(launch(*THINKING[:3], FINAL, limits={"tokens": 240}))
    assert pending(run).title == "Limit reached: tokens 240 of 240"
    record = saying(driver.record_of(run), used=120)
    difference = driver.made_again(record).difference
    assert difference is not None
    assert difference.seq == pending(run).seq


# --- guesses that were taken back -----------------------------------------------------------------------------------


def taken_back(tokens: int, *replies: Any) -> Run:
    """A run whose first call was lost and counted as its worst case, until its answer came after all."""
    run = launch(*replies, FINAL, limits={"tokens": tokens}, max_steps=30)
    late = lost_in_a_call(run)
    with seat(run, "next") as hold:
        leases.let_go(hold.lease)
    run.refresh_from_db()
    guessed = run.output_tokens
    assert guessed > 400
    late.keep(late.at.asked, late.model.late)
    travel(run)
    assert run.input_tokens + run.output_tokens + guessed > tokens, "with the guess it had come to its limit"
    return run


def test_a_replay_knows_that_a_guess_was_taken_back() -> None:
    run = taken_back(1_490, *THINKING[:5])
    assert run.status == "succeeded"
    assert made_again(run).difference is None


def test_a_replay_knows_what_was_left_once_a_guess_was_taken_back() -> None:
    run = taken_back(1_490, *THINKING[:7])
    assert "may use more than the" in pending(run).why
    again = made_again(run)
    assert again.difference is None
    assert again.snapshot.totals.used("tokens") == run.input_tokens + run.output_tokens


def test_a_guess_that_stands_still_counts_in_a_replay() -> None:
    run = launch(*THINKING[:7], FINAL, limits={"tokens": 1_490}, max_steps=30)
    lost_in_a_call(run)
    travel(run)
    assert pending(run).kind == "limit"
    again = made_again(run)
    assert again.difference is None
    assert again.snapshot.totals.used("tokens") == run.input_tokens + run.output_tokens
