"""The tool ask_person: the run waits for a person, whose words are the result; kept, forked, replayed, exported."""

from __future__ import annotations

import json

import pytest

from runs import actions
from runs.models import Run
from runs.reading.rows import row_views
from runs.reading.script_export import launch_of
from tests.cast import person, signed_in
from tests.launching import FINAL, launch, script, think
from tests.pages import forms_of
from tests.running import decide, pending, work

pytestmark = pytest.mark.usefixtures("every_run_verifies")

QUESTION = "Which colour does the report have?"
ASK = think("ask_person", question=QUESTION)


def asking() -> Run:
    return work(launch(played=script(ASK, FINAL, tools={}), tools=["ask_person"]))


def results(run: Run) -> list[dict[str, object]]:
    """What calls gave, in order."""
    told = run.steps.filter(live=True, facts_json__contains='"react.tool.result"').order_by("seq")
    facts = [fact for step in told for fact in json.loads(step.facts_json)]
    return [fact["value"] for fact in facts if fact["kind"] == "react.tool.result"]


def test_the_run_waits_with_the_question_and_goes_on_with_the_answer() -> None:
    run = asking()
    question = pending(run)
    assert (question.kind, question.title, question.tool, run.status) == ("question", QUESTION, "", "waiting")
    decide(run, "respond", message="Blue")
    assert work(run).status == "succeeded"
    (told,) = results(run)
    assert told["answer"] == "Blue" and told["by"]
    assert not run.exchanges.filter(kind="tool_call").exists()


def test_a_reviewer_answers_on_the_page_and_is_named() -> None:
    run, client = asking(), signed_in(person("carol", "view_run", "decide_interrupt"))
    page = client.get(f"/runs/{run.pk}/").text
    assert page.count("Approval applies only to") == 0 and "Your answer" in page
    form = next(
        form
        for form in forms_of(client.get(f"/interrupts/{pending(run).pk}/").text)
        if "verdict" in form.names
    )
    assert client.post(form.action, {**form.fields, "answer": "Red", "verdict": "respond"}).status_code == 302
    assert results(work(run)) == [{"answer": "Red", "by": "carol"}]


def test_the_timeline_shows_the_question_as_words() -> None:
    asks = next(row.line for row in row_views(asking()) if row.line.tone == "ask")
    assert (asks.title, asks.text, asks.code) == ("Question", QUESTION, "")


def test_a_replay_hears_the_same_answer_and_a_fork_asks_again() -> None:
    run = asking()
    decide(run, "respond", message="Blue")
    work(run)
    again, difference = actions.replay(run, by=None)
    assert (difference, results(again)) == (None, results(run))
    fork = actions.fork(run, at=0, by=None)
    assert pending(work(fork)).title == QUESTION


def test_an_answer_of_the_launch_is_for_the_question_too() -> None:
    answers = [{"verdict": "respond", "message": "Green"}]
    run = work(launch(played=script(ASK, FINAL, tools={}), tools=["ask_person"], answers=answers))
    assert run.status == "succeeded"
    assert [told["answer"] for told in results(run)] == ["Green"]


def test_a_run_told_as_a_script_asks_the_same_and_is_answered_the_same() -> None:
    run = asking()
    decide(run, "respond", message="Blue")
    told = launch_of(work(run))
    again = work(launch(played=told["script"], **told["settings"]))
    assert (again.status, [value["answer"] for value in results(again)]) == ("succeeded", ["Blue"])


def test_who_cancels_the_question_cancels_the_run() -> None:
    run = asking()
    decide(run, "abort", message="No.")
    assert work(run).status == "cancelled"
