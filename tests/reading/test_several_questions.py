"""An agent that asks several things at once: whoever answers reads all of them, wherever the question is shown."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runs.management.asking import how_to_answer
from runs.models import Interrupt, Run
from runs.reading import panels
from runs.reading.cards import asked_now, card_of
from runs.reading.rollback import again
from runs.reading.rows import row_views
from tests.cast import bob, cast_member, signed_in
from tests.launching import play
from tests.pages import forms_of
from tests.running import decide, pending

pytestmark = [pytest.mark.django_db]

ASKED = ("Which colour?", "Which size?", "By when?")
MACHINES = ("checklist", "contract")


def asking(machine: str, *questions: str, **more: Any) -> Run:
    """A run whose agent asks these, and then is done."""
    done = {"action": "complete", "completion_summary": "ok"}
    return play(machine, {"action": "clarify", "questions": list(questions), **more}, done)


def text_of(page: str) -> str:
    """The words of a page; every tag is a blank."""
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", page).split()))


def reviewer() -> Client:
    """Bob's browser."""
    return signed_in(bob())


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("address", ["/needs-you/", "/interrupts/{question}/", "/runs/{run}/"])
def test_all_questions_stand_on_every_page_that_asks(machine: str, address: str) -> None:
    run = asking(machine, *ASKED)
    page = reviewer().get(address.format(run=run.pk, question=pending(run).pk))
    assert page.status_code == 200
    assert " ".join(ASKED) in text_of(page.text)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_card_that_is_pushed_has_one_below_the_other_and_none_of_them_twice(machine: str) -> None:
    card = panels.panels_of(asking(machine, *ASKED, notes="I can't tell."), bob())["needs"]
    assert re.findall(r'class="card__question">([^<]*)<', card) == list(ASKED)
    assert all(text_of(card).count(question) == 1 for question in ASKED)


def test_the_reason_of_a_contract_is_no_question() -> None:
    person = bob()
    said = card_of(pending(asking("contract", *ASKED, notes="I can't tell.")), person)
    unsaid = card_of(pending(asking("contract", *ASKED)), person)
    assert (said.why, unsaid.why) == ("I can't tell.", "")


def test_a_single_question_is_shown_as_it_was() -> None:
    card = card_of(pending(asking("contract", "Which colour?", notes="Which size? I can't tell.")), bob())
    assert (card.title, card.questions, card.why) == ("Which colour?", (), "Which size? I can't tell.")


@pytest.mark.parametrize("machine", MACHINES)
def test_all_questions_stand_in_the_row_and_by_command(machine: str) -> None:
    run = asking(machine, *ASKED)
    assert row_views(run)[-1].line.text == " ".join(ASKED)
    assert f"It asks: {' '.join(ASKED)}" in how_to_answer(pending(run), run)


@pytest.mark.parametrize("machine", MACHINES)
def test_all_questions_stand_where_it_is_told_what_was_answered(machine: str) -> None:
    run = asking(machine, *ASKED)
    decide(run, "respond", message="Red, large, tomorrow")
    assert [one.title for one in again(run, 0).answered] == [" ".join(ASKED)]
    assert " ".join(ASKED) in text_of(reviewer().get("/needs-you/").text)


def test_the_admin_and_the_form_of_a_fork_show_all_questions() -> None:
    run = asking("checklist", *ASKED)
    admin = signed_in(cast_member("root", is_staff=True, is_superuser=True))
    question = pending(run)
    assert " ".join(ASKED) in text_of(admin.get(f"/admin/runs/interrupt/{question.pk}/change/").text)
    assert f"“{' '.join(ASKED)}”" in text_of(admin.get(f"/runs/{run.pk}/fork/?at=0").text)


def test_what_an_agent_writes_is_text_and_shows_what_nobody_sees() -> None:
    card = panels.panels_of(asking("checklist", "<b>Which?</b>", "This\u202eone?"), bob())["needs"]
    assert "&lt;b&gt;Which?&lt;/b&gt;" in card
    assert "\u202e" not in card


def test_the_queue_reads_all_questions_at_once() -> None:
    def queries(count: int) -> int:
        while Interrupt.objects.count() < count:
            asking("checklist", *ASKED)
        open_now = list(Interrupt.objects.select_related("run"))
        with CaptureQueriesContext(
            connection,
        ) as seen:
            assert len(asked_now(open_now)) == count
        return len(seen)

    assert queries(1) == queries(3) == 1


@pytest.mark.parametrize("machine", MACHINES)
def test_each_question_has_an_answer_of_its_own_and_the_model_reads_them_together(machine: str) -> None:
    run, client = asking(machine, *ASKED), reviewer()
    question = pending(run)
    form = next(
        form for form in forms_of(client.get(f"/interrupts/{question.pk}/").text) if "verdict" in form.names
    )
    typed = {"answer.1": "Red", "answer.3": "Tomorrow"}
    answer = client.post(form.action, {**form.fields, **typed, "verdict": "respond"})
    assert answer.status_code == 302
    told = json.loads(run.steps.get(kind="decision").facts_json)[0]
    assert told["message"] == "Which colour?\nRed\n\nWhich size?\n(no answer)\n\nBy when?\nTomorrow"


def test_without_any_answer_the_card_comes_back_and_says_so() -> None:
    run, client = asking("checklist", *ASKED), reviewer()
    question = pending(run)
    form = next(
        form for form in forms_of(client.get(f"/interrupts/{question.pk}/").text) if "verdict" in form.names
    )
    answer = client.post(form.action, {**form.fields, "verdict": "respond"})
    assert (answer.status_code, "Write the answer." in answer.text) == (422, True)


def test_answers_to_a_question_that_is_closed_are_kept() -> None:
    run, client = asking("checklist", *ASKED), reviewer()
    question = pending(run)
    form = next(
        form for form in forms_of(client.get(f"/interrupts/{question.pk}/").text) if "verdict" in form.names
    )
    decide(run, "respond", message="All of them.")
    answer = client.post(form.action, {**form.fields, "answer.2": "Large", "verdict": "respond"})
    assert answer.status_code == 409
    assert "Answer to “Which size?”" in html.unescape(answer.text) and "Large" in answer.text
