"""Replies as each provider streams them, beside chat completions: the forms are those of their public references."""

from __future__ import annotations

import json
from typing import Any

from tests.fake_model_server import Sends

GOOD = '{"thought": "tides"}'
THOUGHT = "The moon."
MODELS = {
    "anthropic": "claude-haiku-4-5",
    "google": "gemini-2.5-pro",
    "mistral": "mistral-large-latest",
    "responses": "gpt-4.1",
    "openrouter": "maker/model",
}
"""A model of each kind."""


def events(*chunks: dict[str, Any], done: bool = False) -> Sends:
    """Server-sent events, named by their type where they have one."""
    told = []
    for chunk in chunks:
        name = f"event: {chunk['type']}\n" if "type" in chunk else ""
        told.append(f"{name}data: {json.dumps(chunk)}\n\n")
    told += ["data: [DONE]\n\n"] if done else []
    return Sends("".join(told).encode(), headers=(("Content-Type", "text/event-stream"),))


def reply(kind: str, ended: str = "stop", text: str = GOOD) -> Sends:
    """A whole reply with reasoning (except of `responses`), 1,000 tokens read, 900 of them cached, and 50 written."""
    return events(*CHUNKS[kind](ended, text), done=kind in ("mistral", "openrouter"))


def broken_off(kind: str) -> Sends:
    """A reply whose server gives no reason for its end."""
    return events(*CHUNKS[kind]("", GOOD)[: -LAST[kind]])


def failing(kind: str, error: dict[str, Any]) -> Sends:
    """The beginning of a reply, and then an error."""
    wrapped = {"anthropic": {"type": "error", "error": error}, "responses": {"type": "error"} | error}
    return events(*CHUNKS[kind]("", GOOD)[:2], wrapped.get(kind, {"error": error}))


def _anthropic(ended: str, text: str) -> list[dict[str, Any]]:
    counts = {"input_tokens": 100, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 0}
    message: dict[str, Any] = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": MODELS["anthropic"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": counts | {"output_tokens": 1},
    }
    reason = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}.get(ended)
    blocks: list[dict[str, Any]] = []
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    pieces = [{"type": "thinking_delta", "thinking": THOUGHT}]
    texts = [{"type": "text_delta", "text": text[:7]}, {"type": "text_delta", "text": text[7:]}]
    for index, (block, deltas) in enumerate([(thinking, pieces), ({"type": "text", "text": ""}, texts)]):
        blocks.append({"type": "content_block_start", "index": index, "content_block": block})
        blocks += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        blocks.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        *blocks,
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 50}},
        {"type": "message_stop"},
    ]


def _google(ended: str, text: str) -> list[dict[str, Any]]:
    reason = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}.get(ended)
    counts = {
        "promptTokenCount": 1_000,
        "cachedContentTokenCount": 900,
        "candidatesTokenCount": 20,
        "thoughtsTokenCount": 30,
        "totalTokenCount": 1_050,
    }

    def chunk(part: dict[str, Any], **more: Any) -> dict[str, Any]:
        candidate = {"content": {"parts": [part], "role": "model"}, "index": 0} | more
        return {"candidates": [candidate], "modelVersion": MODELS["google"], "responseId": "r"}

    return [
        chunk({"text": THOUGHT, "thought": True}),
        chunk({"text": text[:7]}),
        chunk({"text": text[7:]}) | {"usageMetadata": counts},
        chunk({"text": ""}, finishReason=reason) | {"usageMetadata": counts},
    ]


def _chat(ended: str, text: str) -> list[dict[str, Any]]:
    """As Mistral and OpenRouter have chat completions."""
    usage = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
    cached = {"prompt_tokens_details": {"cached_tokens": 900}}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return head | {"choices": [choice]}

    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}
    return [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": [thinking]}),
        chunk({"content": text[:7]}),
        chunk({"content": text[7:]}),
        chunk({"content": ""}, ended or None) | {"usage": usage | cached},
    ]


def _responses(ended: str, text: str) -> list[dict[str, Any]]:
    begun: dict[str, Any] = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": MODELS["responses"],
        "output": [],
        "status": "in_progress",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
    }
    counts = {
        "input_tokens": 1_000,
        "input_tokens_details": {"cached_tokens": 900},
        "output_tokens": 50,
        "output_tokens_details": {"reasoning_tokens": 30},
        "total_tokens": 1_050,
    }
    why = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(ended)
    status = "completed" if why is None else "incomplete"
    over = {"status": status, "incomplete_details": {"reason": why} if why else None, "usage": counts}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", "part": part} | place,
        {"type": "response.output_text.delta", "delta": text[:7], "logprobs": []} | place,
        {"type": "response.output_text.delta", "delta": text[7:], "logprobs": []} | place,
        {"type": f"response.{status}", "response": begun | over},
    ]
    return [chunk | {"sequence_number": number} for number, chunk in enumerate(told)]


CHUNKS = {
    "anthropic": _anthropic,
    "google": _google,
    "mistral": _chat,
    "openrouter": _chat,
    "responses": _responses,
}
LAST = {"anthropic": 2, "google": 1, "mistral": 1, "openrouter": 1, "responses": 1}
"""How many chunks tell the end."""
