"""Forks: a run that goes on from a row of another one, which stays as it is; and answers that are kept."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import actions, driver
from runs.engine.facts import KeptAnswer
from runs.forms.copying import state_values
from runs.machines import CATALOGUE
from runs.models import FINISHED, Decision, Interrupt, Run
from runs.reading.rollback import again
from runs.store import copying, verifying
from runs.store.creating import folder_of
from tests.cast import person, stranger
from tests.families import CHILDREN, KID_SETTINGS
from tests.launching import ALLOW, FINAL, TOOLS, launch, script, think
from tests.replaying import WRITE, everything
from tests.running import decide, kinds, pending, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def live(run: Run, upto: int) -> list[tuple[Any, ...]]:
    rows = run.steps.filter(live=True, seq__lte=upto).order_by("seq")
    return list(rows.values_list("seq", "kind", "node", "edge", "to", "state_json"))


def fork(run: Run, at: int, **parts: Any) -> Run:
    return actions.fork(run, at=at, by=parts.pop("by", None), **parts)


def finished(**settings: Any) -> Run:
    replies = (think("search", q="a"), think("send", to="bob"), think("search", q="b"), FINAL)
    return work(launch(*replies, **{"rules": ALLOW} | settings))


# --- the copy -------------------------------------------------------------------------------------------------------


def test_a_fork_of_a_finished_run_goes_on_from_its_row_and_the_old_run_stays_as_it_is() -> None:
    run = finished()
    before = everything(run)
    at = transitions(run, "executed")[0]
    forked = fork(run, at)
    assert (forked.origin, forked.copied_from, forked.copied_upto) == ("fork", run, at)
    assert (forked.status, forked.head) == ("queued", at + 1)
    assert live(forked, at) == live(run, at)
    work(forked)
    assert (forked.status, forked.answer) == ("succeeded", "42")
    assert everything(run) == before


def test_a_fork_can_begin_at_every_live_transition_and_verifies(subtests: Any = None) -> None:
    run = finished()
    before = everything(run)
    for at in [0, *transitions(run)]:
        if run.steps.filter(seq=at, to="end").exists():
            continue
        forked = work(fork(run, at))
        assert forked.status == "succeeded", at
    assert everything(run) == before


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (99, "has no step 99; its steps are 1 to"),
        (1, "is a step of kind ask: name a live transition"),
        (-1, "has no step -1"),
    ],
)
def test_a_row_that_is_no_live_transition_is_refused(at: int, said: str) -> None:
    run = finished()
    with pytest.raises(actions.NotPossible) as refused:
        fork(run, at)
    assert said in refused.value.sentence
    assert Run.objects.count() == 1


def test_the_row_that_ends_the_run_is_refused() -> None:
    run = finished()
    last = run.steps.get(to="end").seq
    with pytest.raises(actions.NotPossible, match="a copy could not continue there"):
        fork(run, last)


def test_rows_that_were_gone_back_over_stay_so_in_the_copy() -> None:
    run = work(launch(think("search", q="a"), think("search", q="b"), think("send", to="x"), FINAL))
    first = transitions(run, "executed")[0]
    actions.rewind(run, to=first, by=None)
    work(run)
    assert run.steps.filter(live=False).exists()
    at = transitions(run)[-1]
    forked = fork(run, at)
    marks = list(run.steps.filter(seq__lte=at).order_by("seq").values_list("seq", "live"))
    assert list(forked.steps.filter(seq__lte=at).order_by("seq").values_list("seq", "live")) == marks
    work(forked)


def test_what_the_copied_rows_used_counts_and_what_came_after_does_not() -> None:
    run = finished(limits={"cost_usd": 1.0, "tokens": 5000})
    at = transitions(run, "executed")[1]
    forked = fork(run, at)
    assert (forked.model_calls, forked.tool_calls) == (2, 2)
    assert forked.cost_usd == pytest.approx(0.002)
    assert forked.budgets.get(name="tokens").used == 240
    work(forked)
    assert (forked.model_calls, forked.tool_calls) == (4, 3)
    whole = fork(run, transitions(run)[-2])
    assert whole.model_calls == run.model_calls


def test_files_are_copied_as_they_stood_at_the_row() -> None:
    tools = {**TOOLS, "write": WRITE}
    replies = (think("write", name="a"), think("write", name="b"), FINAL)
    run = work(launch(played=script(*replies, tools=tools), rules=ALLOW))
    assert (folder_of(run.pk) / "report.md").read_text() == "second"
    forked = fork(run, transitions(run, "executed")[0])
    assert (folder_of(forked.pk) / "report.md").read_text() == "first"
    (folder_of(forked.pk) / "report.md").write_text("mine")
    assert (folder_of(run.pk) / "report.md").read_text() == "second"
    fresh = fork(run, 0)
    assert not (folder_of(fresh.pk) / "report.md").exists()


# --- what is changed ------------------------------------------------------------------------------------------------


def test_settings_are_changed_by_name_and_null_takes_one_away() -> None:
    run = finished(max_steps=7, interrupt_every=50)
    forked = fork(run, 0, settings={"max_steps": 1, "interrupt_every": None})
    assert (forked.settings["max_steps"], "interrupt_every" in forked.settings) == (1, False)
    assert forked.settings["rules"] == ALLOW
    work(forked)
    assert (forked.status, forked.exit_reason) == ("stopped", "max_steps")


def test_settings_that_no_launch_would_take_are_refused_with_their_place() -> None:
    run = finished()
    with pytest.raises(actions.BadLaunch) as refused:
        fork(run, 0, settings={"max_step": 1, "limits": {"tokens": "many"}})
    assert {problem.path for problem in refused.value.problems} == {
        "settings.max_step",
        "settings.limits.tokens",
    }
    assert Run.objects.count() == 1


def test_a_larger_budget_of_the_machine_counts_at_once() -> None:
    tool = {"action": "call_tool", "tool_call": {"tool_id": "search", "params": {"q": "a"}}}
    done = {"action": "complete", "completion_summary": "done"}
    replies = [dict(tool, strategy="explore"), dict(tool, strategy="explore"), done]
    run = launch(
        machine="checklist", goal="Look", played=script(*replies), exploration_budget=1, exploitation_budget=1
    )
    work(run)
    at = transitions(run)[1]
    forked = fork(run, at, settings={"exploration_budget": 3})
    line = forked.budgets.get(name="explore")
    assert (line.limit, line.used) == (3, 1)
    work(forked)


def test_control_values_are_changed_and_the_row_says_which_and_by_whom() -> None:
    owner = person("alice", "add_run")
    run = work(launch(think("search", q="a"), FINAL, owner=owner))
    at = transitions(run, "executed")[0]
    forked = fork(run, at, state={"steps": 9}, by=owner, message="What if it were late?")
    row = forked.steps.get(seq=at + 1)
    told = json.loads(row.facts_json)[0]
    assert (row.kind, told["kind"], told["by"], told["state"]) == (
        "note",
        "run.forked",
        "alice",
        {"steps": 9},
    )
    assert (told["run"], told["seq"], told["message"]) == (run.pk, at, "What if it were late?")
    assert json.loads(row.state_json or "{}")["steps"] == 9
    work(forked)
    assert forked.owner == owner


@pytest.mark.parametrize(
    ("state", "path", "said"),
    [
        ({"steps": "many"}, "state.steps", "a whole number"),
        ({"step": 1}, "state.step", "has no value of this name"),
        ({"exit_reason": "complete"}, "state.exit_reason", "The run itself writes"),
        ({"terms": {}}, "state.terms", ""),
        ({"draft": {"thought": 5}}, "state.draft.thought", "a text"),
        ({"steps": -7}, "state.steps", "This must be a whole number from 0 to 1,000,000, not -7."),
        ({"steps": 1_000_001}, "state.steps", "from 0 to 1,000,000, not 1000001."),
        ({"interrupts_asked": {"every": 1}}, "state.interrupts_asked", "The run itself keeps"),
        ({"metadata": {"goal": "x", "total_cost": -0.5}}, "state.metadata.total_cost", "a number from 0"),
        ([1], "state", "must be a JSON object"),
        (["steps"], "state", "must be a JSON object"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_with_its_place(state: Any, path: str, said: str) -> None:
    run = finished()
    with pytest.raises(actions.BadLaunch) as refused:
        fork(run, transitions(run)[0], state=state)
    (problem,) = refused.value.problems
    assert problem.path == path
    assert said in problem.message


def played(machine: str) -> Run:
    """A run of the machine that has called children and ended."""
    script_ = {"replies": {"decision": CHILDREN[machine]}}
    made = launch(machine=machine, goal="Look", played=script_, **KID_SETTINGS[machine])
    return work(made)


def with_number(value: Any, number: int) -> list[Any]:
    """The value with another number in place of each one in it; what may be nothing may be a number."""
    match value:
        case bool() | str():
            return []
        case None | int() | float():
            return [number]
        case dict():
            return [{**value, key: new} for key, old in value.items() for new in with_number(old, number)]
        case list():
            return [
                [*value[:place], new, *value[place + 1 :]]
                for place, old in enumerate(value)
                for new in with_number(old, number)
            ]
    raise AssertionError(value)


def places_to_fork(run: Run) -> list[int]:
    return [0, *transitions(run)[:-1][:3]]


@pytest.mark.parametrize("number", [-1, 10**13])
@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_every_number_in_the_state_of_every_machine_has_bounds(machine: str, number: int) -> None:
    run = played(machine)
    assert any(value.kind == "integer" for value in state_values(run, 0))
    for at in places_to_fork(run):
        for value in state_values(run, at):
            for changed in with_number(value.value, number):
                with pytest.raises(actions.BadLaunch) as refused:
                    fork(run, at, state={value.name: changed})
                assert {problem.path.split(".")[1] for problem in refused.value.problems} == {value.name}
    assert Run.objects.count() == 1


@pytest.mark.parametrize("number", [0, 1_000_000])
@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_a_fork_goes_on_from_every_number_that_it_takes(machine: str, number: int) -> None:
    run = played(machine)
    at = places_to_fork(run)[-1]
    taken = 0
    for value in state_values(run, at):
        for changed in with_number(value.value, number):
            try:
                forked = fork(run, at, state={value.name: changed})
            except actions.BadLaunch:
                continue  # it is a text, or an index past its list
            taken += 1
            assert work(forked).status in FINISHED
    assert taken >= 3


@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_a_value_with_which_the_machine_can_not_go_on_is_named_with_what_to_do(machine: str) -> None:
    run = played(machine)
    said: list[tuple[str, actions.Problem]] = []
    nothing: tuple[Any, ...] = (None, {}, [])
    for at in [0, *transitions(run)[:-1]]:
        for value in state_values(run, at):
            for empty in nothing:
                try:
                    actions.fork(run, at=at, by=None, state={value.name: empty})
                except actions.BadLaunch as refused:
                    said += [(value.name, problem) for problem in refused.problems]
    assert [problem for name, problem in said if problem.path.split(".")[1:2] != [name]] == []
    stuck = [problem.message for _, problem in said if "can't continue" in problem.message]
    assert all(
        re.fullmatch(r"The fork begins at \w+\. .* with \S+\. (It says: .+ )?Give another value, or .*", one)
        for one in stuck
    )
    assert stuck or machine != "ruled"


def test_a_draft_that_is_wanted_can_not_be_taken_away() -> None:
    run = finished()
    at = transitions(run, "thought")[0]
    with pytest.raises(actions.BadLaunch) as refused:
        fork(run, at, state={"draft": None, "steps": 2})
    (problem,) = refused.value.problems
    node = run.steps.get(seq=at).to
    assert (problem.path, problem.message) == (
        "state.draft",
        f"The fork begins at {node}. The machine can't continue there with null. "
        "Give another value, or fork from another step.",
    )


def test_what_a_tool_is_called_with_is_no_number_of_the_state() -> None:
    run = finished()
    at = transitions(run, "thought")[0]
    draft = {"thought": "I use search", "tool": "search", "args": {"q": "a", "n": -5}, "status": "draft"}
    forked = fork(run, at, state={"draft": draft})
    assert forked.steps.get(seq=at + 1).state_json is not None
    work(forked)


def test_a_name_that_a_value_of_the_state_does_not_have_is_called_no_setting() -> None:
    run = finished()
    draft = {"thought": "I use search", "instrument": "search"}
    with pytest.raises(actions.BadLaunch) as refused:
        fork(run, transitions(run, "thought")[0], state={"draft": draft})
    said = {problem.path: problem.message for problem in refused.value.problems}
    assert said["state.draft.instrument"].startswith("Unknown setting. Known: thought")


PLANNED_ROWS = [{"tool": "search", "args": {"q": "a"}}, {"tool": "final_answer", "args": {"answer": "42"}}]


@pytest.mark.parametrize(
    ("state", "path", "said"),
    [
        (
            {"pending_plan_step": 2},
            "state.pending_plan_step",
            "This must be a step of the plan, from 0 to 1.",
        ),
        ({"plan_index": 3}, "state.plan_index", "This must be from 0 to 2, the number of steps in the plan."),
        (
            {"plan": []},
            "state.pending_plan_step",
            "The plan has no steps, so none can be pending: leave this empty.",
        ),
        (
            {"plan": [{"tool": "search"}] * 201},
            "state.plan",
            "The plan has 201 steps; it may have 200 at most.",
        ),
    ],
)
def test_an_index_is_within_its_list_and_the_list_is_no_longer_than_a_plan(
    state: dict[str, Any], path: str, said: str
) -> None:
    played_ = {"replies": {"decision": PLANNED_ROWS}, "tools": TOOLS}
    settings: dict[str, Any] = {"plan": PLANNED_ROWS, "tools": ["search"]}
    run = launch(machine="planned", goal="Look", played=played_, **settings)
    work(run)
    with pytest.raises(actions.BadLaunch) as refused:
        fork(run, transitions(run, "planned")[0], state=state)
    (problem,) = refused.value.problems
    assert problem.path == path
    assert said in problem.message
    work(fork(run, transitions(run, "planned")[0], state={"plan_index": 1, "pending_plan_step": 1}))


def test_a_fork_of_a_fork_verifies_with_all_its_terms() -> None:
    run = finished(max_steps=9)
    once = work(fork(run, transitions(run, "executed")[0], settings={"max_steps": 8}))
    twice = work(fork(once, transitions(once)[-3], settings={"max_steps": 7}, state={"steps": 1}))
    assert twice.status == "succeeded"
    assert verifying.verify(twice, driver.tool_specs(twice)) is None


def test_a_fork_whose_rows_were_changed_does_not_verify() -> None:
    """The negative control of the checks above."""
    run = finished()
    forked = work(fork(run, transitions(run)[1], state={"steps": 3}))
    forked.steps.filter(seq=transitions(run)[1] + 1).update(state_json=None)
    assert verifying.verify(forked, driver.tool_specs(forked)) is not None
    forked.delete()


@pytest.mark.parametrize("column", ["facts_json", "answer_json"])
def test_what_can_not_be_read_any_more_is_a_fault_and_no_crash(column: str) -> None:
    """Of the row that says what a fork came from, and of an exchange, which no hash holds."""
    run = finished(max_steps=9)
    forked = work(fork(run, transitions(run)[1], settings={"max_steps": 8}))
    row = forked.steps.get(facts_json__contains='"run.forked"')
    kept = row if column == "facts_json" else forked.exchanges.order_by("seq")[0]
    text = getattr(kept, column)
    type(kept).objects.filter(pk=kept.pk).update(
        **{column: text.replace('"max_steps"', '"max_stepz"').replace('"kind":"model', '"kind":"modem')}
    )
    misfit = verifying.verify(forked, driver.tool_specs(forked))
    assert misfit is not None
    assert (misfit.seq == row.seq) == (column == "facts_json")
    assert "hash" in misfit.why or "can't be read" in misfit.why
    type(kept).objects.filter(pk=kept.pk).update(**{column: text})
    assert verifying.verify(forked, driver.tool_specs(forked)) is None


def test_another_script_is_played_from_the_row_on() -> None:
    run = finished()
    at = transitions(run)[0]
    other = script(FINAL, {"thought": "FINAL ANSWER: other", "action": None})
    forked = work(fork(run, at, script=other))
    assert (forked.status, forked.answer) == ("succeeded", "other")


def test_another_script_that_is_too_short_for_the_whole_run_says_what_it_is_read_as() -> None:
    run = finished()
    forked = work(fork(run, transitions(run)[0], script=script(FINAL)))
    assert forked.exit_reason == "model_error"
    stop = forked.steps.get(kind="stop").facts_json
    assert "script exhausted (role decision, call 2). The script covers the whole run" in stop
    anew = work(fork(run, 0, script=script(think("search", q="a"))))
    assert "whole run" not in anew.steps.get(kind="stop").facts_json


def test_other_answers_are_those_of_the_whole_run_as_a_script_is() -> None:
    replies = (think("send", to="a"), think("send", to="b"), FINAL)
    run = work(launch(*replies, answers=[{"verdict": "approve"}, {"verdict": "approve"}]))
    at = transitions(run, "executed")[0]
    forked = work(fork(run, at, settings={"answers": [{"verdict": "reject", "message": "no"}]}))
    assert forked.status == "waiting"
    answers = [{"verdict": "approve"}, {"verdict": "reject", "message": "no"}]
    forked = work(fork(run, at, settings={"answers": answers}))
    decided = Decision.objects.filter(interrupt__run=forked).order_by("interrupt__seq")
    assert [one.verdict for one in decided] == ["approve", "reject"]


# --- answers --------------------------------------------------------------------------------------------------------


def asked_run(verdict: str = "approve", **parts: Any) -> Run:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    decide(run, verdict, **parts)
    return work(run)


def test_what_people_answered_after_the_row_is_asked_again() -> None:
    run = asked_run()
    forked = work(fork(run, transitions(run, "executed")[0]))
    assert (forked.status, pending(forked).tool) == ("waiting", "send")
    decide(forked, "approve")
    work(forked)
    assert forked.status == "succeeded"


def test_answers_that_are_kept_are_given_again_to_the_same_question() -> None:
    run = asked_run("edit", args={"to": "carol"})
    forked = work(fork(run, transitions(run, "executed")[0], answers="keep"))
    assert forked.status == "succeeded"
    decision = Decision.objects.get(interrupt__run=forked)
    assert (decision.channel, decision.verdict, json.loads(decision.args_json or "")) == (
        "kept",
        "edit",
        {"to": "carol"},
    )
    assert run.interrupts.count() == 1


def test_a_question_about_another_call_is_asked_all_the_same() -> None:
    run = asked_run()
    other = script(think("search", q="a"), think("send", to="eve"), FINAL)
    forked = work(fork(run, transitions(run, "executed")[0], script=other, answers="keep"))
    assert (forked.status, pending(forked).args) == ("waiting", {"to": "eve"})


def test_another_decision_is_given_to_the_question_after_the_row() -> None:
    run = asked_run()

    at = max(seq for seq in transitions(run) if seq < run.interrupts.get().seq)
    forked = work(fork(run, at, decision={"verdict": "reject", "message": "Not to bob."}))
    decision = Decision.objects.get(interrupt__run=forked)
    assert (decision.verdict, decision.message, decision.channel) == ("reject", "Not to bob.", "fork")
    assert forked.tool_calls == 1
    assert forked.model_calls == 3


def test_edited_arguments_given_with_a_fork_are_what_runs() -> None:
    run = asked_run("reject", message="Not to bob.")
    at = max(seq for seq in transitions(run) if seq < run.interrupts.get().seq)
    forked = work(fork(run, at, decision={"verdict": "edit", "args": {"to": "carol"}}))
    decision = Decision.objects.get(interrupt__run=forked)
    assert (decision.verdict, json.loads(decision.args_json or "")) == ("edit", {"to": "carol"})
    assert forked.status == "succeeded"


@pytest.mark.parametrize(
    ("decision", "path"),
    [
        ({"verdict": "resume"}, "decision.verdict"),
        ({"verdict": "edit", "args": {"n": "x"}}, "decision.args.to"),
        ({"verdict": "respond"}, "decision.message"),
        ({"verdict": "approve", "wild": 1}, "decision"),
        ({"verdict": "rollback"}, "decision.verdict"),
    ],
)
def test_a_decision_that_the_question_can_not_take_is_refused(decision: dict[str, Any], path: str) -> None:
    run = asked_run()
    with pytest.raises(actions.BadLaunch) as refused:
        fork(run, transitions(run)[0], decision=decision)
    assert refused.value.problems[0].path == path


def test_a_decision_without_a_verdict_is_told_which_there_are() -> None:
    run = asked_run()
    with pytest.raises(
        actions.BadLaunch, match=r"Name an answer to this question \(tool_call\). Possible: approve"
    ):
        fork(run, transitions(run)[0], decision={"message": "Not to bob."})


def test_a_decision_needs_a_question() -> None:
    run = finished()
    with pytest.raises(actions.BadLaunch, match="has no question after step"):
        fork(run, 0, decision={"verdict": "approve"})


def test_decisions_before_the_row_are_history_in_the_fork() -> None:
    run = asked_run()
    at = transitions(run, "executed")[1]
    forked = fork(run, at)
    copy, old = Interrupt.objects.get(run=forked), Interrupt.objects.get(run=run)
    assert copy.pk != old.pk
    assert (copy.status, copy.decision.verdict) == ("decided", "approve")
    row = forked.steps.get(kind="decision")
    assert json.loads(row.facts_json)[0]["interrupt"] == str(copy.pk)
    assert "decision" in kinds(forked)
    work(forked)


def test_answers_given_at_launch_go_on_where_the_row_stands() -> None:
    answers = [{"verdict": "approve"}, {"verdict": "reject", "message": "no"}]
    replies = (think("send", to="a"), think("send", to="b"), FINAL)
    run = work(launch(*replies, answers=answers))
    forked = work(fork(run, transitions(run, "executed")[0]))
    verdicts = Decision.objects.filter(interrupt__run=forked).order_by("interrupt__seq")
    assert [one.verdict for one in verdicts] == ["approve", "reject"]
    assert forked.status == "succeeded"


def test_a_rollback_can_keep_the_answers_too() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), think("send", to="bob"), FINAL, FINAL))
    decide(run, "approve")
    work(run)
    assert pending(run).tool == "send"
    at = max(seq for seq in transitions(run) if seq < run.interrupts.order_by("seq").first().seq)  # type: ignore[union-attr]
    actions.rewind(run, to=at, by=None, answers="keep")
    work(run)
    kept = Decision.objects.get(interrupt__run=run, channel="kept")
    assert kept.interrupt.args == {"to": "bob"}
    assert run.status == "succeeded"


def kept_run() -> Run:
    """A fork in which every question was answered as before."""
    run = asked_run()
    return work(fork(run, 0, answers="keep"))


def test_a_fork_of_a_fork_asks_again_what_was_answered_there_as_before() -> None:
    kept = kept_run()
    assert kept.status == "succeeded"
    forked = work(fork(kept, transitions(kept, "executed")[0]))
    assert (forked.status, pending(forked).tool) == ("waiting", "send")


def test_a_rollback_asks_again_what_was_kept_in_one_before() -> None:
    """Two answers were kept, and the second was not needed yet."""
    to_bob, to_eve = think("send", to="bob"), think("send", to="eve")
    run = work(launch(think("search", q="a"), to_bob, to_bob, to_eve, to_eve, FINAL))
    for _ in range(2):
        decide(run, "approve")
        work(run)
    actions.rewind(run, to=transitions(run, "executed")[0], by=None, answers="keep")
    work(run)
    kept = Decision.objects.get(interrupt__run=run, channel="kept").interrupt
    assert (kept.args, pending(run).args) == ({"to": "bob"}, {"to": "eve"})
    actions.rewind(run, to=max(seq for seq in transitions(run) if seq < kept.seq), by=None)
    work(run)
    assert (run.status, pending(run).args) == ("waiting", {"to": "bob"})


def test_the_question_that_is_answered_otherwise_is_not_answered_as_before_when_it_comes_again() -> None:
    run = asked_run()
    again = script(think("search", q="a"), think("send", to="bob"), think("send", to="bob"), FINAL)
    decision = {"verdict": "reject", "message": "no"}
    at = transitions(run, "executed")[0]
    forked = work(fork(run, at, script=again, decision=decision, answers="keep"))
    assert Decision.objects.get(interrupt__run=forked).verdict == "reject"
    assert (forked.status, pending(forked).args) == ("waiting", {"to": "bob"})


def test_the_launch_s_answer_to_the_question_that_is_answered_otherwise_is_for_no_later_one() -> None:
    answers = [{"verdict": "approve", "message": message} for message in ("bob", "eve")]
    to_bob, to_eve = think("send", to="bob"), think("send", to="eve")
    run = work(launch(to_bob, to_eve, FINAL, answers=answers))
    decision = {"verdict": "reject", "message": "no"}
    forked = work(fork(run, 0, script=script(to_bob, to_eve, to_bob, FINAL), decision=decision))
    given = Decision.objects.filter(interrupt__run=forked).order_by("interrupt__seq")
    assert [(one.verdict, one.message) for one in given] == [("reject", "no"), ("approve", "eve")]
    assert (forked.status, pending(forked).args) == ("waiting", {"to": "bob"})


def test_answers_that_the_fork_itself_gives_are_all_there_after_its_first_decision() -> None:
    to_bob, to_eve = think("send", to="bob"), think("send", to="eve")
    run = work(launch(to_bob, to_eve, FINAL, answers=[{"verdict": "approve"}] * 2))
    mine = {"answers": [{"verdict": "approve", "message": "mine"}]}
    forked = work(fork(run, 0, decision={"verdict": "reject", "message": "no"}, settings=mine))
    given = Decision.objects.filter(interrupt__run=forked).order_by("interrupt__seq")
    assert [(one.verdict, one.message) for one in given] == [("reject", "no"), ("approve", "mine")]
    assert forked.settings["answers"] == mine["answers"]


def test_the_answers_after_the_question_that_is_answered_otherwise_are_kept() -> None:
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL))
    for _ in range(2):
        decide(run, "approve")
        work(run)
    forked = work(fork(run, 0, decision={"verdict": "reject", "message": "no"}, answers="keep"))
    verdicts = Decision.objects.filter(interrupt__run=forked).order_by("interrupt__seq")
    assert [(one.verdict, one.channel) for one in verdicts] == [("reject", "fork"), ("approve", "kept")]
    assert forked.status == "succeeded"


def test_an_answer_that_a_fork_gave_beforehand_is_a_persons_and_can_be_kept() -> None:
    run = asked_run()
    forked = work(fork(run, 0, decision={"verdict": "respond", "message": "It is sent."}))
    assert [one.channel for one in again(forked, 0).answered_by_people] == ["fork"]
    kept = work(fork(forked, 0, answers="keep"))
    decision = Decision.objects.get(interrupt__run=kept)
    assert (decision.channel, decision.verdict, decision.message) == ("kept", "respond", "It is sent.")


def test_kept_answers_of_logs_that_do_not_say_when_they_were_given_were_given_before() -> None:
    old = {"about": "tool_call", "question": "q", "verdict": "approve", "args": None, "message": ""}
    assert KeptAnswer.model_validate(old).channel == "kept"


def test_keeping_many_answers_takes_as_many_queries_as_keeping_one() -> None:
    counted = []
    for many in (1, 3):
        run = work(launch(*[think("send", to="bob", n=number) for number in range(many)], FINAL))
        for _ in range(many):
            decide(run, "approve")
            work(run)
        with CaptureQueriesContext(connection) as asked:
            kept = copying.answers_after(run, 0, copying.PEOPLE)
        assert [one.verdict for one in kept] == ["approve"] * many
        counted.append(len(asked))
    assert counted[0] == counted[1]


# --- limits ---------------------------------------------------------------------------------------------------------


def test_the_limits_of_a_fork_are_its_own_and_not_what_was_added_before_it() -> None:
    replies = [think("search", q=q) for q in ("a", "b", "c")]
    run = work(launch(*replies, FINAL, limits={"cost_usd": 0.002}))
    decide(run, "top_up", args={"cost_usd": 0.01})
    work(run)
    assert copying.limits_at(run, run.head) == {"cost_usd": 0.012}
    at = transitions(run, "executed")[-1]
    assert at > run.steps.get(kind="limit").seq
    forked = work(fork(run, at, settings={"limits": {"cost_usd": 0.5}}))
    for row in (0, at, at + 1, forked.head):
        assert copying.limits_at(forked, row) == {"cost_usd": 0.5}
    assert actions.rerun(forked, at=at, by=None).settings["limits"] == {"cost_usd": 0.5}
    assert actions.replay(forked, by=None)[0].budgets.get(name="cost_usd").limit == 0.5
    assert actions.replay(run, by=None)[0].budgets.get(name="cost_usd").limit == 0.012


def test_what_is_added_in_a_fork_is_added_to_its_limits() -> None:
    run = finished()
    forked = work(fork(run, transitions(run)[0], settings={"limits": {"tokens": 200}}))
    before = pending(forked).seq
    decide(forked, "top_up", args={"tokens": 1000})
    work(forked)
    assert copying.limits_at(forked, before) == {"tokens": 200}
    assert copying.limits_at(forked, forked.head) == {"tokens": 1200}


# --- rights ---------------------------------------------------------------------------------------------------------


def test_who_may_see_a_run_and_launch_may_fork_it_and_the_fork_is_theirs() -> None:
    owner, other = person("alice", "add_run"), person("bob", "view_run", "add_run")
    run = work(launch(think("search", q="a"), FINAL, owner=owner))
    forked = fork(run, 0, by=other)
    assert forked.owner == other
    for nobody in (stranger("charlie", "add_run"), person("dora", "view_run")):
        with pytest.raises(actions.NotAllowed):
            fork(run, 0, by=nobody)


def test_keeping_answers_is_deciding_and_needs_its_right() -> None:
    owner = person("alice", "add_run")
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL, owner=owner))
    decide(run, "approve")
    work(run)
    at = transitions(run)[0]
    with pytest.raises(actions.NotAllowed):
        fork(run, at, by=owner, answers="keep")
    with pytest.raises(actions.NotAllowed):
        fork(run, at, by=owner, decision={"verdict": "approve"})
    reviewer = person("rob", "add_run", "view_run", "decide_interrupt")
    assert work(fork(run, at, by=reviewer, answers="keep")).status == "succeeded"


def test_nobody_s_right_to_decide_goes_along_with_a_fork() -> None:
    kept = kept_run()
    nobody = person("bob", "view_run", "add_run")
    forked = work(fork(kept, transitions(kept, "executed")[0], by=nobody))
    assert (forked.status, pending(forked).tool) == ("waiting", "send")


def test_a_run_again_from_a_row_is_a_fork_that_changes_nothing() -> None:
    run = finished()
    again = work(actions.rerun(run, at=transitions(run)[0], by=None))
    assert (again.origin, again.status) == ("rerun", "succeeded")
    assert again.settings == run.settings
