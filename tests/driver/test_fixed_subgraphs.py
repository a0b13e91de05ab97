"""A subgraph as a fixed node of a `ruled` run: after the first thought that passed, with its metadata merged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import actions
from runs.models import Run
from runs.reading.ending import ending_of
from tests.launching import FINAL, TOOLS, USAGE, think
from tests.replaying import check_replay
from tests.running import decide, pending, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

LOOK = think("search", q="tides")
TOKEN = {"thought": "FINAL ANSWER: token 7", "action": None}
AUTH: dict[str, Any] = {"machine": "ruled", "settings": {}, "at": "thought"}


def begun(
    *replies: Any, child: tuple[Any, ...] = (TOKEN,), auth: dict[str, Any] = AUTH, **settings: Any
) -> Run:
    """A run with the fixed child `auth`, driven as far as it goes."""
    script = {
        "replies": {"decision": list(replies)},
        "tools": TOOLS,
        "usage": USAGE,
        "subgraphs": {"auth": {"replies": {"decision": list(child)}}},
    }
    settings = {"subgraphs": {"auth": auth}} | settings
    return work(
        actions.start_run(machine="ruled", goal="Tides", settings=settings, owner=None, script=script)
    )


def metadata(run: Run) -> dict[str, Any]:
    text = run.steps.filter(state_json__isnull=False).order_by("-seq").values_list("state_json", flat=True)[0]
    found: dict[str, Any] = json.loads(text or "")["metadata"]
    return found


def edges(run: Run) -> list[str]:
    rows = run.steps.filter(kind="transition", live=True).order_by("seq")
    return [str(edge) for edge in rows.values_list("edge", flat=True)]


def test_it_runs_once_after_the_first_thought_that_passed_with_the_goal_of_its_parent() -> None:
    run = begun(LOOK, FINAL)
    assert edges(run)[:5] == ["thought", "pass", "subgraph", "merged", "executed"]
    assert edges(run).count("subgraph") == 1
    child = Run.objects.get(parent=run)
    assert (child.goal, child.child_name, child.status) == ("Tides", "auth", "succeeded")
    assert run.status == "succeeded" and run.cost_usd == pytest.approx(0.003)
    check_replay(run)


def test_its_metadata_is_merged_and_the_parents_own_stays() -> None:
    run = begun(LOOK, FINAL)
    merged = metadata(run)
    assert (merged["answer"], merged["exit_reason"]) == ("token 7", "goal_achieved")
    assert (merged["goal"], merged["retry_count"], merged["tool_history"]) == ("Tides", 0, ["search"])
    assert merged["total_cost"] == pytest.approx(run.cost_usd)
    row = run.steps.get(edge="merged")
    (told,) = (fact for fact in json.loads(row.facts_json) if fact["kind"] == "ruled.subgraph.merged")
    assert told["metadata"] == {"answer": "token 7", "exit_reason": "goal_achieved"}


def test_a_child_of_another_machine_gives_its_answer_and_how_it_ended() -> None:
    done = {"action": "complete", "completion_summary": "checked"}
    run = begun(LOOK, FINAL, child=(done,), auth=AUTH | {"machine": "checklist"})
    assert (metadata(run)["answer"], metadata(run)["exit_reason"]) == ("checked", "complete")


def test_one_that_fails_is_told_and_the_run_goes_on() -> None:
    run = begun(LOOK, FINAL, child=("no JSON",) * 3)
    assert run.status == "succeeded"
    assert "answer" not in metadata(run) and metadata(run)["exit_reason"] == "fatal_error"
    check_replay(run)


def test_one_that_fails_or_is_denied_stands_beside_the_agents_word() -> None:
    failed = begun(LOOK, FINAL, child=("no JSON",) * 3)
    denied = begun(LOOK, FINAL, rules=[{"when": {"tool": "agent.auth"}, "do": "deny"}])
    said = [ending.beside for run in (failed, denied) if (ending := ending_of(run)) is not None]
    assert said == [("1 call failed",), ("1 call did not run",)]


def test_it_is_no_tool_of_the_model() -> None:
    run = begun(think("agent.auth", goal="x"), FINAL)
    assert Run.objects.filter(parent=run).count() == 1
    facts = "".join(run.steps.values_list("facts_json", flat=True))
    assert "This run may not call agent.auth." in facts


def test_a_rule_may_ask_before_it_and_a_change_of_its_goal_leaves_the_draft() -> None:
    rules = [{"when": {"tool": "agent.auth"}, "do": "ask"}, {"when": {"tool": "*"}, "do": "allow"}]
    run = begun(LOOK, FINAL, rules=rules)
    assert pending(run).tool == "agent.auth"
    decide(run, "edit", args={"goal": "Only sign in"})
    run = work(run)
    assert Run.objects.get(parent=run).goal == "Only sign in"
    assert json.loads(run.exchanges.get(kind="tool_call").request_json)["args"] == {"q": "tides"}


def test_one_that_is_refused_is_skipped_and_told() -> None:
    rules = [{"when": {"tool": "agent.auth"}, "do": "deny"}, {"when": {"tool": "*"}, "do": "allow"}]
    run = begun(LOOK, FINAL, rules=rules)
    assert run.status == "succeeded" and not Run.objects.filter(parent=run).exists()
    assert "exit_reason" not in metadata(run)


def test_a_rollback_to_before_it_runs_it_again() -> None:
    run = begun(LOOK, LOOK, FINAL, interrupt_every=1, cache=False)
    decide(run, "rollback", to_step=transitions(run, "pass")[0])
    run = work(run)
    while run.status == "waiting":
        decide(run, "resume")
        run = work(run)
    assert run.status == "succeeded"
    assert Run.objects.filter(parent=run).count() == 2
    check_replay(run)


@pytest.mark.parametrize("machine", ["contract", "checklist", "planned"])
def test_another_machine_refuses_a_fixed_place_in_a_sentence(machine: str) -> None:
    with pytest.raises(actions.BadLaunch, match="this machine has no such place"):
        actions.start_run(
            machine=machine,
            goal="x",
            settings={"subgraphs": {"auth": AUTH}},
            owner=None,
            script={"replies": {}},
        )
