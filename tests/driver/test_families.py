"""A parent of any machine with a child of any machine: the child's answer is the parent's result."""

import itertools
import json

import pytest

from runs import driver
from runs.machines import CATALOGUE
from runs.models import Exchange, Run
from runs.store import verifying
from tests.families import asking_family

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]


@pytest.mark.parametrize(("parent", "child"), list(itertools.product(CATALOGUE, CATALOGUE)))
def test_a_child_of_any_machine_answers_a_parent_of_any_machine(parent: str, child: str) -> None:
    run = driver.drive_inline(asking_family(parent, child).pk)
    kid = Run.objects.get(parent=run)
    assert (run.status, run.answer, run.tool_calls) == ("succeeded", "Asked.", 1 + (parent == "planned"))
    assert (kid.status, kid.answer, kid.machine, kid.child_name) == ("succeeded", "At noon.", child, "kid")
    assert run.cost_usd == pytest.approx(0.0625 * (run.model_calls + kid.model_calls))
    told = json.loads(Exchange.objects.get(run=run, kind="child_run").answer_json or "")
    assert (told["run"], told["answer"]) == (str(kid.pk), "At noon.")
    for one in (run, kid):
        assert verifying.verify(one, driver.tool_specs(one)) is None
