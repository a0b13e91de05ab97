"""Workers, people and the sweep at the same moment: whoever is first, the run holds together and nobody is blocked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from runs import actions, driver, tasks
from runs.models import Decision, Run
from runs.store import errors
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import check_everything, in_threads, kinds, pending, transitions, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

EXPECTED = (actions.NotPossible, actions.Conflict, errors.Fenced)
"""What a person is told who came second."""


def at_once(*deeds: Callable[[], Any]) -> list[Any]:
    """All deeds at the same moment; what each came to, or the refusal."""

    def one(number: int) -> Any:
        try:
            return deeds[number]()
        except EXPECTED as refusal:
            return refusal

    return in_threads(len(deeds), one)


def family() -> tuple[Run, Run]:
    """A parent that waits for its child, which is about to end."""
    inner = {"thought": "FINAL ANSWER: inner", "action": None}
    played = script(
        think("agent.inner", goal="Look"), FINAL, subgraphs={"inner": {"replies": {"decision": [inner]}}}
    )
    run = launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}})
    slice_of(run)
    return run, Run.objects.get(parent=run)


@pytest.mark.parametrize("move", ["abort", "pause", "rewind"])
def test_a_child_ends_while_somebody_moves_its_parent(move: str) -> None:
    for _ in range(5):
        run, child = family()
        to = transitions(run)[0]
        moves: dict[str, Callable[[], Any]] = {
            "abort": partial(actions.abort, run, by=None),
            "pause": partial(actions.pause, run, by=None),
            "rewind": partial(actions.rewind, run, to=to, by=None),
        }
        at_once(partial(driver.drive, child.pk), moves[move])
        check_everything()
        run.refresh_from_db()
        if run.status == "paused":
            actions.resume(run, by=None)
            run.refresh_from_db()
        for one in Run.objects.filter(status="queued"):
            work(one)
        run.refresh_from_db()
        assert run.finished


def test_a_child_ends_while_its_parent_is_resumed() -> None:
    """The parent must not wait for a child that has ended."""
    for _ in range(8):
        run, child = family()
        actions.pause(run, by=None)
        at_once(partial(actions.resume, run, by=None), partial(driver.drive, child.pk))
        work(child)
        assert work(run).status == "succeeded"


def test_parent_and_child_are_aborted_at_the_same_moment() -> None:
    for _ in range(8):
        run, child = family()
        at_once(partial(actions.abort, run, by=None), partial(actions.abort, child, by=None))
        assert set(Run.objects.values_list("status", flat=True)) == {"cancelled"}


def test_of_many_decisions_at_the_same_moment_one_counts() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    question = pending(run)
    verdicts = ["approve", "reject", "approve", "reject", "abort", "approve"]

    def deciding(verdict: str) -> Callable[[], Any]:
        return lambda: actions.decide(question.pk, verdict=verdict, by=None, channel="web")

    outcomes = at_once(*map(deciding, verdicts))
    decision = Decision.objects.get()
    for verdict, outcome in zip(verdicts, outcomes, strict=True):
        if verdict == decision.verdict:
            assert outcome == decision
        else:
            assert isinstance(outcome, actions.Conflict)
            assert outcome.decision == decision
    work(run)
    assert kinds(run).count("decision") == 1


@pytest.mark.parametrize("other", ["abort", "rewind", "pause"])
def test_a_decision_and_another_move_at_the_same_moment(other: str) -> None:
    for _ in range(6):
        run = work(launch(think("send", to="bob"), FINAL))
        question, to = pending(run), transitions(run)[0]
        moves: dict[str, Callable[[], Any]] = {
            "abort": partial(actions.abort, run, by=None),
            "pause": partial(actions.pause, run, by=None),
            "rewind": partial(actions.rewind, run, to=to, by=None),
        }
        at_once(
            partial(actions.decide, question.pk, verdict="approve", by=None, channel="web"),
            moves[other],
        )
        check_everything()


def test_workers_a_pausing_person_and_the_sweep_on_one_run() -> None:
    run = launch(*[think("send", to=str(number)) for number in range(6)], FINAL, rules=ALLOW)

    def pause_and_resume() -> None:
        for _ in range(4):
            for move in (actions.pause, actions.resume):
                try:
                    move(run, by=None)
                except actions.NotPossible:
                    continue

    at_once(*[lambda: driver.drive(run.pk) for _ in range(3)], pause_and_resume, tasks.sweep)
    run.refresh_from_db()
    while not run.finished:
        if run.status == "paused":
            actions.resume(run, by=None)
        work(run)
        assert run.status != "waiting", "a deed was left between its row and its answer"
    assert (run.status, run.model_calls >= 7, run.tool_calls) == ("succeeded", True, 6)
