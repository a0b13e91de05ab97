"""The queue of what waits for a reviewer, in pages."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from runs.models import Interrupt
from tests.cast import alice, bob, signed_in
from tests.compact import compact
from tests.launching import launched

pytestmark = [pytest.mark.django_db]


def asked_times(count: int) -> list[str]:
    """Return the ids of so many questions of one run, oldest first; none has a deadline."""
    run = launched(alice(), "done")
    made = (
        Interrupt(run=run, seq=seq, kind="tool_call", title=f"Question {seq}?") for seq in range(1, count + 1)
    )
    Interrupt.objects.bulk_create(made)
    return [str(found) for found in Interrupt.objects.order_by("seq").values_list("pk", flat=True)]


def listed(page: str) -> list[str]:
    """Return the ids of the questions on a page, in order."""
    return re.findall(r'<li class="ask" data-key="([^"]+)"', page)


def test_each_question_stands_on_one_page_and_the_pages_lead_to_each_other() -> None:
    ids, client = asked_times(120), signed_in(bob())
    seen: list[str] = []
    address: str | None = "/needs-you/"
    while address:
        page = client.get(address).text
        assert "120 waiting" in page
        seen += listed(page)
        following = re.search(r'href="(\?page=\d+)"\s+rel="next"', page)
        address = f"/needs-you/{following[1]}" if following else None
    assert seen == ids
    assert len(listed(client.get("/needs-you/?page=2").text)) == 50


def test_the_order_by_time_left_is_named_only_if_a_question_has_a_deadline() -> None:
    ids, client = asked_times(2), signed_in(bob())
    assert "least time left first" not in client.get("/needs-you/").text
    Interrupt.objects.filter(pk=ids[1]).update(deadline=timezone.now() + timedelta(hours=1))
    page = client.get("/needs-you/").text
    assert "2 waiting, least time left first" in compact(page) and listed(page) == ids[::-1]


def test_a_page_that_is_gone_shows_the_last_one() -> None:
    ids, client = asked_times(51), signed_in(bob())
    assert listed(client.get("/needs-you/?page=9").text) == ids[50:]
    Interrupt.objects.get(pk=ids[0]).delete()
    last = client.get("/needs-you/?page=2").text
    assert listed(last) == ids[1:] and "Pages" not in last
