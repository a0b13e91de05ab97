"""A run that has ended says how: what failed and where, how to go on, and what the agent's own word leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from runs.models import Run
from runs.reading.ending import Ending, ending_of
from runs.reading.panels import panels_of
from tests.launching import FINAL, SEARCH, TOOLS, launch, script, think
from tests.running import decide, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

BROKEN = {"search": {**SEARCH, "results": [{"error": "no route"}]}}


def ended(run: Run) -> Ending:
    found = ending_of(run)
    assert found is not None
    return found


def answer_panel(run: Run) -> str:
    return " ".join(panels_of(run, None)["answer"].split())


def test_a_run_that_goes_on_has_no_ending() -> None:
    assert ending_of(launch(FINAL)) is None


def test_a_failed_run_says_what_failed_and_where_and_offers_to_retry_from_there() -> None:
    run = work(launch(think("search", q="tides"), {"$error": "fatal", "message": "No credit left."}))
    found = ended(run)
    assert (run.status, found.message) == ("failed", "No credit left.")
    assert run.steps.get(seq=found.seq).kind == "stop"
    assert found.retry_at == transitions(run)[-1]
    shown = answer_panel(run)
    assert f'Model error: No credit left. See <a href="?step={found.seq}"' in shown
    assert f"/runs/{run.pk}/fork/?at={found.retry_at}" in shown


def test_a_run_that_failed_at_once_is_retried_from_the_beginning() -> None:
    run = work(launch({"$error": "fatal", "message": "No credit left."}))
    assert ended(run).retry_at == 0
    assert "Retry from the beginning" in answer_panel(run)


def test_the_agents_word_is_told_as_its_word() -> None:
    run = work(launch(FINAL))
    header = panels_of(run, None)["header"]
    assert "Finished" in header and "the agent says the goal is reached" in header and "word--good" in header
    assert "Before the end" not in answer_panel(run)


@pytest.mark.parametrize(
    ("tool", "tools", "said"),
    [
        (think("send", to="bob"), TOOLS, "1 call did not run"),
        (think("search", q="tides"), BROKEN, "1 call failed"),
    ],
)
def test_what_failed_or_was_denied_stands_beside_the_agents_word(
    tool: Any, tools: dict[str, Any], said: str
) -> None:
    run = work(launch(played=script(tool, FINAL, tools=tools)))
    if run.status == "waiting":
        decide(run, "reject", message="no")
        work(run)
    found = ended(run)
    assert (run.status, found.beside) == ("succeeded", (said,))
    assert run.steps.get(seq=found.beside_seq).edge == "executed"
    assert f"Before the end {said}." in answer_panel(run)
    assert "word--good" not in panels_of(run, None)["header"]


def test_what_was_rolled_back_is_not_counted() -> None:
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL, FINAL))
    decide(run, "reject", message="no")
    work(run)
    decide(run, "rollback", to_step=transitions(run)[0])
    work(run)
    while run.status == "waiting":
        decide(run, "approve")
        work(run)
    assert (run.status, ended(run).beside) == ("succeeded", ())
