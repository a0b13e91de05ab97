"""The content of a call: messages, options and the form of the reply, as the providers' library takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, cast

from pydantic_ai import messages as ai
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings as Options
from pydantic_ai.tools import ToolDefinition

from runs.adapters.models.settings import Kind, ModelSettings, OutputMode
from runs.engine.context import CHARACTERS_PER_TOKEN
from runs.engine.ports import Message, ModelRequest


def mode_of(settings: ModelSettings, left_out: Collection[str], profile: Mapping[str, Any]) -> OutputMode:
    """Return how a schema is requested, given the library's knowledge and the server's refusals."""
    mode = settings.output_mode
    if mode == "native" and ("json_schema" in left_out or not profile.get("supports_json_schema_output")):
        mode = "json_object"
    if mode == "json_object" and (
        "response_format" in left_out or not profile.get("supports_json_object_output")
    ):
        mode = "prompted"
    return mode


def options_in(
    request: ModelRequest,
    messages: list[ai.ModelMessage],
    settings: ModelSettings,
    left_out: Collection[str],
    mode: OutputMode,
) -> frozenset[str]:
    """Return the options of a call that it can do without, if the server refuses them."""
    had = {"temperature"} | ({"seed"} if settings.seed is not None else set())
    had |= {"reasoning_effort"} if settings.effort else set()
    if settings.chats:
        had |= {"max_tokens", "stream_options", "stream"}
    if request.reply_schema is not None:
        had |= {"native": {"json_schema"}, "json_object": {"response_format"}}.get(mode, set())
    if any(isinstance(part, ai.SystemPromptPart) for message in messages for part in message.parts):
        had.add("system")
    return frozenset(had - set(left_out))


SEAM = "\n\n"
"""Between parts of one author."""


def messages_of(
    request: ModelRequest, mode: OutputMode, left_out: Collection[str], kind: Kind
) -> list[ai.ModelMessage]:
    """Return the messages. Neighbours of one author become one, since many chat templates want them to alternate.

    For a provider that caches only up to a mark, the mark comes before the part that the next prompt does not repeat.
    """
    found = list(request.messages)
    passing = request.passing
    if request.reply_schema is not None and mode in ("json_object", "prompted"):
        # At the end: it changes with the state of a run, and the head of a prompt is what providers cache.
        found.append(Message(author="user", text=_in_words(request.reply_schema)))
        if passing is not None:
            passing += len(found[-1].text) + (len(SEAM) if passing else 0)
    joined: list[Message] = []
    for message in found:
        author = "user" if message.author == "system" and "system" in left_out else message.author
        text = message.text
        if joined and joined[-1].author == author:
            text = f"{joined.pop().text}{SEAM}{text}"
        joined.append(Message(author=author, text=text))
    if kind == "anthropic" and passing is not None and joined[-1].author == "user":
        return [*map(_as_sent, joined[:-1]), _marked(joined[-1].text, passing)]
    return [_as_sent(message) for message in joined]


def _marked(text: str, passing: int) -> ai.ModelMessage:
    """Return a user's message with a mark before its last characters, `passing` in number, and their seam."""
    at = len(text) - passing - len(SEAM) if passing else len(text)
    if at <= 0:
        return ai.ModelRequest(parts=[ai.UserPromptPart(text)])
    ending = [text[at:]] if passing else []
    return ai.ModelRequest(parts=[ai.UserPromptPart([text[:at], ai.CachePoint(), *ending])])


def options_of(
    request: ModelRequest, settings: ModelSettings, left_out: Collection[str], profile: Mapping[str, Any]
) -> Options:
    """Return the options of the call, given the library's knowledge of the model."""
    longest = room_of(request, settings)
    most = min(longest, request.reply_tokens or longest)
    thinking = {} if "reasoning_effort" in left_out else effort_of(settings, profile, most)
    options = Options(max_tokens=most)
    options.update(cast("Options", thinking))
    thinks = thinking and settings.effort != "none"
    if "temperature" not in left_out and not (thinks and settings.kind in ("anthropic", "responses")):
        options["temperature"] = request.temperature
    if settings.seed is not None:
        options["seed"] = settings.seed
    if settings.kind == "anthropic" and request.passing is not None:
        options["anthropic_cache_instructions"] = True  # type: ignore[typeddict-unknown-key]
    if settings.kind == "responses":
        options["openai_store"] = False  # type: ignore[typeddict-unknown-key]
    return options


LEAST_BUDGET = 1_024
"""Tokens that an Anthropic model thinks at least, where it thinks within a budget."""

BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384}


def effort_of(settings: ModelSettings, profile: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Return the option for the reasoning effort in the dialect of the server; `most` is the longest reply.

    A budget is at most half of that, so that room is left for the reply itself.
    """
    effort = settings.effort
    match settings.kind:
        case _ if not effort:
            return {}
        case "openai" | "responses":
            return {"openai_reasoning_effort": effort}
        case "openrouter":
            return {"extra_body": {"reasoning": {"effort": effort}}}
        case "anthropic" if effort != "none" and not profile.get("anthropic_supports_adaptive_thinking"):
            budget = min(BUDGETS[effort], most // 2)
            thinks = budget >= LEAST_BUDGET and profile.get("supports_thinking")
            enabled = {"type": "enabled", "budget_tokens": budget}
            return {"thinking": True, "anthropic_thinking": enabled} if thinks else {}
    return {"thinking": False if effort == "none" else effort}


def room_of(request: ModelRequest, settings: ModelSettings) -> int:
    """Return the tokens that the reply may have: more than usual only if the context has room."""
    usual, context = settings.max_output_tokens, settings.context_tokens
    wanted = usual * request.room
    if wanted <= usual or context is None:
        return wanted
    prompt = sum(len(message.text) for message in request.messages) // CHARACTERS_PER_TOKEN
    return max(usual, min(wanted, context - prompt))


def form_of(request: ModelRequest, settings: ModelSettings, mode: OutputMode) -> ModelRequestParameters:
    """Return the form in which the reply is requested."""
    schema = request.reply_schema
    if schema is None:
        return ModelRequestParameters()
    name = re.sub(r"[^A-Za-z0-9_-]", "_", request.reply_name)[:64] or "reply"
    # Chat completions name it either way; some libraries refuse a plain no, and know what their provider takes.
    strict = _is_strict(schema) or (False if settings.chats else None)
    form = OutputObjectDefinition(json_schema=schema, name=name, strict=strict)
    match mode:
        case "native":
            return ModelRequestParameters(output_mode="native", output_object=form)
        case "tool":
            tool = ToolDefinition(
                name=name, parameters_json_schema=schema, description="Gives the reply.", kind="output"
            )
            return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
        case "json_object":
            return ModelRequestParameters(
                output_mode="prompted", output_object=form, prompted_output_template=False
            )
        case "prompted" | "none":
            return ModelRequestParameters()


def _as_sent(message: Message) -> ai.ModelMessage:
    match message.author:
        case "system":
            return ai.ModelRequest(parts=[ai.SystemPromptPart(message.text)])
        case "user":
            return ai.ModelRequest(parts=[ai.UserPromptPart(message.text)])
        case "assistant":
            return ai.ModelResponse(parts=[ai.TextPart(message.text)])


def _in_words(schema: dict[str, Any]) -> str:
    return (
        "Reply with one JSON object and nothing else, without a fence and words around it, by this schema:\n"
        + json.dumps(schema, ensure_ascii=False)
    )


def _is_strict(schema: Any) -> bool:
    """Return True if every object in `schema` is closed and requires all it has, as OpenAI's strict mode demands."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        names = set(schema.get("properties", {}))
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != names:
            return False
    return all(map(_is_strict, schema.values()))
