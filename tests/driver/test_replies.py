"""Replies that did not end in order, and reasoning, through log, replay, script, cache and pages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import actions
from runs.models import Run
from runs.reading.exporting import export
from runs.reading.inspector import step_view
from runs.reading.rows import row_views
from runs.reading.script_export import launch_of, script_of
from tests.cast import person, signed_in
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import transitions, work

pytestmark = pytest.mark.usefixtures("every_run_verifies")

CUT = {"$reply": think("send", to="eve"), "ended": "length", "reasoning": "I write to everybody."}
THOUGHT = f"<think>{json.dumps(think('send', to='eve'))}</think>{json.dumps(think('search', q='a'))}"
TWO = json.dumps(think("search", q="b")) + json.dumps(think("send", to="eve"))


def told(run: Run) -> list[tuple[Any, ...]]:
    return list(run.steps.order_by("seq").values_list("seq", "kind", "edge", "facts_json", "state_json"))


def sent(run: Run) -> list[str]:
    return list(run.exchanges.filter(kind="tool_call", name="send").values_list("request_json", flat=True))


def test_what_was_cut_is_paid_told_and_never_carried_out() -> None:
    run = work(launch(CUT, THOUGHT, {"$reply": "x", "ended": "error"}, TWO, FINAL, rules=ALLOW))
    assert (run.status, sent(run)) == ("succeeded", [])
    assert (run.model_calls, run.tool_calls, run.cost_usd) == (3, 2, 0.005)
    texts = [f"{row.line.tag}: {row.line.text}" for row in row_views(run)]
    assert any(text.startswith("retry: The reply was cut off at its limit of 20 tokens.") for text in texts)
    assert any("rest ignored" in text for text in texts)


def test_a_replay_and_a_script_of_it_come_to_the_same_rows() -> None:
    run = work(launch(CUT, THOUGHT, {"$reply": "x", "ended": "error"}, TWO, FINAL, rules=ALLOW))
    made, difference = actions.replay(run, by=None)
    assert (difference, told(made)) == (None, told(run))
    again = work(actions.start_run(owner=None, **json.loads(json.dumps(launch_of(run)))))
    assert told(again) == told(run)
    assert script_of(run)["replies"]["decision"][0] == CUT


def test_two_in_a_row_end_the_run_and_its_replay_and_its_script() -> None:
    run = work(launch(CUT, CUT, FINAL, rules=ALLOW))
    assert (run.status, run.exit_reason, run.model_calls, run.cost_usd) == ("failed", "model_error", 0, 0.002)
    assert "Raise max output tokens in the model's profile" in json.dumps(export(run))
    made, difference = actions.replay(run, by=None)
    assert (difference, made.exit_reason) == (None, "model_error")
    again = work(actions.start_run(owner=None, **json.loads(json.dumps(launch_of(run)))))
    assert told(again) == told(run)


def test_a_run_with_summaries_that_were_cut_is_replayed_and_played_alike() -> None:
    results = [{"output": f"part {number} " + "lorem ipsum " * 50} for number in range(10)]
    tools = {"part": {"params": {"n": "integer"}, "effects": "read", "results": results}}
    summaries = [
        {"$reply": {"goal": "g"}, "ended": "length"},
        json.dumps(think("part", n=1)),
        '<think>so</think>{"progress": "uses {", "goal": "g"}',
    ] * 5
    replies = {"decision": [*(think("part", n=number) for number in range(10)), FINAL], "summary": summaries}
    played = script(tools=tools) | {"replies": replies}
    run = work(launch(played=played, context={"limit_tokens": 1400}, max_steps=40))
    assert run.status == "succeeded"
    made, difference = actions.replay(run, by=None)
    assert (difference, told(made)) == (None, told(run))
    again = work(actions.start_run(owner=None, **json.loads(json.dumps(launch_of(run)))))
    assert told(again) == told(run)


def test_a_reply_from_the_cache_is_read_as_it_was_the_first_time() -> None:
    rules = [{"when": {"tool": "send"}, "do": "ask"}]
    run = work(launch(think("search", q="b"), THOUGHT, think("send", to="bob"), FINAL, rules=rules))
    actions.rewind(run, to=transitions(run, "continue")[0], by=None)
    work(run)
    assert run.cached_model_calls >= 1
    asks = run.exchanges.filter(kind="model_call", name="decision").order_by("seq")
    again = next(asked for asked in asks if '"cached":true' in (asked.answer_json or ""))
    first = step_view(run, again.seq)
    assert first is not None and first.exchange is not None
    assert first.exchange.reasoning == json.dumps(think("send", to="eve"))
    assert json.loads(first.exchange.reply) == think("search", q="a")


def test_the_page_shows_reasoning_folded_and_says_that_a_cut_reply_was_not_read() -> None:
    alice = person("alice", "view_run", "add_run")
    run = work(launch(CUT, TWO, FINAL, rules=ALLOW, owner=alice))
    page = signed_in(alice)
    cut = page.get(f"/runs/{run.pk}/steps/1/").content.decode()
    assert "<summary>Reasoning (not part of the reply)</summary>" in cut
    assert "I write to everybody." in cut
    assert "The reply was cut off at its limit of 20 tokens. It was ignored." in cut
    two = page.get(f"/runs/{run.pk}/steps/3/").content.decode()
    assert "<summary>Not read</summary>" in two
