"""Requests to a model server that is faked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from runs.adapters.models import ModelSettings, ServedModel
from runs.engine.effects import ContextOverflowed, Failed, ModelReplied
from runs.engine.ports import Message, ModelRequest
from tests.fake_model_server import Asked, Behaviour, FakeModelServer, Sends

KEY = "sk-test-0123456789abcdef"

SCHEMA = {
    "type": "object",
    "properties": {"thought": {"type": "string"}},
    "required": ["thought"],
    "additionalProperties": False,
}

REQUEST = ModelRequest(
    role="decision",
    nth=1,
    messages=(Message(author="system", text="Decide."), Message(author="user", text="Goal: tides")),
    reply_schema=SCHEMA,
    reply_name="ruled.thought",
)

TEXT_REQUEST = REQUEST.model_copy(update={"reply_schema": None})

Answer = ModelReplied | ContextOverflowed | Failed


def always(so_far: Callable[[], str]) -> bool:
    return True


def settings(server: FakeModelServer, **changes: Any) -> ModelSettings:
    return ModelSettings(
        **{"name": "Fake", "base_url": server.base_url, "model_id": "fake", "api_key": KEY} | changes
    )


def ask(
    *behaviours: Behaviour, request: ModelRequest = REQUEST, **changes: Any
) -> tuple[Answer, list[Asked]]:
    with FakeModelServer(behaviours) as server:
        answer = ServedModel(settings(server, **changes)).ask(request, always)
        return answer, server.asked


def failure(*behaviours: Behaviour, **changes: Any) -> Failed:
    answer, _ = ask(*behaviours, **changes)
    assert isinstance(answer, Failed)
    assert KEY not in answer.message
    return answer


def whole(message: dict[str, Any], finish: Any = "stop", **more: Any) -> Sends:
    """A reply in one body."""
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    return Sends(json.dumps({"object": "chat.completion", "choices": [choice]} | more).encode())


def events(*chunks: dict[str, Any] | str, done: bool = True) -> bytes:
    """Chunks as server-sent events."""
    texts = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return "".join(f"data: {text}\n\n" for text in (*texts, *(["[DONE]"] if done else []))).encode()


def delta(finish: Any = None, **parts: Any) -> dict[str, Any]:
    """One chunk."""
    return {"choices": [{"index": 0, "delta": parts, "finish_reason": finish}]}


def streamed(*deltas: dict[str, Any], finish: Any = "stop") -> Sends:
    """A reply in chunks."""
    return Sends(events(*(delta(**parts) for parts in deltas), delta(finish)))


def call(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "reply", "arguments": arguments}} | more
