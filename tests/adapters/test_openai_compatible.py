"""A model server answers well, badly, late or never; the engine sees one of three answers, in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from runs.adapters.models import ModelSettings, ServedModel
from runs.driver.ports import price_of
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied
from runs.engine.ports import Message
from runs.models import ModelProfile
from tests.adapters.asking import KEY, REQUEST, SCHEMA, TEXT_REQUEST, Answer, always, ask, failure, settings
from tests.fake_model_server import (
    CONTEXT_LENGTH,
    TOO_MANY_REQUESTS,
    Behaviour,
    BreaksOff,
    Drips,
    FakeModelServer,
    Garbles,
    Refuses,
    Says,
    SaysAtOnce,
    Stalls,
)


def test_a_reply_comes_with_its_usage_and_its_cost() -> None:
    answer, _ = ask(Says({"thought": "tides"}, usage=(1_000, 200)), input_price=2.0, output_price=8.0)
    assert isinstance(answer, ModelReplied)
    assert answer.text == '{"thought": "tides"}'
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (1_000, 200)
    assert answer.usage.cost_usd == pytest.approx(0.0036)


def test_the_text_is_watched_as_it_grows() -> None:
    seen: list[str] = []

    def watch(so_far: Callable[[], str]) -> bool:
        seen.append(so_far())
        return True

    with FakeModelServer([Says("one two three four", pieces=6)]) as server:
        ServedModel(settings(server)).ask(TEXT_REQUEST, watch)
    lengths = [len(text) for text in seen]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) >= 6
    assert seen[-1] == "one two three four"


def test_a_call_that_nobody_wants_any_more_is_cut() -> None:
    with FakeModelServer([Says("one two three four", pieces=18)]) as server:
        answer = ServedModel(settings(server)).ask(TEXT_REQUEST, lambda so_far: len(so_far()) < 5)
    assert isinstance(answer, Failed)
    assert "no longer needs it" in answer.message


def test_the_request_says_what_the_settings_say() -> None:
    _, asked = ask(Says({"thought": ""}), max_output_tokens=99)
    (sent,) = asked
    assert sent.path == "/v1/chat/completions"
    assert sent.headers["authorization"] == f"Bearer {KEY}"
    assert sent.body["model"] == "fake"
    assert (sent.body["temperature"], sent.body["max_tokens"], sent.body["stream"]) == (0.0, 99, True)
    assert sent.body["messages"] == [
        {"role": "system", "content": "Decide."},
        {"role": "user", "content": "Goal: tides"},
    ]


@pytest.mark.parametrize(
    ("room", "context", "reply_tokens", "longest"),
    [
        (1, None, 0, 500),
        (2, None, 0, 1_000),
        (2, None, 700, 700),
        (2, 4_096, 0, 1_000),
        (2, 1_100, 0, 600),
        (2, 800, 0, 500),
    ],
)
def test_a_reply_may_be_longer_than_usual_as_far_as_context_and_limits_leave_room(
    room: int, context: int | None, reply_tokens: int, longest: int
) -> None:
    long = (*REQUEST.messages[:1], Message(author="user", text="x" * (2_000 - len("Decide."))))
    wanted = {"room": room, "reply_tokens": reply_tokens, "messages": long}
    request = REQUEST.model_copy(update=wanted)
    _, asked = ask(Says({"thought": ""}), request=request, max_output_tokens=500, context_tokens=context)
    assert asked[0].body["max_tokens"] == longest


def test_without_a_key_none_is_sent() -> None:
    _, asked = ask(Says({"thought": ""}), api_key="")
    assert "authorization" not in asked[0].headers


def test_native_mode_sends_the_schema_and_calls_it_strict_where_it_is() -> None:
    _, asked = ask(Says({"thought": ""}))
    form = asked[0].body["response_format"]["json_schema"]
    assert form == {"name": "ruled_thought", "schema": SCHEMA, "strict": True}
    open_schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    _, asked = ask(Says({"a": ""}), request=REQUEST.model_copy(update={"reply_schema": open_schema}))
    assert asked[0].body["response_format"]["json_schema"]["strict"] is False


def test_tool_mode_reads_the_arguments_of_the_tool() -> None:
    answer, asked = ask(Says({"thought": "x"}, by_tool="ruled_thought"), output_mode="tool")
    assert isinstance(answer, ModelReplied)
    assert answer.text == '{"thought": "x"}'
    assert asked[0].body["tools"][0]["function"]["parameters"] == SCHEMA
    assert asked[0].body["tool_choice"] == "required"


@pytest.mark.parametrize(("mode", "form"), [("json_object", {"type": "json_object"}), ("prompted", None)])
def test_a_schema_in_words_comes_last(mode: str, form: dict[str, str] | None) -> None:
    _, asked = ask(Says({"thought": "x"}), output_mode=mode)
    body = asked[0].body
    assert body.get("response_format") == form
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"] == "Decide."
    assert body["messages"][1]["content"].startswith("Goal: tides\n\nReply with one JSON object")
    assert body["messages"][1]["content"].endswith(json.dumps(SCHEMA))


def test_mode_none_asks_for_no_format() -> None:
    _, asked = ask(Says("free"), output_mode="none")
    assert "response_format" not in asked[0].body
    assert "thought" not in str(asked[0].body["messages"])


def test_a_server_that_does_not_count_is_estimated() -> None:
    answer, _ = ask(Says("x" * 400, usage=None), request=TEXT_REQUEST, input_price=1.0, output_price=1.0)
    assert isinstance(answer, ModelReplied)
    assert answer.usage.output_tokens == 100
    assert answer.usage.input_tokens > 10
    assert answer.usage.cost_usd > 0


def test_a_server_that_does_not_stream_is_read_whole() -> None:
    answer, _ = ask(SaysAtOnce("all of it"), request=TEXT_REQUEST)
    assert isinstance(answer, ModelReplied)
    assert answer.text == "all of it"
    assert answer.usage.input_tokens == 40


def test_the_longest_price_of_a_call_counts_all_it_may_say() -> None:
    model = ServedModel(
        ModelSettings(
            name="m",
            base_url="http://127.0.0.1:1/v1",
            model_id="m",
            input_price=1.0,
            output_price=10.0,
            max_output_tokens=1_000,
        )
    )
    assert model.price(2_000) == pytest.approx(0.012)


def test_a_known_model_is_priced_by_the_list_and_an_unknown_one_costs_nothing() -> None:
    known = ModelSettings(name="m", base_url="https://api.openai.com/v1", model_id="gpt-4o")
    assert ServedModel(known).price(1_000_000) > 0.5
    unknown = ModelSettings(name="m", base_url="http://127.0.0.1:1/v1", model_id="my-own-llama")
    assert ServedModel(unknown).price(1_000_000) == 0.0


OPENAI = "https://api.openai.com/v1"
GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
LISTED = [
    pytest.param(OPENAI, "gpt-4o", 1_000, id="one price"),
    pytest.param(GOOGLE, "gemini-2.5-pro", 1_000, id="the first tier"),
    pytest.param(GOOGLE, "gemini-2.5-pro", 300_000, id="the second tier"),
    pytest.param("https://api.perplexity.ai", "sonar", 1_000, id="a price of each call"),
]


@pytest.mark.parametrize(("base_url", "model_id", "read"), LISTED)
def test_the_worst_case_that_is_set_aside_is_no_less_than_the_charge(
    base_url: str, model_id: str, read: int
) -> None:
    """Of a model that the public list prices, too: else a limit on cost would let any number of calls begin at once."""
    own = ModelSettings(name="m", base_url=base_url, model_id=model_id, max_output_tokens=1_000)
    charge = ServedModel(own).price(read)
    price = price_of(ModelProfile(base_url=base_url, model_id=model_id, max_output_tokens=1_000))
    assert price.reply_tokens == 1_000
    assert price.cost(read, 1_000) >= charge - 1e-9
    assert charge > 0.001


def test_a_call_of_a_priced_model_costs_the_same_wherever_it_is_reckoned() -> None:
    about: dict[str, Any] = {"base_url": OPENAI, "model_id": "gpt-4o", "max_output_tokens": 500}
    for prices in ({}, {"input_price": 2.0, "output_price": 8.0}, {"output_price": 8.0}):
        model = ServedModel(ModelSettings.model_validate({"name": "m"} | about | prices))
        price = price_of(ModelProfile(**about, **prices))
        assert price.cost(2_000, 500) == pytest.approx(model.price(2_000))
        assert model.price(2_000) > 0


def test_a_model_on_no_list_has_no_price_to_set_aside() -> None:
    price = price_of(ModelProfile(base_url="http://127.0.0.1:1/v1", model_id="my-own-llama"))
    assert price.cost(1_000_000, 1_000) == 0


OVERFLOWS = [
    CONTEXT_LENGTH,
    Refuses(
        400,
        {
            "code": 400,
            "type": "exceed_context_size_error",
            "message": "request (5000 tokens) exceeds the available context size (4096 tokens)",
        },
    ),
    Refuses(400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens."),
    Refuses(413, "too large"),
]


@pytest.mark.parametrize("behaviour", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_told_apart(behaviour: Refuses) -> None:
    answer, _ = ask(behaviour)
    assert isinstance(answer, ContextOverflowed)
    assert answer.message


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_what_may_pass_is_transient(status: int) -> None:
    assert failure(Refuses(status, {"message": "later"})).blame == "transient"


def test_how_long_a_busy_server_asks_to_wait_is_said() -> None:
    assert "asks to wait 7 seconds" in failure(TOO_MANY_REQUESTS).message


@pytest.mark.parametrize(
    ("behaviour", "advice"),
    [
        (Refuses(401, {"message": f"Incorrect API key provided: {KEY}"}), "Check this model's API key"),
        (Refuses(403), "Check this model's API key"),
        (Refuses(404, {"message": "no such model"}), "Check the model id and the base URL"),
        (Refuses(400, {"message": f"response_format is bad, {KEY}"}), "another output mode than native"),
        (Refuses(429, {"message": "quota", "code": "insufficient_quota"}), "no credit left"),
        (Refuses(302, "moved"), "Set the base URL"),
    ],
)
def test_what_will_not_pass_is_fatal_and_says_what_to_do(behaviour: Refuses, advice: str) -> None:
    failed = failure(behaviour)
    assert failed.blame == "fatal"
    assert advice in failed.message


def test_an_error_in_the_middle_of_a_stream_is_read_like_any_other() -> None:
    raw = b'data: {"error": {"message": "the slot was lost", "code": 500}}\n\n'
    failed = failure(Garbles(raw))
    assert failed.blame == "transient"
    assert "the slot was lost" in failed.message


@pytest.mark.parametrize(
    "behaviour",
    [
        Garbles(),
        Garbles(b"data: [1]\n\n"),
        Garbles(b'data: {"choices": 3}\n\n'),
        Garbles(b'data: {"choices": [{"delta": {"content": 3}}]}\n\n'),
        Garbles(b'data: {"choices": [{"delta": {"tool_calls": [{"function": 1}]}}]}\n\n'),
        Garbles(b"data: " + b"[" * 100_000 + b"\n\n"),
        Garbles(b""),
        BreaksOff("half a repl"),
        Refuses(200, "<html>not a model server</html>"),
    ],
)
def test_a_broken_reply_is_transient(behaviour: Behaviour) -> None:
    assert failure(behaviour).blame == "transient"


@pytest.mark.parametrize(
    "left_out", [{"param": "max_tokens"}, {"message": "Unsupported parameter: stream_options"}]
)
def test_an_optional_parameter_that_is_refused_is_left_out_from_then_on(left_out: dict[str, str]) -> None:
    refusal = Refuses(400, {"message": "Unsupported parameter."} | left_out)
    with FakeModelServer([refusal, Says({"thought": "a"}), Says({"thought": "b"})]) as server:
        model = ServedModel(settings(server))
        first, second = model.ask(REQUEST, always), model.ask(REQUEST, always)
        bodies = [asked.body for asked in server.asked]
    assert isinstance(first, ModelReplied) and isinstance(second, ModelReplied)
    name = left_out.get("param") or "stream_options"
    assert [name in body for body in bodies] == [True, False, False]
    assert ("max_completion_tokens" in bodies[2]) is (name == "max_tokens")


def test_a_parameter_that_is_refused_again_ends_the_call() -> None:
    refusal = Refuses(400, {"message": "Unsupported.", "param": "temperature"})
    failed = failure(refusal, refusal)
    assert failed.blame == "fatal"


def took(call: Callable[[], object]) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


@pytest.mark.parametrize("behaviour", [Stalls(), Stalls(after="some"), Drips()])
def test_the_deadline_holds_whatever_the_server_does(behaviour: Behaviour) -> None:
    with FakeModelServer([behaviour]) as server:
        model = ServedModel(settings(server, timeout_s=0.3))
        answers: list[Answer] = []
        seconds = took(lambda: answers.append(model.ask(REQUEST, always)))
    (failed,) = answers
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"
    assert "longer than 0.3 seconds" in failed.message
    assert seconds < 30  # the server itself would take for ever


def test_silence_ends_a_call_before_its_deadline() -> None:
    assert "does not answer in time" in failure(Stalls(after="so"), silence_s=0.2).message


def test_nobody_listening_is_transient() -> None:
    with FakeModelServer([]) as server:
        gone = settings(server)
    answer = ServedModel(gone).ask(REQUEST, always)
    assert isinstance(answer, Failed)
    assert answer.blame == "transient"
    assert "can't be reached" in answer.message


def test_the_key_is_in_no_picture_of_the_settings() -> None:
    with FakeModelServer([]) as server:
        shown = settings(server)
    assert KEY not in repr(shown)
    assert KEY not in shown.model_dump_json()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com/v1",
        "ftp://example.com",
        "http://",
        "http://u:p@example.com/v1",
        "http://e x.com",
        "http://a/v1?x=1",
    ],
)
def test_a_base_url_that_is_none_is_bad_input(url: str) -> None:
    with pytest.raises(ValidationError, match="give an address"):
        ModelSettings(name="m", base_url=url, model_id="m")


def test_a_base_url_may_be_pasted_whole() -> None:
    pasted = ModelSettings(name="m", base_url=" http://127.0.0.1:8080/v1/chat/completions ", model_id="m")
    assert pasted.base_url == "http://127.0.0.1:8080/v1"


@pytest.mark.parametrize("key", ["a\nb", "schlüssel", "a b"])
def test_a_key_that_fits_no_header_is_bad_input(key: str) -> None:
    with pytest.raises(ValidationError, match="characters that no key has") as caught:
        ModelSettings(name="m", base_url="http://127.0.0.1/v1", model_id="m", api_key=key)
    assert key not in str(caught.value)


def test_neighbours_of_one_author_become_one_message() -> None:
    messages = (*REQUEST.messages, Message(author="user", text="BUDGET_STATE: none"))
    _, asked = ask(Says({"thought": ""}), request=REQUEST.model_copy(update={"messages": messages}))
    assert asked[0].body["messages"][-1]["content"] == "Goal: tides\n\nBUDGET_STATE: none"


# --- the seed ---------------------------------------------------------------------------------------------------


def test_a_profile_with_a_seed_sends_it_with_each_call_and_the_reply_records_it() -> None:
    answer, (sent,) = ask(Says({"thought": "tides"}), seed=7)
    assert sent.body["seed"] == 7
    assert isinstance(answer, ModelReplied) and answer.seed == 7
    answer, (sent,) = ask(Says({"thought": "tides"}))
    assert "seed" not in sent.body
    assert isinstance(answer, ModelReplied) and "seed" not in answer.model_dump()


@pytest.mark.parametrize(
    "error", [{"message": "Unsupported.", "param": "seed"}, {"message": "Extra input: seed is not permitted"}]
)
def test_a_server_that_refuses_the_seed_is_not_asked_without_it(error: dict[str, Any]) -> None:
    with FakeModelServer([Refuses(400, error), Says({"thought": "tides"})]) as server:
        answer = ServedModel(settings(server, seed=7)).ask(REQUEST, always)
        assert len(server.asked) == 1
    assert isinstance(answer, Failed) and answer.blame == "fatal"
    assert "does not take a seed (HTTP 400). Clear the seed in this model's profile." in answer.message
