"""A parent of any machine with a child of any machine: the child's answer is the parent's result."""

import itertools
import json
from typing import Any

import pytest

from runs import actions, driver
from runs.machines import CATALOGUE
from runs.models import Exchange, Run
from runs.store import verifying

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.database]

CALL = {"tool": "agent.kid", "args": {"goal": "When is high water?"}}
SLOT = [{"id": "tide", "type": "inline", "description": "the tide", "format": "text"}]

PARENTS: dict[str, list[dict[str, Any]]] = {
    "contract": [
        {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {
                "tool_id": "agent.kid",
                "params": CALL["args"],
                "out_artifacts": [{"name": "i1", "kind": "inline"}],
                "reason": "needed",
            },
        },
        {
            "action": "complete",
            "completion_summary": "Asked.",
            "map_slots": [{"slot": "tide", "artifact": "i1"}],
        },
    ],
    "checklist": [
        {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {"tool_id": "agent.kid", "params": CALL["args"]},
        },
        {"action": "complete", "completion_summary": "Asked."},
    ],
    "planned": [
        {"thought": "ask", **CALL},
        {"thought": "say", "tool": "final_answer", "args": {"answer": "Asked."}},
    ],
    "ruled": [{"thought": "I ask", "action": CALL}, {"thought": "FINAL ANSWER: Asked.", "action": None}],
}

CHILDREN: dict[str, list[dict[str, Any]]] = {
    "contract": [{"action": "complete", "completion_summary": "At noon."}],
    "checklist": [{"action": "complete", "completion_summary": "At noon."}],
    "planned": [{"thought": "say", "tool": "final_answer", "args": {"answer": "At noon."}}],
    "ruled": [{"thought": "FINAL ANSWER: At noon.", "action": None}],
}

SETTINGS: dict[str, dict[str, Any]] = {
    "contract": {"contract": SLOT},
    "checklist": {"plan": []},
    "planned": {"plan": []},
    "ruled": {},
}


@pytest.mark.parametrize(("parent", "child"), list(itertools.product(CATALOGUE, CATALOGUE)))
def test_a_child_of_any_machine_answers_a_parent_of_any_machine(parent: str, child: str) -> None:
    grown = {} if child == "contract" else SETTINGS[child]
    run = driver.drive_inline(
        actions.start_run(
            machine=parent,
            goal="Find out the tide",
            settings={**SETTINGS[parent], "subgraphs": {"kid": {"machine": child, "settings": grown}}},
            owner=None,
            script={
                "replies": {"decision": PARENTS[parent]},
                "subgraphs": {"kid": {"replies": {"decision": CHILDREN[child]}}},
                "usage": {"cost_usd": 0.0625},
            },
        ).pk
    )
    kid = Run.objects.get(parent=run)
    assert (run.status, run.answer, run.tool_calls) == ("succeeded", "Asked.", 1 + (parent == "planned"))
    assert (kid.status, kid.answer, kid.machine, kid.child_name) == ("succeeded", "At noon.", child, "kid")
    assert run.cost_usd == pytest.approx(0.0625 * (run.model_calls + kid.model_calls))
    told = json.loads(Exchange.objects.get(run=run, kind="child_run").answer_json or "")
    assert (told["run"], told["answer"]) == (str(kid.pk), "At noon.")
    for one in (run, kid):
        assert verifying.verify(one, driver.tool_specs(one)) is None
