"""What stands beside the steps can't be changed unnoticed: each column of it is forged, one at a time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, models

from runs import driver
from runs.models import Decision, Exchange, Interrupt, Run
from runs.store import verifying
from tests.launching import busy_run

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

UNSEALED: dict[type[models.Model], dict[str, str]] = {
    Exchange: {"remembered": "says only which replies the cache may give again"},
    Interrupt: {
        "revision": "counts while a question is open; its decision has the one that was seen",
        "deadline": "moves with a clock that was set",
        "decided_at": "beside the decision's own time",
    },
    Decision: {},
}
"""The columns that may differ, each with the reason; keys of rows aside."""


def forged(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case datetime():
            return value + timedelta(milliseconds=7)
        case str():
            return value[:-1] + ("y" if value.endswith("x") else "x")
    return None


def beside(run: Run) -> list[models.Model]:
    """Return an exchange, a question and a decision of each kind that the run has."""
    questions = {one.kind: one for one in Interrupt.objects.filter(run=run)}
    decisions = {one.interrupt.kind: one for one in Decision.objects.filter(interrupt__run=run)}
    exchanges = {one.kind: one for one in run.exchanges.filter(status="answered")}
    return [*exchanges.values(), *questions.values(), *decisions.values()]


def test_each_column_beside_the_log_is_covered_or_has_a_reason_not_to_be() -> None:
    run = busy_run()
    tools = driver.tool_specs(run)
    unnoticed = set()
    for row in beside(run):
        for field in row._meta.concrete_fields:
            value = getattr(row, field.attname)
            if field.name in UNSEALED[type(row)] or field.is_relation or field.primary_key or value is None:
                continue
            one = type(row)._base_manager.filter(pk=row.pk)
            try:
                one.update(**{field.attname: forged(value)})
            except IntegrityError:
                continue  # the database itself refuses it
            if verifying.verify(Run.objects.get(pk=run.pk), tools) is None:
                unnoticed.add((type(row).__name__, field.name))
            one.update(**{field.attname: value})
    assert unnoticed == set()
    assert verifying.verify(Run.objects.get(pk=run.pk), tools) is None


@pytest.mark.parametrize("table", [Exchange, Interrupt])
def test_a_row_beside_the_log_that_is_gone_is_missed(table: type[models.Model]) -> None:
    run = busy_run()
    table._base_manager.filter(run=run).order_by("seq")[0].delete()
    assert verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run)) is not None
