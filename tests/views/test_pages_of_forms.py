"""An address that only takes forms leads to the page that has the form; no answer is an empty page."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from runs.models import Decision
from runs.urls import urlpatterns
from tests.cast import administrator, alice, bob, charlie, signed_in
from tests.launching import run_with_letter

pytestmark = [pytest.mark.django_db]

DEEDS = {
    "abort": "run",
    "pause": "run",
    "resume": "run",
    "replay": "run",
    "compact": "context",
    "pin": "context",
    "unpin": "context",
    "summary-edit": "context",
    "summary-undo": "context",
}
"""Addresses that take a form about a run, and the page that has it."""


def address_of(name: str, run: int) -> str:
    return reverse(name, args=[run, 3] if name.startswith("summary") else [run])


@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.parametrize("method", ["get", "head"])
def test_the_address_of_a_deed_leads_to_the_page_with_its_form(name: str, method: str) -> None:
    owner = alice()
    run, client = run_with_letter(owner), signed_in(owner)
    answer = getattr(client, method)(address_of(name, run.pk), {"note": "x"})
    assert (answer.status_code, answer["Location"]) == (302, reverse(DEEDS[name], args=[run.pk]))
    assert client.get(answer["Location"]).status_code == 200


def test_the_address_of_a_decision_leads_to_its_card() -> None:
    question = run_with_letter(alice()).interrupts.get()
    answer = signed_in(bob()).get(reverse("decision", args=[question.pk]), {"verdict": "approve"})
    assert (answer.status_code, answer["Location"]) == (302, reverse("interrupt", args=[question.pk]))
    assert not Decision.objects.exists()


def test_the_admins_addresses_lead_to_the_admins_pages() -> None:
    client, question = (
        signed_in(administrator()),
        run_with_letter(alice()).interrupts.get(),
    )
    answer = client.get(reverse("admin:runs_interrupt_decide", args=[question.pk]))
    assert answer["Location"] == reverse("admin:runs_interrupt_change", args=[question.pk])
    assert client.get(reverse("admin:logout"))["Location"] == reverse("admin:index")


def test_nobody_learns_whether_a_row_exists() -> None:
    run = run_with_letter(alice())
    client = signed_in(charlie())
    for there, absent in ((run.pk, run.pk + 99), (run.interrupts.get().pk, uuid4())):
        name = "abort" if there == run.pk else "decision"
        pages = [client.get(reverse(name, args=[pk]), follow=True) for pk in (there, absent)]
        assert [len(page.redirect_chain) for page in pages] == [1, 1]
        assert [page.status_code for page in pages] == [404, 404]


@pytest.mark.parametrize("one", urlpatterns, ids=lambda one: one.name)
def test_no_address_refuses_to_be_looked_at(one: Any) -> None:
    values = {"run_id": 1, "other_id": 2, "seq": 1, "name": "a.txt", "interrupt_id": uuid4(), "part": "state"}
    values |= {"server_id": 1, "tool_id": 1, "tool": "now", "profile_id": 1}
    address = reverse(one.name, kwargs={name: values[name] for name in one.pattern.converters})
    assert signed_in(alice()).get(address).status_code != 405


def test_a_page_that_takes_no_forms_says_so_with_a_way_back() -> None:
    answer = signed_in(alice()).post("/needs-you/")
    assert (answer.status_code, answer["Allow"]) == (405, "GET")
    assert "This address takes GET requests only. Nothing was changed." in answer.text
    assert 'href="/runs/">Show runs' in answer.text


def test_a_program_gets_the_bare_answer() -> None:
    owner = alice()
    run = run_with_letter(owner)
    answer = signed_in(owner).get(reverse("abort", args=[run.pk]), headers={"Accept": "application/json"})
    assert (answer.status_code, answer["Allow"], answer.content) == (405, "POST", b"")


def test_strangers_are_led_to_the_door() -> None:
    answer = Client().get("/runs/1/abort/")
    assert answer["Location"] == "/sign-in/?next=/runs/1/abort/"
