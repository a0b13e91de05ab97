"""What the model said, on each of the four machines: the reader's rules hold for every role."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.engine.effects import Failed, ModelReplied
from runs.engine.machine import Machine
from runs.engine.reply import ONE_ACTION
from runs.machines import CATALOGUE
from tests.machines.replies import ALLOW, NAMES, SETTINGS, call, end
from tests.worlds import Run, ScriptedWorld

every_machine = pytest.mark.parametrize("name", NAMES)

UNREAD = {
    "contract": "decision_invalid",
    "checklist": "protocol_violation.decision_invalid",
    "planned": "action_selection_failed",
    "ruled": "ruled.reply.unread",
}


def drive(name: str, *replies: Any, **settings: Any) -> Run:
    world = ScriptedWorld().model_says(*replies, *[end(name)] * 4)
    world.tool("look", "seen", params={"at": "string"})
    world.tool(
        "wipe", "gone", effects="write", params={"path": "string", "days": "integer"}, required=("path",)
    )
    return world.drive(machine(name), rules=ALLOW, **SETTINGS[name] | settings)


def machine(name: str) -> Machine:
    return CATALOGUE[name]


def called(run: Run) -> list[tuple[str, dict[str, Any]]]:
    made = [(call["tool"], call["args"]) for call in run.asked("tool_call")]
    return [(tool, args) for tool, args in made if tool != "final_answer"]


def unread(name: str, run: Run) -> bool:
    """Whether the machine's own violation is in the log."""
    kinds = {fact.kind for row in run.rows for fact in row.told}
    skipped = {fact.why for fact in run.facts("step.skipped")}
    return UNREAD[name] in {*run.notices, *kinds, *skipped}


@every_machine
@pytest.mark.parametrize("form", ["<think>{}</think>", "{}</think>", "[THINK]{}[/THINK]"])
def test_a_draft_that_the_model_threw_away_is_never_carried_out(name: str, form: str) -> None:
    draft = form.replace("{}", f"I could say {call(name, 'wipe', path='/srv')}, but no.")
    run = drive(name, f"{draft}\n{call(name, 'look', at='x')}")
    assert called(run) == [("look", {"at": "x"})]
    assert not unread(name, run)


@every_machine
def test_a_reply_of_reasoning_alone_is_unreadable_and_the_next_is_read(name: str) -> None:
    run = drive(name, f"<think>{call(name, 'wipe', path='/srv')}", call(name, "look", at="x"))
    assert called(run) == [("look", {"at": "x"})]
    assert unread(name, run)


@every_machine
def test_an_unread_reply_says_where_and_why(name: str) -> None:
    run = drive(name, call(name, "wipe", path="/srv")[:-1])
    assert called(run) == []
    messages = [getattr(fact, "message", "") for row in run.rows for fact in row.told]
    assert any(
        "The reply is cut off: the object that begins at line 1 is never closed." in one for one in messages
    )


@every_machine
def test_of_two_calls_the_first_runs_where_it_only_reads(name: str) -> None:
    rest = f'Observation: {{"output": "seen"}}\n{end(name)}'
    run = drive(name, f"{call(name, 'look', at='x')}\n{rest}")
    assert called(run) == [("look", {"at": "x"})]
    [notice] = [fact for fact in run.facts("react.notice") if fact.code == ONE_ACTION]
    assert (notice.rest, unread(name, run)) == (rest, False)


@every_machine
@pytest.mark.parametrize("second", ["wipe", "look", "end"])
def test_of_two_calls_none_runs_where_the_first_changes_something(name: str, second: str) -> None:
    after = end(name) if second == "end" else call(name, second)
    run = drive(name, f"{call(name, 'wipe', path='/srv')}{after}")
    assert called(run) == []
    assert ONE_ACTION in run.notices
    assert unread(name, run)


@every_machine
def test_an_end_beside_another_action_ends_nothing(name: str) -> None:
    run = drive(name, f"{end(name)}{call(name, 'look', at='x')}", call(name, "look", at="y"))
    assert called(run) == [("look", {"at": "y"})]
    assert unread(name, run)


@every_machine
@pytest.mark.parametrize("params", [{"days": "30"}, {"dayz": 30}, {"days": [30]}])
def test_of_a_changing_call_nothing_is_left_out(name: str, params: dict[str, Any]) -> None:
    run = drive(name, call(name, "wipe", path="/srv", **params), call(name, "wipe", path="/srv", days=30.0))
    assert called(run) == [("wipe", {"path": "/srv", "days": 30})]
    code = "unknown_param" if "dayz" in params else "type_mismatch"
    assert any(notice.removeprefix("protocol_violation.") == code for notice in run.notices)


@every_machine
def test_a_cut_reply_that_parses_is_asked_for_again_with_more_room(name: str) -> None:
    cut = ModelReplied(text=call(name, "wipe", path="/srv"), ended="length")
    run = drive(name, cut, call(name, "look", at="x"))
    assert called(run) == [("look", {"at": "x"})]
    assert [asked["room"] for asked in run.asked("model_call")][:3] == [1, 2, 1]
    assert not unread(name, run)


@every_machine
def test_two_cut_replies_in_a_row_end_the_run_with_their_cause(name: str) -> None:
    run = drive(name, *[ModelReplied(text="", reasoning="hm", ended="length")] * 2)
    assert (run.exit_reason, run.status, run.totals.model_calls) == ("model_error", "failed", 0)
    assert run.facts("react.exit")[0].message.startswith(
        "The reply was cut off at its limit. It held only reasoning."
    )


# --- the other roles --------------------------------------------------------------------------------------

PLANS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "contract": ("coordinator", {"coordinator": "model", "contract": []}, {"slots": []}),
    "checklist": ("planner", {"planner": "model"}, {"steps": ["look"]}),
    "planned": (
        "planner",
        {"plan": None},
        {"outline": "o", "steps": [{"tool": "look", "args": {"at": "x"}}]},
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_what_a_planner_thinks_is_no_plan(name: str) -> None:
    role, settings, reply = PLANS[name]
    draft = {"slots": [{"id": "d", "type": "inline"}], "steps": [{"tool": "wipe", "args": {"path": "/"}}]}
    said = f"<think>{json.dumps(draft)}</think>{json.dumps(reply)}"
    cut = ModelReplied(text=json.dumps(draft), ended="length")
    world = ScriptedWorld().model_says(cut, said, role=role).model_says(*[end(name)] * 4)
    world.tool("look", "seen", params={"at": "string"}).tool("wipe", "gone", effects="write")
    run = world.drive(machine(name), rules=ALLOW, **SETTINGS[name] | settings)
    assert run.notices[0] == "reply_length"
    match name:
        case "contract":
            assert run.state.slots == {}
        case "checklist":
            assert [step.text for step in run.state.plan] == ["look"]
        case _:
            assert [row.tool for row in run.facts("react.plan")[0].rows] == ["look", "final_answer"]


def test_two_plans_of_which_the_first_changes_something_are_none() -> None:
    wipe, look = ({"outline": "", "steps": [{"tool": tool}]} for tool in ("wipe", "look"))
    for first, second, rows in ((wipe, look, ()), (look, wipe, ("look", "final_answer"))):
        world = ScriptedWorld().model_says(json.dumps(first) + json.dumps(second), role="planner")
        world.tool("look", "seen").tool("wipe", "gone", effects="write").model_says(*[end("planned")] * 4)
        run = world.drive(machine("planned"))
        assert tuple(row.tool for plan in run.facts("react.plan") for row in plan.rows) == rows
        assert ONE_ACTION in run.notices


def test_a_fallback_answer_is_given_without_its_reasoning() -> None:
    world = ScriptedWorld().model_says("<think>no idea</think>It is open.", role="fallback")
    run = world.drive(machine("planned"), plan=[], retry_buffer=0)
    assert (run.exit_reason, run.state.answer) == ("model_error", None)
    world = (
        ScriptedWorld().model_says("nothing").model_says("<think>no idea</think>It is open.", role="fallback")
    )
    run = world.drive(machine("planned"), plan=[], retry_buffer=0)
    assert (run.exit_reason, run.state.answer) == ("budget_exhausted", "It is open.")


def test_an_unusable_replan_leaves_the_rows_place_and_bound_and_counts_as_a_replan() -> None:
    world = ScriptedWorld().tool("look", *["seen", *[Failed(blame="recoverable", message="no")] * 9])
    world.model_says("no plan at all", role="planner").model_says("It failed.", role="fallback")
    rows = [{"tool": "look", "args": {"at": str(number)}} for number in range(3)]
    run = world.drive(machine("planned"), plan=rows, follow="plan", retry_buffer=1, max_replans=1)
    at = next(i for i, row in enumerate(run.rows) if any(f.kind == "planned.plan.unread" for f in row.told))
    before, after = run.rows[at - 1].state, run.rows[at].state
    assert (before["failure_count"], after["failure_count"]) == (2, 0)
    kept = ("plan", "plan_index", "pending_plan_step", "plan_skip_reason", "max_steps", "replans", "attempts")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert (after["replans"], after["plan_index"], after["replanning"]) == (1, 1, None)
