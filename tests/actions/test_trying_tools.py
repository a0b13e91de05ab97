"""A tool is tried out as a run of one call: gates, log and budget hold as in any run."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from runs import actions
from runs.actions import BadArguments
from runs.adapters.mcp import Definition
from runs.models import McpServer, McpTool, Run, SiteRule
from runs.store import mcp as kept
from tests.cast import alice, bob, charlie
from tests.running import check_everything, decide, pending, work

pytestmark = [pytest.mark.django_db]


def tried(tool: str, **args: Any) -> Run:
    return work(actions.try_tool(tool, args, by=alice()))


def calls_of(run: Run) -> list[dict[str, Any]]:
    asked = run.exchanges.filter(kind="tool_call").exclude(answer_json=None)
    return [json.loads(str(exchange.answer_json)) for exchange in asked]


def test_a_tool_that_reads_is_called_once_and_the_run_ends() -> None:
    run = tried("calculator", expression="6 * 7")
    assert (run.status, run.exit_reason) == ("succeeded", "goal_achieved")
    (answer,) = calls_of(run)
    assert "42" in str(answer["value"])
    assert run.goal == "Try out calculator."
    check_everything()


def test_a_tool_that_writes_asks_first_and_is_the_real_one() -> None:
    run = tried("write_file", name="a.txt", content="high water")
    assert (run.status, pending(run).tool) == ("waiting", "write_file")
    decide(run, "approve")
    assert work(run).status == "succeeded"
    (answer,) = calls_of(run)
    assert [file["name"] for file in answer["files"]] == ["a.txt"]


def test_a_call_that_fails_is_not_made_again() -> None:
    run = tried("read_file", name="nowhere.txt")
    assert run.status == "succeeded"
    assert [answer["kind"] for answer in calls_of(run)] == ["failed"]


def test_a_rejected_call_is_not_made() -> None:
    run = tried("write_file", name="a.txt", content="x")
    decide(run, "reject", message="No.")
    assert work(run).status == "succeeded"
    assert not calls_of(run)


def test_the_sites_rules_hold() -> None:
    SiteRule.objects.create(rule_json='{"when": {"tool": "calculator"}, "do": "ask"}')
    run = tried("calculator", expression="1")
    assert pending(run).tool == "calculator"


def test_two_trials_of_one_tool_do_not_share_a_reply() -> None:
    owner = alice()
    answers = []
    for text in ("1 + 1", "2 + 2"):
        run = work(actions.try_tool("calculator", {"expression": text}, by=owner))
        answers.append(str(calls_of(run)))
    assert "2" in answers[0] and "4" in answers[1]


@pytest.mark.parametrize(
    ("name", "args", "field", "sentence"),
    [
        ("calculator", {}, "expression", "calculator needs the argument expression."),
        ("calculator", {"expression": "x" * 501}, "expression", "at most 500 characters"),
        ("calculator", {"expression": "1", "more": 1}, "more", "has no argument more"),
        ("search_files", {"pattern": "a", "where": "nowhere"}, "where", "must be one of"),
    ],
)
def test_bad_arguments_are_told_by_name_and_nothing_runs(
    name: str, args: dict[str, Any], field: str, sentence: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        actions.try_tool(name, args, by=alice())
    (problem,) = caught.value.problems
    assert problem.path == field and sentence in problem.message
    assert not Run.objects.exists()


def test_without_the_packages_of_a_server_the_call_itself_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    McpServer.objects.create(name="office", command="printer")
    kept.keep_found("office", (Definition(name="print", input_schema={"type": "object"}),))
    tool = McpTool.objects.get()
    tool.effects = "read"
    kept.approve(tool, tool.found_sha256, "root")
    monkeypatch.setitem(sys.modules, "runs.adapters.mcp.schemas", None)
    run = tried("office.print")
    assert run.status == "failed"
    assert "the installation lacks" in str(calls_of(run))


def test_a_tool_that_is_not_there_is_told() -> None:
    with pytest.raises(actions.NotPossible, match="There is no tool nosuch"):
        actions.try_tool("nosuch", {}, by=alice())


@pytest.mark.parametrize("who", [bob, charlie])
def test_only_who_may_launch_may_try(who: Any) -> None:
    person = who()
    before = Run.objects.count()
    with pytest.raises(actions.NotAllowed):
        actions.try_tool("calculator", {"expression": "1"}, by=person)
    assert Run.objects.count() == before
