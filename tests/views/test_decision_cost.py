"""What one decision costs: the statements of the whole request, from the session to the commit."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from runs.models import Decision
from tests.cast import alice, bob, signed_in
from tests.launching import run_with_letter
from tests.pages import card_form
from tests.running import pending

MOST = 15
"""Statements of one decision; its transaction's beginning and end are two of them."""


@pytest.mark.database
@pytest.mark.django_db
def test_a_decision_on_the_page_takes_few_statements() -> None:
    run, client = run_with_letter(alice()), signed_in(bob())
    question = pending(run)
    with CaptureQueriesContext(connection) as made:
        answer = client.post(
            reverse("decision", args=[question.pk]), card_form(question, verdict="approve", life="")
        )
    assert answer.status_code == 302
    assert Decision.objects.get(interrupt=question).by_name == "bob"
    assert len(made) <= MOST, [query["sql"][:120] for query in made.captured_queries]
