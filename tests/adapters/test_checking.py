"""Test connection: what a test of a profile says of servers that work, and of servers that do not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from runs.adapters.models.checking import UNCHOSEN, check
from runs.adapters.models.findings import Checked
from tests.adapters.asking import KEY, delta, events, settings
from tests.adapters.dialects import MODELS, reply
from tests.fake_model_server import (
    Asked,
    Behaviour,
    Drips,
    FakeModelServer,
    Refuses,
    Says,
    SaysAtOnce,
    Sends,
    listed,
)

FOUND = {"thought": "12 and 30 make 42", "number": 42}
OVERFLOW = {
    "message": "This model's maximum context length is 4096 tokens.",
    "code": "context_length_exceeded",
}
COUNTING = Says("one, two, three, four", pieces=8)
TOO_LONG = Refuses(400, OVERFLOW)
COUNTED = [events(delta(content=word), done=False) for word in ("one", ", two", ", three", ", four")]
"""A stream without its end."""


def checked(
    *behaviours: Behaviour,
    models: Behaviour | Sequence[str] = ("fake",),
    too_long: bool = True,
    **fields: Any,
) -> Checked:
    """The result of a test of a server that plays these; `models` is its list."""
    with FakeModelServer(behaviours) as server:
        server.models = models if not isinstance(models, Sequence) else listed(*models)
        about = {"context_tokens": 4_096} | fields
        found = check(settings(server, **about), too_long=too_long)
        assert KEY not in found.model_dump_json()
        return found


def told(found: Checked) -> list[str]:
    return [f"{one.tone}: {one.text}" for one in found.findings]


def test_a_server_that_does_all_is_good_throughout() -> None:
    found = checked(Says(FOUND), COUNTING, TOO_LONG)
    assert [one.tone for one in found.findings] == ["good"] * 4
    assert "has the model “fake”" in told(found)[0]
    assert "7 pieces" in told(found)[2]
    assert "runs compact" in told(found)[3]
    assert (found.tokens, found.cost_usd) == (94, 0)
    assert [one.model_id for one in found.offered] == ["fake"]


def test_the_long_prompt_is_left_out_unless_it_is_wanted() -> None:
    assert len(checked(Says(FOUND), COUNTING, too_long=False).findings) == 3


def test_a_refused_key_ends_the_test() -> None:
    (only,) = told(checked(models=Refuses(401, {"message": f"Incorrect key {KEY}"})))
    assert only == "bad: The server refuses the key (HTTP 401). Enter a valid key."


def test_a_key_that_only_calls_need_is_told_too() -> None:
    found = checked(Refuses(401, {"message": f"Incorrect key {KEY}"}))
    assert found.findings[-1].tone == "bad"
    assert "Check this model's API key" in found.findings[-1].text


def test_a_server_that_is_not_there_is_told_with_its_address() -> None:
    with FakeModelServer([]) as server:
        gone = settings(server)
    (only,) = told(check(gone, too_long=True))
    assert only == "bad: The server can't be reached. 127.0.0.1 can't be reached. Check the address."


def test_without_a_model_the_list_is_offered() -> None:
    found = checked(models=("a", "b"), model_id=UNCHOSEN)
    assert told(found) == ["bad: The server has 2 models. Choose one."]
    assert [one.model_id for one in found.offered] == ["a", "b"]


def test_a_key_that_a_server_lists_is_no_model() -> None:
    assert [one.model_id for one in checked(models=("a", KEY), model_id=UNCHOSEN).offered] == ["a"]


def test_a_model_that_is_not_on_the_list_is_called_all_the_same() -> None:
    found = checked(Says(FOUND), COUNTING, models=("a", "b"), too_long=False)
    assert told(found)[0] == "warn: The server lists 2 models, and “fake” is none of them."
    assert len(found.findings) == 3


def test_a_server_without_a_list_is_called_all_the_same() -> None:
    found = checked(Says(FOUND), COUNTING, models=Refuses(404), too_long=False)
    assert told(found)[0] == "warn: The server gives no list of its models."


@pytest.mark.parametrize("fields", [{"max_model_len": 2_048}, {"meta": {"context_length": 2_048}}])
def test_the_context_of_the_list_is_compared(fields: dict[str, Any]) -> None:
    found = checked(Says(FOUND), COUNTING, models=listed("fake", **fields), too_long=False)
    assert "Set Context tokens to 2048." in told(found)[1]


def test_a_refused_option_is_told_and_remembered() -> None:
    refusal = Refuses(400, {"message": "response_format json_schema is not supported"})
    with FakeModelServer([refusal, Says(FOUND), COUNTING]) as server:
        known: list[frozenset[str]] = []
        found = check(settings(server), too_long=False, remember=known.append)
    assert "warn: The server refuses json_schema. Calls are made without." in told(found)
    assert known == [frozenset({"json_schema"})]


def test_an_unreadable_reply_leads_to_the_next_output_mode() -> None:
    found = checked(Says("It is 42."), COUNTING, too_long=False)
    assert "holds no JSON object. Set Output mode to json_object." in told(found)[1]
    found = checked(Says("It is 42."), COUNTING, too_long=False, output_mode="prompted")
    assert "Check Guided, or choose a larger model." in told(found)[1]


def test_a_server_that_does_not_count_is_told() -> None:
    found = checked(Says(FOUND, usage=None), COUNTING, too_long=False)
    assert "warn: The server does not count tokens: cost and limits are estimates." in told(found)


def test_a_reply_at_once_is_told() -> None:
    found = checked(Says(FOUND), SaysAtOnce("one, two"), too_long=False)
    assert "Replies come whole" in told(found)[-1]


def test_a_stream_without_an_end_is_a_note() -> None:
    endless = Sends(b"".join(COUNTED), headers=(("Content-Type", "text/event-stream"),), size=40)
    found = checked(Says(FOUND), endless, too_long=False)
    assert told(found)[-1].startswith("warn: Replies stream, but this one did not end. The model server")
    assert "broke off in the middle" in told(found)[-1]


def test_a_silent_server_ends_the_test_by_its_deadline() -> None:
    found = checked(Says(FOUND), Drips(), too_long=False, timeout_s=1)
    assert "bad: A reply of text failed." in told(found)[-1]
    assert "longer than 1 seconds" in told(found)[-1]


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 2048 tokens.",
        "the request exceeds the available context size (2048 tokens)",
        "prompt is too long: 4710 tokens > 2048 maximum",
        "The input token count (4710) exceeds the maximum number of tokens allowed (2048).",
    ],
)
def test_a_server_with_less_room_than_the_profile_says_what_to_set(message: str) -> None:
    found = checked(Says(FOUND), COUNTING, Refuses(400, {"message": message}))
    assert told(found)[-1].endswith("the profile says 4,096. Set Context tokens to 2048.")


def test_a_server_that_cuts_prompts_is_found_out() -> None:
    found = checked(Says(FOUND), COUNTING, Says("yes", usage=(2_048, 1)))
    assert told(found)[-1].startswith(
        "bad: The server cuts long prompts without a word: it read 2,048 tokens"
    )
    assert "Set Context tokens to at most 2048" in told(found)[-1]


def test_a_server_with_more_room_says_so() -> None:
    found = checked(Says(FOUND), COUNTING, Says("yes", usage=(4_700, 1)))
    assert "You may raise Context tokens." in told(found)[-1]


def test_the_long_prompt_is_over_the_context_and_its_reply_short() -> None:
    asked: list[Asked] = []

    def behave(request: Asked) -> Behaviour:
        asked.append(request)
        behaviours: list[Behaviour] = [Says(FOUND), COUNTING, TOO_LONG]
        return behaviours[len(asked) - 1]

    with FakeModelServer(behave) as server:
        check(settings(server, context_tokens=4_096), too_long=True)
    last = asked[-1].body
    assert len(str(last["messages"][-1]["content"]).split()) > 4_096 * 1.1
    assert last["max_tokens"] == 16


@pytest.mark.parametrize("kind", MODELS)
def test_each_provider_is_tested_through_its_dialect(kind: str) -> None:
    behaviours = reply(kind, text=json.dumps(FOUND)), reply(kind, text="one, two"), Refuses(413)
    name = MODELS[kind]
    body = {"models": [{"name": f"models/{name}", "inputTokenLimit": 9_000}]} if kind == "google" else None
    models = Sends(json.dumps(body).encode()) if body else listed(name)
    found = checked(*behaviours, models=models, kind=kind, model_id=name)
    assert [one.model_id for one in found.offered] == [name]
    assert "has the model" in told(found)[0]
    assert "good: A structured reply came as requested." in told(found)
    assert "runs compact" in told(found)[-1]
