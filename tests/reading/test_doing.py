"""What is under way in a run is told while it is: what is asked, since when, and why it is a further attempt."""

from __future__ import annotations

from typing import Any

import pytest

from runs.feeds.reads import look
from runs.models import Run
from runs.reading import panels
from runs.reading.doing import Doing, doing_of
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import work
from tests.stack import wait_for
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def told(run: Run) -> Doing | None:
    """What a page that is opened now says."""
    return doing_of(Run.objects.get(pk=run.pk))


def in_call(run: Run, name: str, **more: Any) -> Doing:
    """What is told of the call while it takes long."""
    seen: list[Doing | None] = []

    def look_on() -> None:
        wait_for(lambda: Run.objects.get(pk=run.pk).doing_json)
        seen.append(told(run))

    slice_of(run, only=name, before=look_on, **more)
    found = seen[0]
    assert found is not None
    return found


def test_a_first_model_call_is_told_before_there_is_a_row() -> None:
    run = launch(FINAL)
    shown = in_call(run, "decision")
    assert (shown.what, shown.name) == ("Waiting for the model", "decision")
    assert shown.since is not None and run.started_at is not None and shown.since >= run.started_at


@pytest.mark.parametrize("tool", ["search", "send"])
def test_a_tools_call_is_told_whether_or_not_its_row_is_written(tool: str) -> None:
    args = {"q": "tides"} if tool == "search" else {"to": "bob"}
    shown = in_call(launch(think(tool, **args), FINAL, rules=ALLOW), tool)
    assert (shown.what, shown.name) == ("Running", tool)


def test_what_was_told_of_a_call_is_over_with_its_row() -> None:
    run = launch(think("search", q="tides"), FINAL)
    calls: list[Doing | None] = []

    def look_on() -> None:
        """In the first reply, in the tool's call, and in the second reply, which has only begun."""
        if len(calls) < 2:
            name = ("decision", "search")[len(calls)]
            wait_for(lambda: name in Run.objects.get(pk=run.pk).doing_json)
        calls.append(told(run))

    slice_of(run, before=look_on)
    first, second, third = calls
    assert first is not None and second is not None
    assert (first.name, second.name, third) == ("decision", "search", None)


def test_pages_that_are_open_are_painted_anew() -> None:
    run = launch(FINAL)
    before = look(run.pk, None).moment
    after: list[Any] = []

    def look_on() -> None:
        wait_for(lambda: look(run.pk, None).moment.doing)
        after.append(look(run.pk, None).moment)
        after.append(panels.panels_of(Run.objects.get(pk=run.pk), None)["doing"])

    slice_of(run, before=look_on)
    assert before != after[0]
    assert "Waiting for the model" in after[1] and "data-since" in after[1]


def test_a_further_attempt_says_what_the_one_before_failed_of_and_when_it_begins() -> None:
    run = launch({"$error": "transient", "message": "No answer within 120 s."}, FINAL)
    slice_of(run)
    shown = told(run)
    assert shown is not None
    assert shown.next_at == Run.objects.get(pk=run.pk).due_at
    assert shown.before == "No answer within 120 s. Attempt 2 of 3."
    again = in_call(run, "decision")
    assert (again.before, again.attempt, again.next_at) == (shown.before, 2, None)


def test_what_a_lost_worker_was_in_is_not_told_of_the_next_one() -> None:
    run = launch(think("search", q="tides"), FINAL)

    def die_late() -> None:
        wait_for(lambda: Run.objects.get(pk=run.pk).doing_json)
        kill()

    die_in(run, only="search", before=die_late)
    seen: list[Doing | None] = []
    slice_of(run, only="search", before=lambda: seen.append(told(run)))
    assert seen == [None]


def test_a_queued_run_waits_for_a_worker_and_one_that_waits_for_a_person_does_nothing() -> None:
    run = launch(think("send", to="bob"), FINAL)
    queued = told(run)
    assert queued is not None and queued.what == "Waiting for a worker"
    assert (work(run).status, told(run)) == ("waiting", None)
