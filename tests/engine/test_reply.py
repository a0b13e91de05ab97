"""The one reader: reasoning is taken off, the one object that fits is read, and what is cut is never closed."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict

from runs.engine.effects import ModelReplied
from runs.engine.objects import SEAM, objects_in
from runs.engine.reasoning import heard, parted
from runs.engine.reply import ONE_ACTION, Read, Unread, read
from runs.engine.values import MAX_TEXT, Value, clean_text


class Call(Value):
    """A reply that calls something."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tool: str
    args: dict[str, Any] = {}


def is_harmless(call: Call) -> bool:
    return call.tool == "look"


def told(text: str, reasoning: str = "") -> Read[Call] | Unread:
    return read(heard(ModelReplied(text=text, reasoning=reasoning), prose=False), Call, is_harmless)


def call_in(text: str) -> Call | None:
    found = told(text)
    return found.reply if isinstance(found, Read) else None


def why(text: str, reasoning: str = "") -> str:
    found = told(text, reasoning)
    assert isinstance(found, Unread)
    return found.why


LOOK = '{"tool": "look", "args": {"at": "x"}}'
WIPE = '{"tool": "wipe", "args": {"path": "/srv"}}'


# --- reasoning --------------------------------------------------------------------------------------------


THOUGHT = [
    "<think>{}</think>",
    "<thinking>\n{}\n</thinking>",
    '<Think effort="high">{}</THINK >',
    "<thought>{}</thought>",
    "<reasoning>{}</reasoning>",
    "<reflection>{}</reflection>",
    "<seed:think>{}</seed:think>",
    "[THINK]{}[/THINK]",
    "<|think|>{}<|/think|>",
    "<|begin_of_thought|>{}<|end_of_thought|>",
    "<|START_THINKING|>{}<|END_THINKING|>",
    "◁think▷{}◁/think▷",
    "{}</think>",
    "<think>\n<think>{}</think>",
    "<think>a<think>{}</think>b</think>",
    "<think>a <reasoning>{}</reasoning> b</think>",
    "<think>a</think>{}</think>",
    "<think>so</think>\n<thinking>{}</thinking>",
    "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
    "analysis<|message|>{}<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    "<|channel|>analysis<|message|>{}<|end|>",
    "<|channel>thought\n{}<channel|>",
    "analysisWe say {}. No.assistantfinal",
]


@pytest.mark.parametrize("form", THOUGHT)
def test_what_a_model_thinks_is_never_its_reply(form: str) -> None:
    draft = form.replace("{}", f"I could say {WIPE}, but no.")
    assert call_in(f"{draft}\n{LOOK}") == Call(tool="look", args={"at": "x"})
    assert WIPE in parted(f"{draft}\n{LOOK}").thought
    assert why(draft) == "The reply holds only reasoning."


@pytest.mark.parametrize(
    "form", ["<think>{}", "[THINK] {}", "<|channel|>analysis<|message|>{}", "x <think>{}"]
)
def test_after_an_opening_tag_that_is_never_closed_all_is_reasoning(form: str) -> None:
    assert call_in(form.replace("{}", f"I say {LOOK}")) is None


def test_reasoning_after_the_reply_is_taken_off_too() -> None:
    assert call_in(f"{LOOK}<think>or {WIPE}?</think>") == Call(tool="look", args={"at": "x"})


@pytest.mark.parametrize(
    "reply",
    [
        '{"tool": "look", "args": {"html": "a </think> b <think> c"}}',
        '```json\n{"tool": "look", "args": {"html": "<think>x</think>"}}\n```',
        '{"tool": "look", "args": {"html": "<think>x</think>"},}',
        "{'tool': 'look', 'args': {'html': '<think>x</think>'}}",
        'I write it: {"tool": "look", "args": {"html": "<|channel|>final<|message|>{}"}} as asked',
    ],
)
def test_a_tag_inside_the_reply_itself_is_content(reply: str) -> None:
    assert parted(reply).thought == ""
    found = call_in(reply)
    assert found is not None and found.args["html"] in reply


def test_a_tag_in_backquotes_is_only_spoken_of() -> None:
    assert parted("Close it with `</think>`, as <b>HTML</b> does.").thought == ""


def test_reasoning_never_glues_two_halves_of_an_object() -> None:
    glued = '{"tool": "look", "args": {"html": "a <think>"b"</think> c"}}'
    assert SEAM in parted(glued, SEAM).spoken
    assert why(glued) == (
        "The reply is not valid JSON, line 1, column 38: reasoning stands in the middle of the object."
    )


def test_reasoning_that_the_server_sent_apart_is_joined_with_that_in_the_text() -> None:
    said = heard(ModelReplied(text=f"<think>b</think>{LOOK}", reasoning="a"), prose=False)
    assert (said.text, said.reasoning) == (LOOK, "a\nb")
    assert why("", "a") == "The reply holds only reasoning."


def test_of_prose_the_reasoning_is_taken_off_without_a_trace() -> None:
    said = heard(ModelReplied(text="It is <think>9? 3?</think>93."), prose=True)
    assert (said.text, said.reasoning) == ("It is 93.", "9? 3?")


# --- form is repaired, content is not ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        LOOK,
        f"  {LOOK}\n",
        f"```json\n{LOOK}\n```",
        f"```\n{LOOK}\n```",
        f"```python\n{LOOK}\n```",
        f"~~~{LOOK}~~~",
        f"Here is {{it}}:\n```json\n{LOOK}\n```\nDone {{so}}.",
        f"The set {{a, b}} is small, so: {LOOK}",
        f'The set {{"a", "b"}} and {{"draft": true}} and it\'s {{n\'t}}: {LOOK}',
        f"[{LOOK}]",
        f"[\n  {LOOK},\n]",
        '{"tool": "look", "args": {"at": "x",},}',
        "{'tool': 'look', 'args': {'at': 'x'}}",
        '{tool: "look", args: {at: "x"}}',
        '{"tool": "look", "args": {"at": "x"}, "sure": True, "more": None}',
    ],
)
def test_the_one_object_that_fits_is_read_whatever_stands_around(text: str) -> None:
    assert call_in(text) == Call(tool="look", args={"at": "x"})


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ('{"tool": "look", "args": {"a": "one\ntwo\tthree"}}', {"a": "one\ntwo\tthree"}),
        ('{"tool": "look", "args": {"a": "True, None,] \'x\'",}}', {"a": "True, None,] 'x'"}),
        ("{'tool': 'look', 'args': {'a': 'say \"\"hi\"\", it\\'s'}}", {"a": 'say ""hi"", it\'s'}),
        ('{"tool": "look", "args": {"a": "}{"}}', {"a": "}{"}),
        ('{"tool": "look", "args": {"a": True, "b": [None, False,]}}', {"a": True, "b": [None, False]}),
        ('{"tool": "look", "args": {"\\u0061": 1e2, "n": 30.0}}', {"a": 100.0, "n": 30.0}),
    ],
)
def test_a_repair_keeps_every_character_of_the_content(text: str, args: dict[str, Any]) -> None:
    found = call_in(text)
    assert found is not None and found.args == args


CUT = "The reply is cut off"
NOT_JSON = "The reply is not valid JSON"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "The reply is empty."),
        (" \n", "The reply is empty."),
        ("no JSON", "The reply holds no JSON object."),
        ('{"tool": "wipe", "args": {"path": "/a"', f"{CUT}: the object that begins at line 1 is never closed."),
        (f'\n{{"outer": {WIPE}', f"{CUT}: the object that begins at line 2 is never closed."),
        (f"[{WIPE}", f"{CUT}: the list that begins at line 1 is never closed."),
        (f"Use {{ to begin. {WIPE}", f"{CUT}: the object that begins at line 1 is never closed."),
        ('{"tool": "look",\n "args": {"a": 1 "b": 2}}', f"{NOT_JSON}, line 2, column 18: Expecting ',' delimiter."),
        ('{"tool": "look", "args": {"p": "C:\\dir"}}', f"{NOT_JSON}, line 1, column 35: Invalid \\escape."),
        ('{"tool": "look", "tool": "wipe"}', f"{NOT_JSON}, line 1, column 1: the name tool is there twice."),
        ('{"tool": "look", "args": {"a": NaN}}', f"{NOT_JSON}, line 1, column 1: NaN is no JSON number."),
        ('{"tool": "look", "args": {"a": -Infinity}}', f"{NOT_JSON}, line 1, column 1: -Infinity is no JSON number."),
        ('{"tool": "look", "args": {"a": 1e999}}', f"{NOT_JSON}, line 1, column 1: 1e999 is no JSON number."),
        ('{"tool": 5}', "tool: Input should be a valid string."),
        ('{"draft": true}', "tool: Field required."),
        ('{"a": 1} {"b": 2}', "The reply holds 2 objects, and one with tool was asked for."),
        ('{"tool": "look" "x"} {"b": 2}', f"{NOT_JSON}, line 1, column 17: Expecting ',' delimiter."),
    ],
)  # fmt: skip
def test_a_refusal_names_place_and_cause(text: str, cause: str) -> None:
    assert why(text) == cause


def test_what_is_too_deep_or_too_wide_is_refused_and_not_cut() -> None:
    deep = '{"tool": "look", "args": ' + '{"a": ' * 70 + "1" + "}" * 71
    wide = json.dumps({"tool": "look", "args": {"a": list(range(20_001))}})
    assert "it is too large" in why(deep)
    assert "it is too large" in why(wide)
    assert "it is nested too deeply" in why('{"a":' * 50_000 + "1" + "}" * 50_000)


def test_a_reply_that_had_to_be_cut_is_called_too_long_though_it_begins_whole() -> None:
    reply = LOOK + " " + "x" * MAX_TEXT
    assert why(clean_text(reply)) == "The reply is too long: 400,000 characters are read at most."


# --- one action goes with one reply -----------------------------------------------------------------------


def test_of_two_actions_the_first_counts_where_it_changes_nothing_and_the_rest_is_kept() -> None:
    found = told(f'{LOOK}\nObservation: {{"output": 5}}\n{WIPE}')
    assert isinstance(found, Read) and found.reply.tool == "look"
    [notice] = found.notices
    assert (notice.code, notice.rest) == (ONE_ACTION, f'Observation: {{"output": 5}}\n{WIPE}')


@pytest.mark.parametrize(
    "text", [f"{WIPE}{LOOK}", f"{WIPE} {WIPE}", f"[{WIPE}, {LOOK}]", f'{{"tool": "look" 1}}{WIPE}']
)
def test_of_two_actions_none_is_taken_where_the_first_changes_something_or_is_unread(text: str) -> None:
    found = told(text)
    assert isinstance(found, Unread)
    assert [notice.code for notice in found.notices] == [ONE_ACTION]
    assert found.notices[0].rest == text


def test_a_made_up_observation_beside_one_action_is_no_second_action() -> None:
    found = told(f'{WIPE}\n{{"output": "deleted", "ok": true}}')
    assert isinstance(found, Read) and (found.reply.tool, found.notices) == ("wipe", ())


# --- laws -------------------------------------------------------------------------------------------------

LEAVES = st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=12)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ARGS = st.dictionaries(st.text(max_size=8).map(clean_text), VALUES, max_size=4)
PROSE = st.text(st.sampled_from("abc {}[]\"':,\n`"), max_size=40)


def plain(args: dict[str, Any]) -> str:
    return json.dumps({"tool": "look", "args": args}, ensure_ascii=False)


@given(args=ARGS)
def test_every_proper_prefix_of_a_reply_is_refused(args: dict[str, Any]) -> None:
    reply = plain(args)
    for end in range(len(reply)):
        assert call_in(reply[:end]) is None


@given(args=ARGS, draft=PROSE, form=st.sampled_from(THOUGHT[:-1]))
def test_whatever_stands_in_the_reasoning_the_reply_after_it_is_the_same(
    args: dict[str, Any], draft: str, form: str
) -> None:
    """Braces in reasoning never matter."""
    reply = plain(args)
    assert call_in(f"{form.replace('{}', draft)}\n{reply}") == call_in(reply) is not None


@given(
    args=ARGS,
    form=st.sampled_from(
        ["{}", "```json\n{}\n```", "So:\n{}\nThat is all.", "[{}]", "A {set} of {a, b}: {}"]
    ),
)
def test_fences_and_prose_change_nothing(args: dict[str, Any], form: str) -> None:
    reply = plain(args)
    before, after = form.rsplit("{}", 1)
    assert call_in(f"{before}{reply}{after}") == call_in(reply) is not None


@given(st.text(st.sampled_from("{}[]\"'\\,: \nabTN1<>/think|`"), max_size=200) | st.text(max_size=60))
@settings(max_examples=4 * settings().max_examples)
def test_no_text_breaks_the_reader(text: str) -> None:
    found = told(text)
    assert isinstance(found, Read) or found.why


@given(st.text(st.sampled_from("{}[]\"'\\,: \nab"), max_size=120))
def test_objects_stand_in_order_and_apart(text: str) -> None:
    at = 0
    for one in objects_in(text).found:
        assert at <= one.start < one.end
        assert (text[one.start], text[one.end - 1]) == ("{", "}")
        at = one.end


@pytest.mark.parametrize(
    "unit",
    [
        *("{", '{"a":', "{}", "{x}", '{"a": 1}', '{"', "{'", "[{", "\\", " ", "<"),
        *("<think>{", "</think>{", "<think>", "`<think>`", "<|channel|>a"),
    ],
)
@pytest.mark.parametrize("end", ["", "</think>"])
def test_time_grows_with_the_length_and_no_faster(unit: str, end: str) -> None:
    """Processor time, for four times the length: a square would take sixteen times as long."""

    def seconds(characters: int) -> float:
        text = (unit * (characters // len(unit)))[: characters - len(end)] + end
        began = time.process_time()
        told(text)
        return time.process_time() - began

    long = seconds(24_000)
    assert long < max(0.012, 9 * seconds(6_000)) or min(long, seconds(24_000)) < 9 * seconds(6_000)
