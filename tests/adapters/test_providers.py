"""Each provider's own dialect is spoken by its library; the engine sees the same three answers, in time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from runs.adapters.models import EXTRAS, Kind, ModelSettings, ServedModel, missing_package
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied
from runs.engine.ports import Message
from tests.adapters.asking import KEY, REQUEST, SCHEMA, always, settings
from tests.adapters.dialects import CHUNKS, GOOD, MODELS, THOUGHT, broken_off, failing, reply
from tests.fake_model_server import Asked, Behaviour, Drips, FakeModelServer, Refuses, Says, Sends, Stalls

Answer = ModelReplied | ContextOverflowed | Failed
PATHS = {
    "anthropic": "/v1/messages",
    "google": "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
    "mistral": "/v1/chat/completions",
    "openrouter": "/v1/chat/completions",
    "responses": "/v1/responses",
}

kinds = pytest.mark.parametrize("kind", MODELS)


def asked(kind: str, *behaviours: Behaviour, **changes: Any) -> tuple[Answer, list[Asked]]:
    with FakeModelServer(behaviours) as server:
        wanted = {"kind": kind, "model_id": MODELS[kind], "output_mode": "prompted"} | changes
        answer = ServedModel(settings(server, **wanted)).ask(REQUEST, always)
        return answer, server.asked


# --- the reply ----------------------------------------------------------------------------------------------------


@kinds
@pytest.mark.parametrize("mode", ["native", "tool", "prompted"])
def test_a_reply_comes_with_its_reasoning_and_its_usage(kind: str, mode: str) -> None:
    answer, (sent,) = asked(kind, reply(kind), output_mode=mode, input_price=1.0, output_price=10.0)
    assert isinstance(answer, ModelReplied), answer
    assert (answer.text, answer.ended) == (GOOD, "stop")
    assert answer.reasoning == ("" if kind == "responses" else THOUGHT)
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (1_000, 50)
    assert answer.usage.cost_usd > 0
    assert sent.path == PATHS[kind]
    assert "tides" in json.dumps(sent.body)


@kinds
def test_the_schema_is_sent_as_the_provider_wants_it_or_in_words(kind: str) -> None:
    told = {}
    for mode in ("native", "tool", "prompted"):
        _, (sent,) = asked(kind, reply(kind), output_mode=mode)
        told[mode] = sent.body
    assert "Reply with one JSON object" in json.dumps(told["prompted"])
    assert "tools" in told["tool"] and json.dumps(SCHEMA["properties"]) in json.dumps(told["tool"])
    in_words = "Reply with one JSON object" in json.dumps(told["native"])
    assert in_words is (kind == "mistral")


@kinds
@pytest.mark.parametrize("mode", ["native", "tool"])
def test_a_schema_that_leaves_something_open_is_sent_too(kind: str, mode: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "thought": {"type": "string", "maxLength": 2_000},
            "action": {"anyOf": [{"type": "object", "properties": {}}, {"type": "null"}]},
        },
        "required": ["thought"],
    }
    request = REQUEST.model_copy(update={"reply_schema": schema})
    with FakeModelServer([reply(kind)]) as server:
        about = settings(server, kind=kind, model_id=MODELS[kind], output_mode=mode)
        answer = ServedModel(about).ask(request, always)
    assert isinstance(answer, ModelReplied), answer


@kinds
@pytest.mark.parametrize("ended", ["length", "content_filter"])
def test_a_reply_that_did_not_end_in_order_says_how(kind: str, ended: str) -> None:
    answer, _ = asked(kind, reply(kind, ended))
    assert isinstance(answer, ModelReplied), answer
    assert answer.ended == ended


@kinds
def test_a_reply_without_a_reason_for_its_end_broke_off(kind: str) -> None:
    answer, _ = asked(kind, broken_off(kind))
    assert isinstance(answer, Failed), answer
    assert (answer.blame, "broke off" in answer.message) == ("transient", True)


def test_a_stream_of_google_is_read_as_a_list_too() -> None:
    as_list = Sends(json.dumps(CHUNKS["google"]("stop", GOOD)).encode())
    answer, _ = asked("google", as_list)
    assert isinstance(answer, ModelReplied), answer
    assert (answer.text, answer.reasoning, answer.ended) == (GOOD, THOUGHT, "stop")


@kinds
def test_a_call_that_is_not_wanted_any_more_is_cut_at_the_next_chunk(kind: str) -> None:
    looks: list[str] = []

    def watch(so_far: Callable[[], str]) -> bool:
        looks.append(so_far())
        return len(looks) < 2

    with FakeModelServer([reply(kind)]) as server:
        wanted = {"kind": kind, "model_id": MODELS[kind], "output_mode": "prompted"}
        answer = ServedModel(settings(server, **wanted)).ask(REQUEST, watch)
    assert isinstance(answer, Failed)
    assert "no longer needs it" in answer.message
    assert len(looks) == 2


@kinds
@pytest.mark.parametrize("behaviour", [Stalls(), Drips()])
def test_the_deadline_holds_for_every_library(kind: str, behaviour: Behaviour) -> None:
    answer, _ = asked(kind, behaviour, timeout_s=0.3)
    assert isinstance(answer, Failed)
    assert (answer.blame, "longer than 0.3 seconds" in answer.message) == ("transient", True)


class OwnFault(Exception):
    """Raised by a watcher."""


def test_a_fault_of_the_watcher_is_its_own() -> None:
    def watch(so_far: Callable[[], str]) -> bool:
        raise OwnFault

    with FakeModelServer([reply("openrouter")]) as server, pytest.raises(OwnFault):
        ServedModel(settings(server)).ask(REQUEST, watch)


@pytest.mark.parametrize(
    ("words", "read", "sent"),
    [
        (20_000, 2_048, 5_001),
        (20_000, 4_096, 0),
        (20_000, 5_120, 0),
        (40_000, 4_000, 10_001),
        (400, 9, 0),
        (8_000, 1_024, 2_001),
        (20_000, 20_000, 0),
    ],
)
def test_a_server_that_read_less_than_was_sent_is_found_out(words: int, read: int, sent: int) -> None:
    long = (*REQUEST.messages[:1], Message(author="user", text="x" * words))
    with FakeModelServer([Says({"thought": "x"}, usage=(read, 7))]) as server:
        request = REQUEST.model_copy(update={"messages": long})
        answer = ServedModel(settings(server)).ask(request, always)
    assert isinstance(answer, ModelReplied)
    assert answer.sent_tokens == sent


# --- errors -------------------------------------------------------------------------------------------------------


def of_kind(kind: str, status: int, name: str, said: str) -> Refuses:
    """An error as the provider words it."""
    match kind:
        case "anthropic":
            return Refuses(status, json.dumps({"type": "error", "error": {"type": name, "message": said}}))
        case "google":
            return Refuses(status, {"code": status, "status": name.upper(), "message": said})
        case "mistral":
            return Refuses(status, json.dumps({"object": "error", "message": said, "type": name}))
    return Refuses(status, {"message": said, "type": name, "code": None})


@kinds
@pytest.mark.parametrize(
    ("status", "blame"),
    [(401, "fatal"), (402, "fatal"), (403, "fatal"), (429, "transient"), (529, "transient")],
)
def test_an_error_has_the_providers_own_words_and_is_met_once(kind: str, status: int, blame: str) -> None:
    answer, sent = asked(kind, of_kind(kind, status, "some_error", f"The plan of {KEY} ended in June."))
    assert isinstance(answer, Failed)
    assert (answer.blame, len(sent)) == (blame, 1)
    assert "ended in June." in answer.message and f"HTTP {status}" in answer.message
    assert KEY not in answer.message


WITHOUT_STATUS = {
    "google's key": (
        400,
        {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]},
        "refuses the key",
    ),
    "a named key": (400, {"code": "invalid_api_key"}, "refuses the key"),
    "openai's account": (429, {"code": "insufficient_quota"}, "no credit left"),
    "moonshot's account": (429, {"type": "exceeded_current_quota_error"}, "no credit left"),
    "anthropic's account": (
        400,
        {"type": "invalid_request_error", "message": "Your credit balance is too low to access the API."},
        "no credit left",
    ),
}


@pytest.mark.parametrize(("status", "error", "told"), WITHOUT_STATUS.values(), ids=WITHOUT_STATUS)
def test_key_and_account_are_told_apart_under_other_statuses(status: int, error: Any, told: str) -> None:
    answer, sent = asked("openrouter", Refuses(status, {"message": "No."} | error))
    assert isinstance(answer, Failed)
    assert (answer.blame, answer.asks, len(sent)) == ("fatal", True, 1)
    assert told in answer.message


@kinds
@pytest.mark.parametrize(("code", "blame"), [(402, "fatal"), (503, "transient")])
def test_an_error_in_the_middle_of_a_stream_is_read_like_any_other(kind: str, code: int, blame: str) -> None:
    answer, sent = asked(kind, failing(kind, {"code": code, "message": "The slot was lost."}))
    assert isinstance(answer, Failed), answer
    assert (answer.blame, len(sent)) == (blame, 1)
    assert "The slot was lost." in answer.message


OVERFLOWS = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "anthropic": "prompt is too long: 208310 tokens > 200000 maximum",
    "anthropic with its reply": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    "google": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "groq": "Please reduce the length of the messages or completion.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "bedrock": "Input is too long for requested model.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "ollama": "input length exceeds maximum context length",
    "lm studio": "The number of tokens to keep from the initial prompt is greater than the context length.",
    "lm studio, later": "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded "
    "with context length of only 4096 tokens, which is not enough.",
    "vllm": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "vllm, older": "Input prompt (5000 tokens) is too long and exceeds limit of 4096",
    "sglang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens",
    "moonshot": "Invalid request: Your request exceeded model token limit: 8192",
    "zhipu": "Prompt exceeds max length",
    "dashscope": "Range of input length should be [1, 30720]",
    "minimax": "invalid params, context window exceeds limit (2013)",
    "fireworks": "The prompt is too long: 200000, model maximum context length: 131071",
    "azure": "Your input exceeds the context window of this model.",
}


@pytest.mark.parametrize("said", OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_prompt_that_is_too_long_is_told_apart_in_every_providers_words(said: str) -> None:
    answer, sent = asked("openrouter", Refuses(400, {"message": said, "type": "invalid_request_error"}))
    assert isinstance(answer, ContextOverflowed), answer
    assert (answer.message, len(sent)) == (said, 1)


@kinds
def test_an_overflow_is_one_in_every_providers_form(kind: str) -> None:
    answer, _ = asked(kind, of_kind(kind, 400, "invalid_request_error", OVERFLOWS["anthropic"]))
    assert isinstance(answer, ContextOverflowed)


NO_OVERFLOWS = [
    (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000."),
    (429, "rate limit exceeded, please try again later"),
    (400, "max_tokens is too large: 99999. This model supports at most 16384 completion tokens."),
    (400, "Invalid value: temperature must be between 0 and 2."),
]


@pytest.mark.parametrize(("status", "said"), NO_OVERFLOWS)
def test_what_is_no_overflow_is_not_taken_for_one(status: int, said: str) -> None:
    answer, _ = asked("openrouter", Refuses(status, {"message": said}))
    assert isinstance(answer, Failed), answer
    assert said in answer.message


def test_a_library_that_does_not_load_ends_the_call_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    answer, sent = asked("anthropic")
    assert isinstance(answer, Failed)
    assert (answer.blame, sent) == ("fatal", [])
    assert "was not asked. Check the model's profile." in answer.message


# --- options that servers refuse ----------------------------------------------------------------------------------

REFUSALS = {
    "o-series": ({"message": "Unsupported parameter: 'max_tokens'.", "param": "max_tokens"}, "max_tokens"),
    "one temperature": (
        {"message": "Unsupported value: 'temperature' does not support 0.", "param": "temperature"},
        "temperature",
    ),
    "no counts": ({"message": "Unknown parameter: 'stream_options'"}, "stream_options"),
    "a validated body": (
        json.dumps(
            {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}
        ),
        "stream_options",
    ),
    "no streams": ({"message": "Streaming is not supported by this model."}, "stream"),
    "no streams, by name": ({"message": "no", "param": "stream"}, "stream"),
    "no schemas": (
        {"message": "This model does not support response_format of type json_schema"},
        "json_schema",
    ),
    "no schemas, by name": ({"message": "Invalid schema", "param": "response_format"}, "json_schema"),
    "no structured outputs": (
        {"message": "Structured outputs are not available for this model"},
        "json_schema",
    ),
    "no system": ({"message": "System role not supported"}, "system"),
    "no developer": (
        {"message": "Developer instruction is not enabled; system instruction not supported"},
        "system",
    ),
}


@pytest.mark.parametrize(("error", "option"), REFUSALS.values(), ids=REFUSALS)
def test_a_refused_option_is_left_out_at_once_and_not_met_again(error: Any, option: str) -> None:
    remembered: list[frozenset[str]] = []
    behaviours: list[Behaviour] = [Refuses(400, error), *[reply("openrouter")] * 3]
    with FakeModelServer(behaviours) as server:
        about = settings(server)
        model = ServedModel(about, remember=remembered.append)
        answers = [model.ask(REQUEST, always), model.ask(REQUEST, always)]
        later = about.model_copy(update={"left_out": remembered[0]})
        answers.append(ServedModel(later).ask(REQUEST, always))
    assert [getattr(answer, "text", answer) for answer in answers] == [GOOD] * 3
    assert remembered == [frozenset({option})]
    first, *others = [sent.body for sent in server.asked]
    assert len(others) == 3
    assert has(first, option)
    assert not any(has(body, option) for body in others)


def has(body: dict[str, Any], option: str) -> bool:
    """Whether a request has the option."""
    match option:
        case "system":
            return any(message["role"] == "system" for message in body["messages"])
        case "json_schema":
            return body.get("response_format", {}).get("type") == "json_schema"
    return option in body


def test_json_mode_follows_a_refused_schema_and_words_follow_refused_json_mode() -> None:
    refusal = Refuses(400, {"message": "'response_format' is not supported", "param": "response_format"})
    with FakeModelServer([refusal, refusal, reply("openrouter")]) as server:
        answer = ServedModel(settings(server)).ask(REQUEST, always)
    assert isinstance(answer, ModelReplied)
    native, json_mode, words = [sent.body for sent in server.asked]
    assert native["response_format"]["type"] == "json_schema"
    assert json_mode["response_format"] == {"type": "json_object"}
    assert "response_format" not in words
    assert all("Reply with one JSON object" in str(body["messages"]) for body in (json_mode, words))


def test_a_server_without_streams_is_read_whole_without_asking_for_one() -> None:
    whole = {
        "choices": [{"message": {"content": GOOD}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9},
    }
    refusal = Refuses(501, {"message": "stream is not implemented"})
    with FakeModelServer([refusal, Sends(json.dumps(whole).encode())]) as server:
        answer = ServedModel(settings(server)).ask(REQUEST, always)
    assert isinstance(answer, ModelReplied)
    assert (answer.text, answer.usage.input_tokens) == (GOOD, 9)


def test_a_template_that_fails_on_the_system_role_gets_a_user_message() -> None:
    broken = Refuses(500, {"message": "Jinja Exception: System role not supported"})
    with FakeModelServer([broken, reply("openrouter")]) as server:
        ServedModel(settings(server)).ask(REQUEST, always)
    first, second = [sent.body["messages"] for sent in server.asked]
    assert [message["role"] for message in second] == ["user"]
    assert second[0]["content"] == "\n\n".join(message["content"] for message in first)


def test_nothing_is_remembered_of_a_refusal_that_leaving_out_did_not_mend() -> None:
    remembered: list[frozenset[str]] = []
    with FakeModelServer([Refuses(400, {"param": "temperature"}), Refuses(400, {"message": "no"})]) as server:
        answer = ServedModel(settings(server), remember=remembered.append).ask(REQUEST, always)
    assert isinstance(answer, Failed)
    assert not remembered


# --- what is sent -------------------------------------------------------------------------------------------------

SECRET = "from-the-environment"
ENVIRONMENT = (
    *("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    *("GOOGLE_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY", "OPENROUTER_API_KEY"),
)


@kinds
@pytest.mark.parametrize("key", [KEY, ""])
def test_nothing_of_the_environment_is_sent_and_the_key_once(
    kind: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, SECRET)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "MISTRAL_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/v1")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"X-Secret: {SECRET}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Secret: {SECRET}")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    answer, (sent,) = asked(kind, reply(kind), api_key=key)
    assert isinstance(answer, ModelReplied), answer
    assert SECRET not in f"{sent.headers} {sent.body}"
    assert f"{sent.headers} {sent.path} {sent.body}".count(KEY) == (1 if key else 0)
    allowed = {"accept", "anthropic-version", "anthropic-beta", "content-length", "content-type", "host"}
    own = {"user-agent", "authorization", "x-api-key", "x-goog-api-key"}
    assert set(sent.headers) <= allowed | own
    assert sent.headers["user-agent"] == "agentsite"


@kinds
def test_a_server_that_sends_elsewhere_is_not_followed(kind: str) -> None:
    with FakeModelServer([reply(kind)]) as other:
        moved = Sends(b"", 307, (("Location", f"{other.base_url}/messages"),))
        answer, sent = asked(kind, moved)
        assert isinstance(answer, Failed)
        assert (answer.blame, "redirects" in answer.message) == ("fatal", True)
        assert (len(sent), len(other.asked)) == (1, 0)


@pytest.mark.parametrize("kind", ["anthropic", "responses"])
def test_a_seed_for_a_kind_that_takes_none_is_bad_input(kind: Kind) -> None:
    with pytest.raises(ValidationError, match="takes no seed"):
        ModelSettings(name="m", kind=kind, base_url="http://127.0.0.1/v1", model_id="m", seed=7)


def test_a_kind_whose_library_is_not_installed_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("not_a_library", "not_a_library.at.all"):
        monkeypatch.setitem(EXTRAS, "anthropic", module)
        assert missing_package("anthropic") == module
    assert missing_package("openai") == ""


# --- what is loaded -----------------------------------------------------------------------------------------------


def test_web_processes_load_no_providers_library() -> None:
    program = (
        "import sys, agentsite.asgi\n"
        "from django.urls import get_resolver\n"
        "assert get_resolver().url_patterns\n"
        "import runs.driver.ports, runs.admin\n"
        "heavy = {'pydantic_ai', 'openai', 'anthropic', 'google.genai', 'mistralai', 'httpx2', 'httpcore2'}\n"
        "print(*(heavy & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (0, "\n"), ended.stderr
