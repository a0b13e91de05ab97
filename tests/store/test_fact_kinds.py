"""Rows are found by the kinds of their facts: derived, filled for older rows, checked by `verify`."""

from __future__ import annotations

import json

import pytest
from django.apps import apps
from django.db import connection

from runs import actions, driver
from runs.models import Exchange, Interrupt, Run, Step
from runs.store import loading
from tests.golden.keeping import FILLED
from tests.launching import FINAL, busy_run, launch, think
from tests.running import decide, misfit_of, transitions, unseal, work

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]


def without_figures(exchange: Exchange) -> str:
    """The request as versions stored it that kept figures in words only."""
    asked = json.loads(exchange.request_json)
    return json.dumps({name: value for name, value in asked.items() if name not in ("figures", "cost_usd")})


def as_an_earlier_version_left_them() -> None:
    Step.objects.update(fact_kinds="")
    Interrupt.objects.update(figures_json="")
    for exchange in Exchange.objects.filter(kind="human_call"):
        Exchange.objects.filter(pk=exchange.pk).update(request_json=without_figures(exchange))
    for run in Run.objects.all():
        unseal(run)


def test_the_migration_fills_what_this_version_would_have_written() -> None:
    run = busy_run()
    before = list(run.steps.order_by("seq").values_list("fact_kinds", flat=True))
    question = run.interrupts.get(kind="limit")
    figures = question.figures
    assert figures is not None
    as_an_earlier_version_left_them()
    assert misfit_of(run) is not None
    FILLED.fill(apps, connection.schema_editor())
    assert list(run.steps.order_by("seq").values_list("fact_kinds", flat=True)) == before
    question.refresh_from_db()
    assert question.figures == figures | {"rounded": True}
    assert misfit_of(run) is None
    copy, difference = actions.replay(Run.objects.get(pk=run.pk), by=None)
    assert difference is None and copy.head == run.head


def test_the_migration_leaves_a_row_that_can_not_be_read_to_verify() -> None:
    run = work(launch(think("search", q="a"), FINAL))
    as_an_earlier_version_left_them()
    Step.objects.filter(run=run, seq=2).update(facts_json="[{")
    FILLED.fill(apps, connection.schema_editor())
    misfit = misfit_of(run)
    assert misfit is not None and misfit.seq == 2


@pytest.mark.parametrize("other", ["", " react.exit ", " react.notice "])
def test_verify_names_a_row_whose_column_is_not_that_of_its_facts(other: str) -> None:
    run = work(launch(think("search", q="a"), FINAL))
    step = run.steps.exclude(facts_json="[]").order_by("seq")[1]
    assert step.fact_kinds != other
    Step.objects.filter(pk=step.pk).update(fact_kinds=other)
    misfit = misfit_of(run)
    assert misfit is not None and misfit.seq == step.seq and "fact_kinds" in misfit.why


def test_arguments_that_read_like_a_code_answer_no_wish() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    actions.compact_now(run, by=None)
    decide(run, "edit", args={"to": "nothing_to_compact"})
    assert loading.compaction_wanted(run)


def test_copies_have_the_column_too() -> None:
    run = busy_run()
    copy = actions.fork(run, at=transitions(run, "continue")[0], by=None)
    copied = copy.steps.filter(seq__lte=copy.copied_upto or 0).order_by("seq")
    assert copied.exists() and misfit_of(copy) is None
    told = run.steps.filter(seq__lte=copy.copied_upto or 0).order_by("seq")
    assert [step.fact_kinds for step in copied] == [step.fact_kinds for step in told]
    assert driver.record_of(copy).opening.seq == (copy.copied_upto or 0) + 1
