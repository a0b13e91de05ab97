"""What is written in one transaction: the moves between two deeds, and what is left of them where a move fails."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import failpoints
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import kinds, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def commits(*replies: Any, **settings: Any) -> tuple[int, list[str]]:
    """How many batches a run writes, and the kinds of its steps."""
    run = launch(*replies, **settings)
    with CaptureQueriesContext(connection) as seen:
        work(run)
    assert run.status == "succeeded"
    return sum("UPDATE runs_run SET head =" in query["sql"] for query in seen.captured_queries), kinds(run)


def test_the_moves_between_two_reads_are_one_transaction() -> None:
    """Before each call but the first, and at the end."""
    batches, steps = commits(*[think("search", q=str(number)) for number in range(3)], FINAL)
    assert steps.count("ask") == 4 + 3
    assert batches == 4 + 3
    assert steps.count("transition") == 20


def test_the_intent_of_a_deed_is_written_with_the_moves_before_it() -> None:
    batches, steps = commits(*[think("send", to=str(number)) for number in range(3)], FINAL, rules=ALLOW)
    assert steps.count("ask") == 4 + 3
    assert batches == 4 + 3


@pytest.mark.parametrize("nth", range(1, 10))
def test_a_fault_between_two_moves_loses_no_move_and_no_paid_call(
    nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launch(think("search", q="tides"), FINAL)
    failpoints.REACHED.clear()
    monkeypatch.setitem(failpoints.PLANNED, "between_moves", ["raise", str(nth)])
    with pytest.raises(failpoints.FailpointReached):
        slice_of(run)
    assert kinds(run).count("transition") == nth
    work(run)
    assert run.status == "succeeded"
    assert (run.model_calls, run.tool_calls, run.input_tokens, run.cost_usd) == (2, 1, 200, 0.002)
    assert kinds(run).count("transition") == 10
