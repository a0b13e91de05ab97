"""A model server's report of a call's usage: tokens, cached tokens, and the cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runs.engine.context import CHARACTERS_PER_TOKEN

LONG = 1_000
"""Tokens of a prompt from which on it is compared with its server's count."""

MAX_TOKENS = 1_000_000_000
MAX_COST = 1_000_000
"""No call uses so many tokens, or costs so many USD."""


def estimated(characters: int) -> int:
    """Return an estimate of tokens, for a server that does not count."""
    return max(1, characters // CHARACTERS_PER_TOKEN)


def cut_from(characters: int, read: int | None) -> int:
    """Return about how many tokens were sent, if a server read far fewer; else 0.

    No text has eight characters a token. A server that cuts prompts mostly reads a power of two: its context length.
    """
    sent = characters // CHARACTERS_PER_TOKEN
    if not read or sent < LONG:
        return 0
    exact = read >= LONG and read & (read - 1) == 0
    return sent if characters > 8 * read or (exact and 2 * sent > 3 * read) else 0


def number(fields: Any, *path: str) -> int:
    """Return the number of tokens at a place of untrusted JSON; 0 if there is none."""
    for name in path:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return int(fields) if _is_number(fields, int) and 0 < fields < MAX_TOKENS else 0


@dataclass(frozen=True)
class Used:
    """A call's usage, by the server's own count; None if it does not count."""

    read: int | None = None
    wrote: int | None = None
    cached: int = 0
    """Tokens read from its cache."""
    cost: float | None = None
    stored: int = 0
    """Tokens read and written to its cache."""
    thought: int = 0
    """Reasoning tokens among those written."""


def used_by_chat(usage: dict[str, Any]) -> Used:
    """Return the counts of a chat completion, wherever its server puts them."""
    read, wrote = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    thought = number(usage, "completion_tokens_details", "reasoning_tokens")
    if thought and (read or 0) + (wrote or 0) + thought == usage.get("total_tokens"):
        wrote = (wrote or 0) + thought  # this server counts them apart
    cached = (
        number(usage, "prompt_tokens_details", "cached_tokens")
        or number(usage, "prompt_cache_hit_tokens")
        or number(usage, "cache_read_input_tokens")
    )
    cached = min(cached, read or 0)
    stored = (
        number(usage, "prompt_tokens_details", "cache_write_tokens")
        or number(usage, "prompt_tokens_details", "cache_creation_tokens")
        or number(usage, "cache_creation_input_tokens")
    )
    stored = min(stored, (read or 0) - cached)
    return Used(read, wrote, cached, cost_in(usage), stored, min(thought, wrote or 0))


def _count(given: Any) -> int | None:
    return int(given) if _is_number(given, int) and 0 <= given < MAX_TOKENS else None


def cost_in(usage: dict[str, Any]) -> float | None:
    """Return the cost by the provider's own report, in USD; for the caller's own key also that key's charge."""
    parts: list[Any] = [usage.get("cost")]
    details = usage.get("cost_details")
    if usage.get("is_byok") is True and isinstance(details, dict):
        parts.append(details.get("upstream_inference_cost") or 0)
    if not all(_is_number(part, int, float) and 0 <= part < MAX_COST for part in parts):
        return None
    return float(sum(parts))


def _is_number(given: Any, *kinds: type) -> bool:
    return isinstance(given, kinds) and not isinstance(given, bool)
