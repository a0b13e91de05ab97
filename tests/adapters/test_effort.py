"""The reasoning effort of a profile, in each provider's dialect."""

from __future__ import annotations

from typing import Any

import pytest

from runs.adapters.models import EFFORTS
from runs.engine.effects import ModelReplied
from tests.adapters.asking import TEXT_REQUEST, ask
from tests.adapters.dialects import MODELS, reply
from tests.fake_model_server import Refuses, Says

OLDER, NEWER = "claude-haiku-4-5", "claude-opus-4-8"


def sent(kind: str, **fields: Any) -> dict[str, Any]:
    """The body of a request to a server of the kind."""
    behaviour = Says("tides") if kind == "openai" else reply(kind)
    about = {"kind": kind, "model_id": MODELS.get(kind, "fake"), "max_output_tokens": 8_000} | fields
    answer, asked = ask(behaviour, request=TEXT_REQUEST, **about)
    assert isinstance(answer, ModelReplied), answer
    return asked[0].body


@pytest.mark.parametrize("effort", EFFORTS)
def test_chat_completions_name_the_effort(effort: str) -> None:
    assert sent("openai", effort=effort)["reasoning_effort"] == effort


@pytest.mark.parametrize("effort", EFFORTS)
def test_openrouter_has_it_among_its_options_for_reasoning(effort: str) -> None:
    body = sent("openrouter", effort=effort)
    assert body["reasoning"] == {"effort": effort}
    assert "reasoning_effort" not in body


def test_responses_have_it_among_their_options_for_reasoning() -> None:
    assert sent("responses", model_id="gpt-5.1", effort="low")["reasoning"]["effort"] == "low"


def test_an_older_claude_gets_a_budget_that_leaves_room_for_the_reply() -> None:
    body = sent("anthropic", model_id=OLDER, effort="high")
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 4_000}
    assert "temperature" not in body
    assert sent("anthropic", model_id=OLDER, effort="low")["thinking"]["budget_tokens"] == 2_048
    assert "thinking" not in sent("anthropic", model_id=OLDER, effort="high", max_output_tokens=2_000)


def test_a_newer_claude_gets_the_effort_itself() -> None:
    body = sent("anthropic", model_id=NEWER, effort="medium")
    assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "medium"})


def test_no_effort_thinks_not() -> None:
    assert "thinking" not in sent("anthropic", model_id=OLDER, effort="none")
    body = sent("google", model_id="gemini-2.5-flash", effort="none")
    assert body["generationConfig"]["thinkingConfig"] == {"thinking_budget": 0}


def test_google_gets_a_budget_or_a_level() -> None:
    body = sent("google", model_id="gemini-2.5-flash", effort="low")
    assert body["generationConfig"]["thinkingConfig"]["thinking_budget"] > 0
    body = sent("google", model_id="gemini-3-pro-preview", effort="high")
    assert body["generationConfig"]["thinkingConfig"]["thinking_level"] == "HIGH"


def test_mistral_thinks_or_not() -> None:
    for effort, said in (("none", "none"), ("low", "high"), ("high", "high")):
        assert sent("mistral", model_id="mistral-small-latest", effort=effort)["reasoning_effort"] == said


@pytest.mark.parametrize("kind", ["openai", *MODELS])
def test_without_an_effort_nothing_is_said_of_it(kind: str) -> None:
    body = sent(kind)
    assert not {"reasoning_effort", "thinking", "reasoning"} & set(body)
    assert "thinkingConfig" not in body.get("generationConfig", {})


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Unrecognized request argument supplied: reasoning_effort"},
        {"message": "Unsupported value: 'none'.", "param": "reasoning_effort"},
        {"message": "Unsupported value.", "param": "reasoning.effort"},
    ],
)
def test_a_server_that_refuses_the_effort_is_asked_without_it(error: dict[str, Any]) -> None:
    answer, asked = ask(Refuses(400, error), Says("tides"), request=TEXT_REQUEST, effort="none")
    assert isinstance(answer, ModelReplied)
    assert [one.body.get("reasoning_effort") for one in asked] == ["none", None]
