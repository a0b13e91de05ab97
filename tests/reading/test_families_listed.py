"""The list of runs shows families as trees, and what a family cost counts nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.reading.listing import Filters, RunView, run_page
from tests.cast import cast_member, signed_in
from tests.families import INNER_ANSWER, child_of, family
from tests.launching import FINAL, launch, think
from tests.running import work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def listed(**narrowed: Any) -> dict[int, RunView]:
    root = User.objects.filter(username="root").first() or cast_member("root", is_superuser=True)
    page = run_page(root, Filters(**narrowed))
    return {view.run.pk: view for view in (*page.waiting, *page.runs)}


def test_a_child_stands_below_its_parent_and_not_beside_it() -> None:
    run, alone = work(family(think("search", q="tides"), INNER_ANSWER)), work(launch(FINAL))
    child = child_of(run)
    found = listed()
    assert set(found) == {run.pk, alone.pk}
    below = found[run.pk].family
    assert below is not None and found[alone.pk].family is None
    ((depth, line),) = below.lines
    assert (depth, f"/runs/{child.pk}/" in line) == (1, True)


def test_what_a_parent_has_paid_for_its_child_is_not_counted_again() -> None:
    run = work(family(think("search", q="tides"), INNER_ANSWER))
    child = child_of(run)
    assert run.cost_usd == pytest.approx(0.004) and child.cost_usd == pytest.approx(0.002)
    below = listed()[run.pk].family
    assert below is not None and below.cost == "$0.004"


def test_what_a_child_under_way_has_used_is_counted_though_its_parent_does_not_know_it_yet() -> None:
    run = work(family(think("search", q="tides"), think("send", to="bob"), INNER_ANSWER))
    assert run.cost_usd == pytest.approx(0.001) and child_of(run).cost_usd == pytest.approx(0.002)
    below = listed()[run.pk].family
    assert below is not None and below.cost == "$0.003"


def test_where_the_list_is_narrowed_a_child_stands_by_itself_and_names_its_parent() -> None:
    run = work(family(think("search", q="tides"), INNER_ANSWER))
    child = child_of(run)
    found = listed(status="succeeded")
    assert set(found) == {run.pk, child.pk} and found[run.pk].family is None
    page = signed_in(User.objects.get(username="root")).get("/runs/?status=succeeded").text
    assert f'child of <a href="/runs/{run.pk}/">#{run.pk}</a>' in page


def test_many_families_are_read_with_as_many_queries_as_one() -> None:
    def queries(count: int) -> int:
        while len(listed()) < count:
            work(family(INNER_ANSWER))
        with CaptureQueriesContext(connection) as asked:
            assert all(view.family for view in listed().values())
        return len(asked)

    assert queries(1) == queries(4)
