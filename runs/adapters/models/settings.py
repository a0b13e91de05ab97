"""The settings of a model: read by the web server too, without the providers' libraries."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, SecretStr, field_validator, model_validator

from runs.engine.values import Value

Kind = Literal["openai", "responses", "anthropic", "google", "mistral", "openrouter"]
"""A server's dialect. `openai` is chat completions, as all OpenAI-compatible servers have it."""

Effort = Literal["", "none", "low", "medium", "high"]
"""How much a model thinks before it replies; empty: as it does by itself."""

EFFORTS: tuple[Effort, ...] = ("none", "low", "medium", "high")

OutputMode = Literal["native", "tool", "json_object", "prompted", "none"]

EXTRAS = {"anthropic": "anthropic", "google": "google.genai", "mistral": "mistralai"}
"""A kind's import that requirements.lock lacks; it is in requirements-KIND.lock."""

SEEDED = ("openai", "openrouter", "google", "mistral")
"""The kinds that take a seed."""

OPTIONAL = (
    "max_tokens",
    "temperature",
    "stream_options",
    "stream",
    "system",
    "json_schema",
    "response_format",
    "reasoning_effort",
)
"""Options that a server may refuse, and a call can do without: `json_schema` falls back to JSON mode, `response_format`
to the schema in words, `system` to a user message, `stream` to a reply at once."""


def usable_address(url: str) -> str:
    """Return a server's address without its last slash; raises `ValueError` for one that can't be called."""
    url = url.strip().rstrip("/").removesuffix("/chat/completions")
    parts = urlsplit(url)
    plain = url.isascii() and url.isprintable() and not any(sign in url for sign in " ?#@\\")
    if not plain or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("give an address such as https://api.example.com/v1, without user, query, blanks")
    if parts.port == 0:
        raise ValueError("the port must be between 1 and 65535")
    return url


class ModelSettings(Value):
    """The settings of a model; prices are USD per million tokens (None: by the public list, else 0)."""

    # The error about a refused key must not show it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    kind: Kind = "openai"
    base_url: str
    """Up to and with the version, such as http://127.0.0.1:8080/v1."""
    model_id: str = Field(min_length=1, max_length=200)
    api_key: SecretStr = SecretStr("")
    output_mode: OutputMode = "native"
    """How a reply schema is requested: by the server's own feature, as a tool's arguments, in the prompt with the
    server's JSON mode, in the prompt alone, or not at all."""
    input_price: float | None = Field(default=None, ge=0)
    output_price: float | None = Field(default=None, ge=0)
    cached_price: float | None = Field(default=None, ge=0)
    cache_write_price: float | None = Field(default=None, ge=0)
    reasoning_price: float | None = Field(default=None, ge=0)
    context_tokens: int | None = Field(default=None, ge=256)
    max_output_tokens: int = Field(default=2_048, ge=1)
    timeout_s: float = Field(default=120.0, gt=0, le=3_600)
    silence_s: float = Field(default=120.0, gt=0, le=3_600)
    """The longest wait in seconds for the next piece; a small machine reads a long prompt in silence."""
    seed: int | None = Field(default=None, ge=0)
    """Sent with each call if set; a server that refuses it is not asked without it."""
    patience_s: float = Field(default=600.0, ge=0, le=86_400)
    """Seconds that a call waits in all for an unavailable server, before a person is asked."""
    fallback: str = ""
    """The model that takes over after that; empty if a person is asked."""
    effort: Effort = ""
    """The reasoning effort; its tokens count among those written."""
    guided: bool = False
    """The model is small: its prompts have worked examples, and its reply schema is narrow."""
    left_out: frozenset[str] = frozenset()
    """Options of `OPTIONAL` that this server has refused before."""

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, url: str) -> str:
        return usable_address(url)

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value().strip()
        if not text.isascii() or not text.isprintable() or " " in text:
            raise ValueError(
                "the key holds characters that no key has (blanks, line ends, letters beyond ASCII)"
            )
        return SecretStr(text)

    @model_validator(mode="after")
    def _takes_a_seed(self) -> Self:
        if self.seed is not None and self.kind not in SEEDED:
            raise ValueError("this kind of model takes no seed; clear the seed")
        return self

    @property
    def chats(self) -> bool:
        """Return True if the server speaks chat completions."""
        return self.kind in ("openai", "openrouter")


def missing_package(kind: str) -> str:
    """Return the missing package of a kind of model; empty if nothing is missing."""
    module = EXTRAS.get(kind, "")
    try:
        return "" if not module or find_spec(module) else module
    except ModuleNotFoundError:
        return module


def how_to_add(kind: str) -> str:
    """Return how to install a missing library of a kind."""
    return f"Restart the site, which installs it, or run: python3 manage.py add_provider {kind}"
