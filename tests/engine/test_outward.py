"""A run that has read something asks before it contacts a host that has not been named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs.engine import gates, outward
from runs.engine.effects import ChildFinished, HumanCall, ToolCall
from runs.engine.facts import DataRead, Forked, HostAllowed
from runs.engine.machine import State
from runs.engine.snapshot import Snapshot
from runs.engine.states import control_values
from tests.engine.toys import TOY
from tests.worlds import Run, ScriptedWorld, said

PAGE, OTHER = "fetch https://api.test/?q=1", "fetch https://other.test/"
AGAIN = "fetch https://api.test/?q=2"


def world(*says: str) -> ScriptedWorld:
    """The toy with a tool for each kind of reading, and one that contacts the host of its URL."""
    tools = ScriptedWorld().model_says(*says)
    tools.tool("file", "my diary", params={"x": "string"}, reads="private")
    tools.tool("sum", "4", params={"x": "string"})
    tools.tool("fetch", "a page", params={"x": "string"}, outward="x", reads="untrusted")
    tools.tool("ping", "pong", params={"x": "string"}, outward="fixed.test")
    return tools


def asked(run: Run) -> HumanCall | None:
    """The question that the run waits with."""
    pending = run.snapshot.pending
    return pending.effect if pending and isinstance(pending.effect, HumanCall) else None


def carried_out(run: Run) -> list[str]:
    """The calls that were let through, by their argument."""
    effects = (row.effect for row in run.rows if row.effect)
    return [f"{effect['tool']} {effect['args']['x']}" for effect in effects if effect["kind"] == "tool_call"]


# --- when it asks ---------------------------------------------------------------------------------------------------


def test_a_run_that_has_read_private_data_asks_before_a_host_that_is_not_named() -> None:
    run = world("file diary", PAGE).drive(TOY)
    question = asked(run)
    assert question is not None
    assert (question.about, question.host, question.passed) == ("tool_call", "api.test", ("hosts",))
    assert question.holds == ToolCall(tool="fetch", args={"x": "https://api.test/?q=1"}, effects="read")
    assert question.why == (
        "This run has read private data (file, step 3). "
        "The call contacts api.test, which neither the launch nor the site names."
    )
    assert carried_out(run) == ["file diary"]


@pytest.mark.parametrize("first", ["sum 2+2", "ping a"])
def test_a_run_that_has_read_nothing_of_note_is_not_asked(first: str) -> None:
    run = world(first, PAGE, "done").drive(TOY)
    assert carried_out(run) == [first, PAGE]


def test_what_a_host_said_may_go_back_to_it_and_to_no_other() -> None:
    run = world(PAGE, AGAIN, OTHER).drive(TOY)
    assert carried_out(run) == [PAGE, AGAIN]
    question = asked(run)
    assert question is not None and question.host == "other.test"
    assert "untrusted content (fetch, step 3)" in question.why


def test_a_host_that_was_contacted_before_is_asked_about_once_there_is_more_to_carry() -> None:
    run = world(PAGE, "file diary", AGAIN).drive(TOY)
    question = asked(run)
    assert question is not None and question.host == "api.test"
    assert "private data (file, step 7)" in question.why


def test_two_strangers_are_noted_and_no_third_is_needed() -> None:
    run = world(PAGE, OTHER, "fetch https://third.test/", "done").person_says("approve", "approve").drive(TOY)
    assert [(read.host, read.step) for read in run.snapshot.state.data_read] == [
        ("api.test", 3),
        ("other.test", 9),
    ]


def test_a_tool_that_always_contacts_the_same_host_is_asked_about_too() -> None:
    question = asked(world("file diary", "ping a").drive(TOY))
    assert question is not None and question.host == "fixed.test"


def test_a_call_whose_host_can_not_be_told_asks_and_offers_no_host_to_allow() -> None:
    question = asked(world("file diary", "fetch https://good.test\\@evil.test/").drive(TOY))
    assert question is not None and question.host == ""
    assert question.why.endswith("The call does not say which host it contacts.")


def test_what_a_person_or_a_refusal_gave_in_a_tools_place_was_not_read() -> None:
    rules = [{"when": {"tool": "file"}, "do": "ask"}]
    run = world("file diary", PAGE, "done").person_says(said("respond", message="x")).drive(TOY, rules=rules)
    assert carried_out(run) == [PAGE]


def test_what_a_child_answers_is_untrusted() -> None:
    ends = ChildFinished(run="9", status="succeeded", answer="go to api.test")
    question = asked(world("child look", PAGE).child("helper", ends).drive(TOY))
    assert question is None  # the port of children says what they read, and this one says nothing
    spec = {"reads": "untrusted"}
    reading = world("child look", PAGE).child("helper", ends)
    reading.tools["agent.helper"] = reading.tools["agent.helper"].model_copy(update=spec)
    question = asked(reading.drive(TOY))
    assert question is not None and "untrusted content (agent.helper, step 3)" in question.why


# --- what lets it pass ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts", [["api.test"], ["*.test"], ["*"]])
def test_a_host_that_the_launch_names_is_not_asked_about(hosts: list[str]) -> None:
    run = world("file diary", PAGE, "done").drive(TOY, hosts=hosts)
    assert carried_out(run) == ["file diary", PAGE]


def test_only_any_host_lets_one_pass_that_can_not_be_told() -> None:
    unclear = "fetch https://good.test\\@evil.test/"
    assert asked(world("file diary", unclear).drive(TOY, hosts=["*.test"])) is not None
    assert carried_out(world("file diary", unclear, "done").drive(TOY, hosts=["*"]))[-1] == unclear


@pytest.mark.parametrize("do", ["allow", "notify"])
def test_a_rule_that_allows_the_tool_does_not_silence_the_question(do: str) -> None:
    rules = [{"when": {"tool": "*"}, "do": do}]
    assert asked(world("file diary", PAGE).drive(TOY, rules=rules)) is not None


def test_an_approval_lets_this_call_pass_and_the_next_one_asks() -> None:
    run = world("file diary", PAGE, AGAIN).person_says("approve").drive(TOY)
    assert carried_out(run) == ["file diary", PAGE]
    assert (question := asked(run)) is not None and question.host == "api.test"


def test_a_host_may_be_allowed_for_the_whole_run_and_another_one_asks() -> None:
    run = world("file diary", PAGE, AGAIN, OTHER).person_says(said("approve", allow_host=True)).drive(TOY)
    assert carried_out(run) == ["file diary", PAGE, AGAIN]
    assert run.snapshot.state.hosts_allowed == ("api.test",)
    assert (question := asked(run)) is not None and question.host == "other.test"


def test_an_edit_allows_the_host_that_was_shown_and_not_the_one_that_was_written() -> None:
    edit = said("edit", args={"x": "https://mine.test/"}, allow_host=True)
    run = world("file diary", PAGE, AGAIN, "fetch https://mine.test/2").person_says(edit).drive(TOY)
    assert carried_out(run)[1:] == ["fetch https://mine.test/", AGAIN]
    assert (question := asked(run)) is not None and question.host == "mine.test"


def test_a_rejection_calls_nothing() -> None:
    run = world("file diary", PAGE, "done").person_says("reject").drive(TOY)
    assert carried_out(run) == ["file diary"]


def test_a_rollback_to_before_the_reading_forgets_it_and_what_was_allowed() -> None:
    back = said("rollback", to_step=2)
    run = world("sum 1", "file diary", PAGE, OTHER, PAGE, "done")
    rewound = run.person_says(said("approve", allow_host=True), lambda at: back).drive(TOY)
    assert [read.host for read in rewound.snapshot.state.data_read] == [
        "api.test"
    ]  # the page after it, no file
    assert rewound.snapshot.state.hosts_allowed == ()
    assert carried_out(rewound)[-1] == PAGE


# --- together with the other gates ----------------------------------------------------------------------------------


def held(at: Snapshot, call: ToolCall, *passed: str) -> gates.Hold:
    opinion = gates.on_effect(at, call, passed)
    assert isinstance(opinion, gates.Hold)
    return opinion


def after_reading(*rules: dict[str, Any]) -> Snapshot:
    """A run that has read a file and decides next."""
    return world("file diary").drive(TOY, rules=rules).snapshot


FETCH = ToolCall(tool="fetch", args={"x": "https://api.test/"}, effects="read")


def test_a_rule_that_asks_and_the_host_are_one_question() -> None:
    at = after_reading({"when": {"tool": "fetch"}, "do": "ask", "name": "fetches ask"})
    question = held(at, FETCH).call
    assert question.why == f"Rule 1: fetches ask {outward.why_ask('api.test', at.state.data_read[0])}"
    assert question.host == "api.test"
    assert isinstance(gates.on_effect(at, FETCH, question.passed), gates.Pass)
    # An edit answers the rule that asked; another host is asked about anew.
    assert held(at, FETCH, *question.passed[-1:]).call.passed == ("rule:1", "hosts")


def test_silence_that_approves_a_call_does_not_let_a_host_pass() -> None:
    rule = {"when": {"tool": "fetch"}, "do": "ask", "deadline_s": 5, "on_timeout": "approve"}
    at = after_reading(rule)
    first = held(at, FETCH).call
    assert (first.host, first.on_timeout) == ("", "approve")
    second = held(at, FETCH, *first.passed).call
    assert (second.host, second.on_timeout, second.deadline_s) == ("api.test", "deny", None)


def test_a_rule_that_denies_comes_first() -> None:
    at = after_reading({"when": {"tool": "fetch"}, "do": "deny"})
    assert isinstance(gates.on_effect(at, FETCH, ()), gates.Refuse)


# --- the state ------------------------------------------------------------------------------------------------------


def test_a_state_without_either_is_stored_as_it_was_before_there_were_such() -> None:
    stored = json.loads(world().start(TOY).snapshot.state.model_dump_json())
    assert set(stored) == {"exit_reason", "answer", "answer_source", "interrupts_asked", "turns", "word"}


def test_what_gates_decide_by_is_none_of_the_values_that_a_fork_sets() -> None:
    assert not {"data_read", "hosts_allowed"} & set(control_values(TOY))


def test_a_fork_keeps_what_was_read_and_asks_about_hosts_anew() -> None:
    state: State = world().start(TOY).snapshot.state
    read = DataRead(what="private", tool="file", step=3)
    state = TOY.fold(state, (read, HostAllowed(host="api.test", by="alice")))
    for change in ({}, {"turns": 5}):
        forked = Forked(run=1, seq=4, by="bob", settings_before={}, state=change)
        after = TOY.fold(state, (forked,))
        assert (after.data_read, after.hosts_allowed) == ((read,), ())
