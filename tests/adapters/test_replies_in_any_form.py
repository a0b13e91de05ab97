"""Servers put a reply, its reasoning, its end and its errors in many forms; none is read for what it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import PartDeltaEvent, TextPartDelta

from runs.adapters.models import ServedModel
from runs.adapters.models.heard import Heard
from runs.adapters.scrubbing import Scrubber
from runs.engine.effects import ContextOverflowed, ModelReplied
from runs.engine.values import MAX_TEXT
from tests.adapters.asking import TEXT_REQUEST, ask, call, delta, events, failure, settings, streamed, whole
from tests.fake_model_server import FakeModelServer, Refuses, Sends

GOOD = '{"thought": "tides"}'
DRAFT = '{"thought": "A draft that was thrown away."}'


def replied(behaviour: Sends, **settings: Any) -> ModelReplied:
    answer, _ = ask(behaviour, **settings)
    assert isinstance(answer, ModelReplied), answer
    return answer


# --- reasoning ----------------------------------------------------------------------------------------------------

THOUGHT_APART: list[dict[str, Any]] = [
    {"reasoning_content": DRAFT},
    {"reasoning": DRAFT},
    {"reasoning": {"text": DRAFT}},
    {"reasoning": {"summary": DRAFT}},
    {"reasoning_details": [{"type": "reasoning.text", "text": DRAFT}]},
    {"reasoning_details": [{"type": "reasoning.summary", "summary": DRAFT}]},
    {"reasoning": DRAFT, "reasoning_details": [{"type": "reasoning.text", "text": DRAFT}]},
    {"thinking_blocks": [{"type": "thinking", "thinking": DRAFT, "signature": "c2ln"}]},
]
THOUGHT_IN_PARTS: list[Any] = [
    [{"type": "thinking", "thinking": DRAFT}, {"type": "text", "text": GOOD}],
    [{"type": "thinking", "thinking": [{"type": "text", "text": DRAFT}]}, {"type": "text", "text": GOOD}],
    [{"type": "reasoning", "text": DRAFT}, {"type": "output_text", "text": GOOD}],
    [{"type": "reasoning", "summary": [{"type": "summary_text", "text": DRAFT}]}, {"text": GOOD}],
    [[{"type": "thinking", "thinking": DRAFT}], [{"type": "text", "text": {"value": GOOD}}]],
    [{"type": "something_new", "text": DRAFT}, GOOD],
]


@pytest.mark.parametrize("form", [whole, streamed])
@pytest.mark.parametrize("thought", THOUGHT_APART)
def test_what_a_model_thought_is_kept_beside_its_reply(form: Any, thought: dict[str, Any]) -> None:
    answer = replied(form({"content": GOOD} | thought))
    assert (answer.text, answer.reasoning, answer.ended) == (GOOD, DRAFT, "stop")


@pytest.mark.parametrize("form", [whole, streamed])
@pytest.mark.parametrize("parts", THOUGHT_IN_PARTS)
def test_of_content_in_parts_only_those_of_type_text_are_the_reply(form: Any, parts: Any) -> None:
    answer = replied(form({"content": parts}))
    assert (answer.text, answer.reasoning) == (GOOD, DRAFT)


def test_reasoning_and_reply_that_come_in_turns_are_put_together_apart() -> None:
    pieces = [
        {"reasoning_content": "First "},
        {"reasoning_content": "this.", "content": ""},
        {"content": GOOD},
    ]
    answer = replied(streamed(*pieces))
    assert (answer.text, answer.reasoning) == (GOOD, "First this.")


def test_a_thought_that_is_encrypted_is_no_reply() -> None:
    hidden = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
    answer = replied(whole({"content": [hidden, {"type": "text", "text": GOOD}]}))
    assert (answer.text, answer.reasoning) == (GOOD, "")


def test_only_reasoning_is_an_empty_reply() -> None:
    answer = replied(whole({"content": "", "reasoning_content": DRAFT}, "length"))
    assert (answer.text, answer.reasoning, answer.ended) == ("", DRAFT, "length")


# --- the end ------------------------------------------------------------------------------------------------------

ENDS = [
    *((reason, "stop") for reason in ("stop", "STOP", "tool_calls", "function_call", "end_turn", "eos")),
    *((reason, "length") for reason in ("length", "max_tokens", "MAX_TOKENS", "model_length")),
    *((reason, "content_filter") for reason in ("content_filter", "safety", "refusal", "RECITATION")),
    *(
        (reason, "error")
        for reason in ("error", "insufficient_system_resource", "cancelled", "a new word", 7)
    ),
]


@pytest.mark.parametrize("form", [whole, streamed])
@pytest.mark.parametrize(("reason", "ended"), ENDS)
def test_how_a_reply_ended_is_told(form: Any, reason: Any, ended: str) -> None:
    assert replied(form({"content": GOOD}, finish=reason)).ended == ended


def test_of_several_choices_the_worst_end_counts() -> None:
    cut = delta("length", content="x")
    assert replied(Sends(events(delta("stop", content=GOOD), cut, delta("stop")))).ended == "length"


def test_a_refusal_did_not_end_in_order_whatever_the_reason_says() -> None:
    for message in ({"refusal": "I can't."}, {"content": [{"type": "refusal", "refusal": "I can't."}]}):
        answer = replied(whole(message))
        assert (answer.text, answer.ended) == ("I can't.", "content_filter")


@pytest.mark.parametrize("last", [["[DONE]"], []])
def test_a_stream_that_gives_no_reason_for_its_end_broke_off(last: list[str]) -> None:
    failed = failure(Sends(events(delta(content=GOOD), *last, done=False)))
    assert (failed.blame, "broke off" in failed.message) == ("transient", True)


def test_a_reply_that_is_longer_than_what_is_kept_is_cut() -> None:
    answer = replied(whole({"content": GOOD + " " * MAX_TEXT + "x"}))
    assert answer.ended == "length"


# --- framing ------------------------------------------------------------------------------------------------------

STREAM = events(delta(content=GOOD[:9]), delta(content=GOOD[9:]), delta("stop"))
ONE = whole({"content": GOOD}).body
BODIES = {
    "events": STREAM,
    "events after a byte order mark and a comment": b"\xef\xbb\xbf\n: busy\n\nevent: message\n" + STREAM,
    "events with carriage returns": STREAM.replace(b"\n", b"\r\n"),
    "events without empty lines between": STREAM.replace(b"\n\n", b"\n"),
    "an event in lines": b"".join(
        b"data: " + line + b"\n" for line in json.dumps(json.loads(ONE), indent=1).encode().split(b"\n")
    ),
    "one object": b" \n" + ONE,
    "one object in lines": json.dumps(json.loads(ONE), indent=1).encode(),
    "objects one after another": b"".join(
        json.dumps(chunk).encode()
        for chunk in (delta(content=GOOD[:9]), delta(content=GOOD[9:]), delta("stop"))
    ),
    "an object a line": b"\n".join(
        json.dumps(chunk).encode() for chunk in (delta(content=GOOD[:9]), delta("stop", content=GOOD[9:]))
    ),
}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_body_is_read_by_what_it_is_whatever_its_header_says(body: bytes, kind: str) -> None:
    assert replied(Sends(body, headers=(("Content-Type", kind),))).text == GOOD


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("size", [1, 7])
def test_a_body_may_come_in_pieces_of_any_size(body: bytes, size: int) -> None:
    assert replied(Sends(body, size=size)).text == GOOD


def test_a_line_of_megabytes_in_small_pieces_is_read_in_passing() -> None:
    """Each piece is looked at once: to join all of them at each would copy some 10 GB here."""
    long = {"content": "x" * 3_000_000}
    assert len(replied(Sends(events(delta(**long), delta("stop")), size=400)).text) > MAX_TEXT


# --- calls of tools -----------------------------------------------------------------------------------------------


def test_a_call_that_nobody_asked_for_does_not_hide_the_reply() -> None:
    message = {"content": GOOD, "tool_calls": [call('{"expression": "1"}', id="c1")]}
    assert replied(whole(message, "tool_calls")).text == GOOD


def test_blank_content_beside_a_call_is_none() -> None:
    assert replied(whole({"content": "\n\n", "tool_calls": [call(GOOD)]}, "tool_calls")).text == GOOD


def test_in_tool_mode_the_arguments_are_the_reply_as_text_or_as_an_object() -> None:
    for arguments in (GOOD, json.loads(GOOD)):
        message = {"content": "I reply.", "tool_calls": [call(arguments, id="c1")]}
        assert replied(whole(message, "tool_calls"), output_mode="tool").text == GOOD
    older = {"function_call": {"name": "reply", "arguments": GOOD}}
    assert replied(whole(older, "function_call"), output_mode="tool").text == GOOD


TWO_CALLS = {
    "whole": whole({"tool_calls": [call(GOOD, id="a"), call(DRAFT, id="b")]}, "tool_calls"),
    "whole without ids": whole({"tool_calls": [call(GOOD), call(DRAFT)]}, "tool_calls"),
    "streamed by index": streamed(
        {"tool_calls": [call(GOOD[:5], index=0, id="a")]},
        {"tool_calls": [call(DRAFT[:5], index=1, id="b")]},
        {"tool_calls": [{"index": 0, "function": {"arguments": GOOD[5:]}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": DRAFT[5:]}}]},
    ),
    "streamed with one index": streamed(
        {"tool_calls": [call(GOOD, index=0, id="a")]}, {"tool_calls": [call(DRAFT, index=0, id="b")]}
    ),
}


@pytest.mark.parametrize("behaviour", TWO_CALLS.values(), ids=TWO_CALLS)
def test_a_second_call_is_not_dropped(behaviour: Sends) -> None:
    assert replied(behaviour, output_mode="tool").text == f"{GOOD}\n{DRAFT}"


# --- errors in a reply of status 200 --------------------------------------------------------------------------------


def in_a_body(error: Any) -> Sends:
    return Sends(json.dumps({"error": error}).encode())


def in_a_stream(error: Any) -> Sends:
    return Sends(events(delta(content="{"), {"error": error}))


def in_a_choice(error: Any) -> Sends:
    choice = {"index": 0, "message": {"content": ""}, "finish_reason": "error", "error": error}
    return Sends(json.dumps({"choices": [choice]}).encode())


FORMS = [in_a_body, in_a_stream, in_a_choice, lambda error: Sends(json.dumps(error).encode())]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("code", "blame"),
    [
        (401, "fatal"),
        (402, "fatal"),
        ("403", "fatal"),
        (404, "fatal"),
        (429, "transient"),
        (502, "transient"),
    ],
)
def test_an_error_in_place_of_a_reply_has_the_providers_own_code_and_words(
    form: Any, code: Any, blame: str
) -> None:
    failed = failure(form({"message": "Add credits at the credits page.", "code": code}))
    assert failed.blame == blame
    assert f"code {code}" in failed.message
    assert "Add credits at the credits page." in failed.message
    assert "HTTP 500" not in failed.message


@pytest.mark.parametrize(
    ("kind", "blame"), [("authentication_error", "fatal"), ("overloaded_error", "transient")]
)
def test_an_error_that_has_a_type_and_no_code_is_judged_by_it(kind: str, blame: str) -> None:
    failed = failure(in_a_stream({"type": kind, "message": "no"}))
    assert (failed.blame, kind in failed.message) == (blame, True)


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refusal_of_key_or_credit_says_what_the_provider_said(status: int) -> None:
    failed = failure(Refuses(status, {"message": "The plan ended in June."}))
    assert (failed.blame, "The plan ended in June." in failed.message) == ("fatal", True)


OVERFLOWS = [
    {
        "type": "invalid_request_error",
        "message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
        "input length or `max_tokens` and try again",
    },
    {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"},
    {"code": "context_length_exceeded", "message": "no"},
    {"message": "no", "n_prompt_tokens": 5_000, "n_ctx": 4_096},
]


@pytest.mark.parametrize("error", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_told_apart_in_every_providers_words(error: dict[str, Any]) -> None:
    for behaviour in (Refuses(400, error), in_a_body(error | {"code": error.get("code", 400)})):
        answer, _ = ask(behaviour)
        assert isinstance(answer, ContextOverflowed)


# --- what it cost -------------------------------------------------------------------------------------------------


def used(usage: dict[str, Any], **settings: Any) -> tuple[int, int, float]:
    prices = {"input_price": 2.5, "output_price": 10.0} | settings
    found = replied(whole({"content": GOOD}, usage=usage), **prices).usage
    return found.input_tokens, found.output_tokens, found.cost_usd


def test_the_cost_that_the_provider_gives_is_the_cost() -> None:
    counts = {"prompt_tokens": 1_000, "completion_tokens": 50}
    assert used(counts | {"cost": 0.0123}) == (1_000, 50, 0.0123)
    assert used(counts | {"cost": 0}) == (1_000, 50, 0)
    own = {"cost": 0.0006, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.0120}}
    assert used(counts | own)[2] == pytest.approx(0.0126)


@pytest.mark.parametrize("cost", [-1, True, "0.1", None, 1e300, float("nan"), float("inf"), 10**400, [1]])
def test_a_cost_that_is_none_is_reckoned_by_the_prices(cost: Any) -> None:
    assert used({"prompt_tokens": 1_000, "completion_tokens": 50, "cost": cost})[2] == pytest.approx(0.003)


@pytest.mark.parametrize(
    "cached",
    [
        {"prompt_tokens_details": {"cached_tokens": 24_540}},
        {"prompt_cache_hit_tokens": 24_540, "prompt_cache_miss_tokens": 1_438},
        {"cache_read_input_tokens": 24_540},
    ],
)
def test_cached_tokens_cost_what_cached_tokens_cost(cached: dict[str, Any]) -> None:
    usage = {"prompt_tokens": 25_978, "completion_tokens": 100} | cached
    assert used(usage, model_id="gpt-4o")[2] == pytest.approx(0.03527)
    assert used(usage, model_id="my-own-llama")[2] == pytest.approx(0.065945)
    free = {"input_price": None, "output_price": None}
    assert used(usage, model_id="my-own-llama", **free)[2] == 0


def test_more_cached_tokens_than_tokens_are_as_many() -> None:
    usage = {
        "prompt_tokens": 1_000,
        "completion_tokens": 0,
        "prompt_tokens_details": {"cached_tokens": 9_999},
    }
    assert used(usage, model_id="gpt-4o")[2] == pytest.approx(0.00125)


@pytest.mark.parametrize(("total", "wrote"), [(1_300, 300), (1_500, 500)])
def test_reasoning_tokens_are_counted_once(total: int, wrote: int) -> None:
    """By the provider's own sum: most count them among the tokens of the reply, some beside them."""
    details = {"completion_tokens_details": {"reasoning_tokens": 200}}
    usage = {"prompt_tokens": 1_000, "completion_tokens": 300, "total_tokens": total} | details
    assert used(usage)[:2] == (1_000, wrote)


# --- how much work it is ------------------------------------------------------------------------------------------


class Counting(Scrubber):
    """Counts the characters that it looks at."""

    seen = 0

    def split(self, text: str) -> tuple[str, str]:
        self.seen += len(text)
        return super().split(text)


def test_each_chunk_costs_as_much_as_it_is_long_however_long_the_reply_has_grown() -> None:
    scrubber = Counting("sk-a-key-of-some-length")
    heard = Heard(scrubber, by_tool=False)
    for _ in range(2_000):
        heard.take(PartDeltaEvent(index=0, delta=TextPartDelta("ask it: sk")))
    assert scrubber.seen <= 2_000 * (len("ask it: sk") + len("sk"))


def test_a_reply_is_put_together_only_where_it_is_read() -> None:
    reads: list[int] = []

    def every_hundredth(so_far: Callable[[], str]) -> bool:
        reads.append(len(so_far()) if len(reads) % 100 == 99 else 0)
        return True

    chunks = [delta(content="0123456789")] * 1_000
    with FakeModelServer([Sends(events(*chunks, delta("stop")))]) as server:
        answer = ServedModel(settings(server)).ask(TEXT_REQUEST, every_hundredth)
    assert isinstance(answer, ModelReplied)
    assert (len(reads), len([read for read in reads if read]), len(answer.text)) == (1_001, 10, 10_000)
