"""A script plays as it is written, and says where it is wrong (docs/commands.md, "Scripts")."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from runs.adapters.scripted import BadScript, Script, ScriptedModel, ScriptedTools, parse_script
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied, Role, ToolCall, ToolReturned
from runs.engine.ports import ModelRequest, Watch

SCRIPT: dict[str, Any] = {
    "replies": {
        "decision": [
            {"action": "complete", "n": 1},
            "no { json",
            {"$error": "context_length"},
            {"$error": "transient"},
        ]
    },
    "tools": {
        "web_search": {
            "params": {"q": "string", "n": "integer"},
            "required": ["q"],
            "effects": "read",
            "results": [
                {"output": "three results"},
                {"error": "timed out", "kind": "transient"},
                {"error": "bad"},
            ],
        },
        "hidden": {"effects": "send", "allowed": False},
    },
    "usage": {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.001},
    "subgraphs": {"helper": {"replies": {"decision": ["from the child"]}}, "other": {"tools": {}}},
}


def ask(script: Script, nth: int, role: Role = "decision") -> ModelReplied | ContextOverflowed | Failed:
    request = ModelRequest(role=role, nth=nth, messages=(), reply_schema=None)
    return ScriptedModel(script).ask(request, lambda so_far: True)


def use(script: Script, tool: str, nth: int) -> ToolReturned | Failed:
    spec = ScriptedTools(script).specs()[tool]
    return ScriptedTools(script).call(ToolCall(tool=tool, args={}, effects=spec.effects), nth)


def test_an_object_is_given_as_its_json_and_a_text_as_it_is() -> None:
    script = parse_script(json.dumps(SCRIPT))
    first, second = ask(script, 1), ask(script, 2)
    assert isinstance(first, ModelReplied) and isinstance(second, ModelReplied)
    assert json.loads(first.text) == {"action": "complete", "n": 1}
    assert second.text == "no { json"
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.cost_usd) == (100, 20, 0.001)


def test_a_reply_may_come_with_what_was_thought_and_how_it_ended() -> None:
    played = {"$reply": {"a": 1}, "reasoning": "so", "ended": "length"}
    script = parse_script({"replies": {"decision": [played, {"$reply": "text"}]}})
    first, second = ask(script, 1), ask(script, 2)
    assert isinstance(first, ModelReplied) and isinstance(second, ModelReplied)
    assert (first.text, first.reasoning, first.ended) == ('{"a": 1}', "so", "length")
    assert (second.text, second.reasoning, second.ended) == ("text", "", "stop")
    assert parse_script(script.as_json()) == script


def test_an_error_is_an_attempt_that_fails() -> None:
    script = parse_script(SCRIPT)
    assert isinstance(ask(script, 3), ContextOverflowed)
    failed = ask(script, 4)
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"


@pytest.mark.parametrize(("role", "nth"), [("decision", 5), ("planner", 1)])
def test_replies_run_out_with_the_words_of_the_spec(role: Role, nth: int) -> None:
    failed = ask(parse_script(SCRIPT), nth, role)
    assert failed == Failed(blame="fatal", message=f"script exhausted (role {role}, call {nth})")


def test_a_call_costs_what_the_script_says() -> None:
    assert ScriptedModel(parse_script(SCRIPT)).price(10**6) == 0.001
    assert ScriptedModel(parse_script({})).price(10**6) == 0.0


def test_results_are_played_in_order_and_the_last_one_repeats() -> None:
    script = parse_script(SCRIPT)
    assert use(script, "web_search", 1) == ToolReturned(value="three results")
    assert use(script, "web_search", 2) == Failed(blame="transient", message="timed out")
    for nth in (3, 4, 99):
        assert use(script, "web_search", nth) == Failed(blame="recoverable", message="bad")
    assert use(script, "hidden", 1) == ToolReturned(value=None)


def test_params_become_a_schema() -> None:
    specs = ScriptedTools(parse_script(SCRIPT)).specs()
    assert specs["web_search"].parameters == {
        "type": "object",
        "properties": {"q": {"type": "string"}, "n": {"type": "integer"}},
        "required": ["q"],
    }
    assert (specs["web_search"].effects, specs["web_search"].permitted) == ("read", True)
    assert not specs["hidden"].permitted


def test_a_child_plays_its_own_part_and_else_the_same() -> None:
    script = parse_script(SCRIPT)
    helper = script.for_child("helper")
    reply = ask(helper, 1)
    assert isinstance(reply, ModelReplied)
    assert (reply.text, reply.usage.cost_usd) == ("from the child", 0.001)
    assert helper.tools == script.tools
    assert script.for_child("other").tools == {}
    assert script.for_child("other").replies == script.replies
    assert script.for_child("unnamed") == script


def listener(heard: list[str]) -> Watch:
    """A watcher that remembers what it hears and always wants more."""

    def watch(so_far: Callable[[], str]) -> bool:
        heard.append(so_far())
        return True

    return watch


def test_the_watcher_hears_the_text_and_may_cut_it() -> None:
    request = ModelRequest(role="decision", nth=1, messages=(), reply_schema=None)
    heard: list[str] = []
    ScriptedModel(parse_script(SCRIPT)).ask(request, listener(heard))
    assert json.loads(heard[-1])["action"] == "complete"
    cut = ScriptedModel(parse_script(SCRIPT)).ask(request, lambda so_far: False)
    assert isinstance(cut, Failed)
    assert "no longer needs it" in cut.message


def test_a_pace_lets_a_person_watch_and_is_cut_between_two_looks() -> None:
    paced = parse_script(SCRIPT | {"pace": {"model_s": 0.5, "tool_s": 0.2}})
    request = ModelRequest(role="decision", nth=1, messages=(), reply_schema=None)
    slept: list[float] = []
    heard: list[str] = []
    ScriptedModel(paced, slept.append).ask(request, listener(heard))
    assert sum(slept) == pytest.approx(0.5)
    assert [len(text) for text in heard] == sorted(len(text) for text in heard)
    assert len(heard) == 6
    slept.clear()
    ScriptedModel(paced, slept.append).ask(request, lambda so_far: len(so_far()) < 10)
    assert sum(slept) < 0.5
    slept.clear()
    ScriptedTools(paced, slept.append).call(ToolCall(tool="hidden", args={}, effects="send"), 1)
    assert slept == [0.2]


def tool(**changes: Any) -> dict[str, Any]:
    return {"tools": {"t": {"effects": "read"} | changes}}


WRONG: list[tuple[Any, str]] = [
    ("{", "at line 1, column 2: it is no JSON"),
    ("[" * 100_000, "it is no JSON that can be read"),
    ("[]", "it must be one JSON object"),
    (7, "it must be one JSON object"),
    (
        {"reply": {}},
        "at reply: this name is not known here; known: replies, tools, usages, usage, subgraphs, pace",
    ),
    ({"pace": {"step_s": 1}}, "at pace.step_s: this name is not known here; known: model_s, tool_s, stream"),
    ({"replies": []}, "at replies: it must be an object"),
    ({"replies": {"thought": []}}, "at replies.thought: 'thought' is not one of 'decision'"),
    ({"replies": {"decision": {}}}, "at replies.decision: it must be a list"),
    ({"replies": {"decision": ["a", 3]}}, "reply decision.1 must be an object, a text"),
    (
        {"replies": {"decision": [{"$error": "odd"}]}},
        '"$error" stands alone and is one of context_length, transient',
    ),
    ({"replies": {"decision": [{"$error": "fatal", "a": 1}]}}, '"$error" stands alone'),
    ({"replies": {"decision": [{"$reply": "x", "a": 1}]}}, '"$reply" is a text or an object'),
    ({"replies": {"decision": [{"$reply": "x", "ended": "odd"}]}}, "ended (one of stop, length"),
    ({"replies": {"decision": [{"$reply": "x", "reasoning": 5}]}}, "reasoning (a text)"),
    ({"replies": {"decision": [{"$reply": 5}]}}, '"$reply" is a text or an object'),
    ({"replies": {"decision": [{"$reply": "x", "ended": ["stop"]}]}}, '"$reply" is a text or an object'),
    ({"replies": {"decision": [{"$error": ["fatal"]}]}}, '"$error" stands alone'),
    ({"tools": {"t": {}}}, "at tools.t.effects: it is missing; give one of none, read, write, send, execute"),
    ({"tools": {"a b": {"effects": "read"}}}, "'a b' is no name of a tool"),
    (tool(effects="safe"), "at tools.t.effects: 'safe' is not one of"),
    (tool(params={"q": "text"}), "at tools.t.params.q: 'text' is not one of 'string'"),
    (tool(required=["q"]), "at tools.t: q is required, but not among params"),
    (tool(allowed="no"), "at tools.t.allowed: it must be true or false"),
    (tool(delay=1), "at tools.t.delay: this name is not known here; known: "),
    (tool(results=[{"out": 1}]), "at tools.t.results.0.out: this name is not known here; known: output, "),
    (
        tool(results=[{"output": 1}, {"error": "x", "kind": "odd"}]),
        "at tools.t.results.1.kind: 'odd' is not one of",
    ),
    (tool(results=[{"output": 1, "error": "x"}]), "at tools.t.results.0: a result is an output or an error"),
    (tool(results=[{"output": 1, "kind": "fatal"}]), "there is no error"),
    (
        tool(results=[{"files": [{"name": "../x"}]}]),
        "at tools.t.results.0.files.0.name: '../x' is not a file name",
    ),
    ({"usage": {"cost_usd": "1"}}, "at usage.cost_usd: it must be a number"),
    ({"usage": {"cost_usd": True}}, "at usage.cost_usd: it must be a number"),
    ({"usage": {"input_tokens": 1.5}}, "at usage.input_tokens: it must be a whole number"),
    ({"usage": {"input_tokens": -1}}, "at usage.input_tokens"),
    ({"subgraphs": {"a": {"usage": {}}}}, "this name is not known here; known: replies, tools, usages, then"),
    ({"pace": {"model_s": 3600}}, "at pace.model_s"),
]


@pytest.mark.parametrize(("given", "sentence"), WRONG)
def test_a_wrong_script_is_told_where_and_what(given: Any, sentence: str) -> None:
    with pytest.raises(BadScript) as caught:
        parse_script(given)
    assert str(caught.value).startswith("The script is not right")
    assert sentence in str(caught.value)


@pytest.mark.parametrize("given", [str, json.loads], ids=["a text", "an object"])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps({"replies": {"decision": ["x" * 5_000_000]}}), "5000000 are the most"),
        (
            f'{{"replies": {{"decision": [{"[" * 70}{"]" * 70}]}}}}',
            "nested too deeply; 64 levels are the most",
        ),
    ],
    ids=["long", "deep"],
)
def test_a_script_that_is_too_large_is_refused_in_either_form(
    given: Callable[[str], Any], text: str, sentence: str
) -> None:
    with pytest.raises(BadScript, match=sentence):
        parse_script(given(text))


def test_a_script_goes_to_json_and_back() -> None:
    script = parse_script(SCRIPT)
    assert parse_script(script.model_dump_json(exclude_unset=True)) == script
