"""A provider's library over our transport. It never sees the key, and never retries: the engine does, on record."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

import httpx2
from pydantic_ai.models import Model

from runs.adapters.models.settings import Kind, ModelSettings

NO_KEY = "unused"
"""The libraries' key, so none looks for one in the environment; the transport has the real one."""


def load(kind: Kind) -> None:
    """Load the library for models of the kind."""
    name = "openai" if kind in ("openai", "openrouter", "responses") else kind
    import_module(f"pydantic_ai.models.{name}")


def model_of(settings: ModelSettings, client: httpx2.AsyncClient, left_out: Collection[str]) -> Model[Any]:
    """Return the library's model for one call. Only the library of the profile's provider is loaded, and only here."""
    match settings.kind:
        case "openai" | "openrouter":
            return _chat(settings, client, left_out)
        case "responses":
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            own = OpenAIProvider(openai_client=_openai(settings, client))
            return OpenAIResponsesModel(settings.model_id, provider=own)
        case "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            base = _without_version(settings.base_url, "/v1")
            claude = AsyncAnthropic(api_key=NO_KEY, base_url=base, max_retries=0, http_client=client)
            return AnthropicModel(settings.model_id, provider=AnthropicProvider(anthropic_client=claude))
        case "google":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            base = _without_version(settings.base_url, "/v1beta", "/v1")
            google = GoogleProvider(api_key=NO_KEY, base_url=base, http_client=client)
            return GoogleModel(settings.model_id, provider=google)
        case "mistral":
            from pydantic_ai.models.mistral import MistralModel
            from pydantic_ai.providers.mistral import MistralProvider

            base = _without_version(settings.base_url, "/v1")
            mistral = MistralProvider(api_key=NO_KEY, base_url=base, http_client=client)
            return MistralModel(settings.model_id, provider=mistral)


def _chat(settings: ModelSettings, client: httpx2.AsyncClient, left_out: Collection[str]) -> Model[Any]:
    """Return chat completions as any server has them: a name says nothing about a server's abilities."""
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    plain = OpenAIModelProfile(
        supports_json_schema_output=True,
        supports_json_object_output=True,
        openai_chat_supports_max_completion_tokens="max_tokens" in left_out,
    )
    plain["thinking_tags"] = None  # type: ignore[typeddict-item]  # runs/engine/reasoning.py knows more of them
    own = OpenAIProvider(openai_client=_openai(settings, client))
    return OpenAIChatModel(settings.model_id, provider=own, profile=lambda found: plain)


def _openai(settings: ModelSettings, client: httpx2.AsyncClient) -> Any:
    from openai import AsyncOpenAI

    return AsyncOpenAI(api_key=NO_KEY, base_url=settings.base_url, max_retries=0, http_client=client)


def _without_version(url: str, *versions: str) -> str:
    """Return the address without its version: these libraries add it themselves."""
    return next((url.removesuffix(version) for version in versions if url.endswith(version)), url)
