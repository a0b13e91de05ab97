"""Infra tools: a run reads its own record, finds earlier blocks, and hides what it no longer needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User

from runs import actions
from runs.models import Exchange, Run
from runs.reading.inspector import step_view
from runs.reading.prompts import prompt_of
from tests.runs.running import TOOLS, USAGE, _every_run_verifies, person, work

pytestmark = [pytest.mark.database]

__all__ = ["_every_run_verifies"]

DONE = {"action": "complete", "completion_summary": "Twice a day."}
RESULT = "st:4"
"""Where the result of the first call stands, after a decision and the call itself."""


def use(tool: str, **params: Any) -> dict[str, Any]:
    """A decision that calls a tool."""
    return {
        "action": "call_tool",
        "strategy": "explore",
        "tool_call": {"tool_id": tool, "params": params},
    }


SEARCH = use("search", q="tides")


def run_of(*replies: Any, owner: User | None = None, **settings: Any) -> Run:
    """A `checklist` run, driven as far as it goes."""
    played = {"replies": {"decision": list(replies)}, "tools": TOOLS, "usage": USAGE}
    goal = "Write a short report about tides"
    return work(
        actions.start_run(machine="checklist", goal=goal, settings=settings, owner=owner, script=played)
    )


def found(run: Run, nth: int = 0) -> dict[str, Any]:
    """What the infra call number `nth` gave."""
    facts = [fact for row in run.steps.order_by("seq") for fact in json.loads(row.facts_json)]
    told: dict[str, Any] = [fact for fact in facts if fact["kind"] == "react.infra.result"][nth]
    return told


def test_a_block_is_read_again_by_its_path() -> None:
    run = run_of(SEARCH, use("react.read", paths=[RESULT]), DONE)
    assert "three results" in found(run)["value"][RESULT]
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_file_is_read_by_its_name() -> None:
    tools = {
        **TOOLS,
        "save": {
            "effects": "read",
            "results": [{"output": "ok", "files": [{"name": "a.txt", "text": "high water"}]}],
        },
    }
    played = {
        "replies": {"decision": [use("save"), use("react.read", paths=["fi:a.txt"]), DONE]},
        "tools": tools,
    }
    run = work(actions.start_run(machine="checklist", goal="Tides", settings={}, owner=None, script=played))
    assert found(run)["value"] == {"fi:a.txt": "high water"}


@pytest.mark.parametrize(
    "path", ["st:99", "st:1", "fi:nosuch.txt", "fi:../secret", "su:4", "st:", "st:²", "x", ""]
)
def test_an_unknown_path_is_a_recoverable_error_that_names_it(path: str) -> None:
    run = run_of(SEARCH, use("react.read", paths=[RESULT, path]), DONE)
    assert found(run)["error"] == f"There is nothing at {path}."
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_row_that_is_dead_is_not_read() -> None:
    answers = [{"verdict": "rollback", "to_step": 2}, *[{"verdict": "resume"}] * 3]
    run = run_of(SEARCH, use("react.read", paths=[RESULT]), DONE, interrupt_every=1, answers=answers)
    assert run.steps.filter(seq=4, live=False).exists()
    assert found(run)["error"] == f"There is nothing at {RESULT}."


def test_a_search_finds_blocks_of_this_run_and_of_the_same_persons_earlier_runs() -> None:
    alice, bob = person("ann", "add_run"), person("ben", "add_run")
    earlier = run_of(SEARCH, {**DONE, "completion_summary": "The moon pulls."}, owner=alice)
    run_of(SEARCH, {**DONE, "completion_summary": "The moon is cheese."}, owner=bob)
    run = run_of(SEARCH, use("react.memory_read", query="MOON pulls"), DONE, owner=alice)
    hits = found(run)["value"]
    assert [hit.get("run") for hit in hits] == [earlier.pk]
    assert "The moon pulls." in hits[0]["text"]


def test_a_search_gives_the_best_first_and_as_many_as_were_asked_for() -> None:
    search = use("react.memory_read", query="three results tides", top_k=1)
    run = run_of(SEARCH, use("search", q="moon"), search, DONE)
    hits = found(run)["value"]
    assert len(hits) == 1
    assert "three results" in hits[0]["text"]


def test_a_search_does_not_find_searches() -> None:
    search = use("react.memory_read", query="xylophone")
    run = run_of(search, search, DONE)
    assert (found(run)["value"], found(run, 1)["value"]) == ([], [])


def test_a_hidden_block_is_gone_from_the_next_prompt() -> None:
    run = run_of(SEARCH, use("react.memory_hide", path=RESULT, replacement="nothing new"), DONE)
    asks = Exchange.objects.filter(run=run, kind="model_call").order_by("seq")
    texts = ["\n".join(message.text for message in prompt_of(run, ask.seq) or ()) for ask in asks]
    assert "three results" in texts[1]
    assert "three results" not in texts[2]
    assert "nothing new" in texts[2]


def test_only_blocks_can_be_hidden() -> None:
    run = run_of(use("react.memory_hide", path="fi:a.txt", replacement="x"), DONE)
    assert found(run)["error"] == "There is no block at fi:a.txt."


def test_every_row_of_such_a_run_can_be_inspected() -> None:
    replies = ("prose", {**SEARCH, "notes": "✓ [1]"}, use("react.memory_read", query="tides"), DONE)
    run = run_of(*replies, plan=["look"])
    shown = [step_view(run, seq) for seq in range(1, run.head + 1)]
    text = "".join(str(fact) for view in shown if view for fact in view.facts)
    for words in (
        "Acknowledged in the plan",
        "From the record",
        "Decision: call tool",
        "unreadable",
        "<li>look</li>",
    ):
        assert words in text


def compacted(*replies: Any, summary: str) -> Run:
    """A run whose window is so small that what came first is summed up."""
    tides = {**TOOLS, "look": {"params": {}, "effects": "read", "results": [{"output": "high water " * 150}]}}
    played = {
        "replies": {"decision": list(replies), "summary": [summary] * 20},
        "tools": tides,
        "usage": USAGE,
    }
    settings = {"context": {"limit_tokens": 2500}, "exploration_budget": 20, "max_iterations": 20}
    return work(
        actions.start_run(machine="checklist", goal="Tides", settings=settings, owner=None, script=played)
    )


def test_a_summary_is_read_again_and_hidden_by_its_path() -> None:
    looks = [use("look")] * 6
    before = compacted(*looks, DONE, summary="High water comes twice.")
    made = before.steps.filter(kind="compaction").order_by("seq").values_list("seq", flat=True)
    assert made, "nothing was summed up"
    path = f"su:{made[0]}"
    hide = use("react.memory_hide", path=path, replacement="nothing new")
    run = compacted(*looks, use("react.read", paths=[path]), hide, DONE, summary="High water comes twice.")
    assert found(run)["value"][path].startswith("High water comes twice.")
    assert found(run, 1)["value"] == {"path": path, "replacement": "nothing new"}
