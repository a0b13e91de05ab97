"""What a model server says that a call used: tokens, those that it had read before, and the cost."""

from __future__ import annotations

from typing import Any

CHARACTERS_PER_TOKEN = 4
MAX_TOKENS = 1_000_000_000
MAX_COST = 1_000_000
"""No call uses so many tokens, or costs so many USD."""


def count(given: Any, characters: int) -> int:
    """A number of tokens; an estimate by the characters where the server gives none."""
    if _is_number(given, int) and 0 <= given < MAX_TOKENS:
        return int(given)
    return max(1, characters // CHARACTERS_PER_TOKEN)


def number(fields: Any, *path: str) -> int:
    """The number of tokens at a place of a stranger's JSON; 0 where there is none."""
    for name in path:
        fields = fields.get(name) if isinstance(fields, dict) else None
    return int(fields) if _is_number(fields, int) and 0 < fields < MAX_TOKENS else 0


def cached(usage: dict[str, Any]) -> int:
    """How many of the prompt's tokens the server had read before."""
    return (
        number(usage, "prompt_tokens_details", "cached_tokens")
        or number(usage, "prompt_cache_hit_tokens")
        or number(usage, "cache_read_input_tokens")
    )


def cost_in(usage: dict[str, Any]) -> float | None:
    """What the provider says that the call cost, in USD; under the caller's own key also what that is charged with."""
    parts: list[Any] = [usage.get("cost")]
    details = usage.get("cost_details")
    if usage.get("is_byok") is True and isinstance(details, dict):
        parts.append(details.get("upstream_inference_cost") or 0)
    if not all(_is_number(part, int, float) and 0 <= part < MAX_COST for part in parts):
        return None
    return float(sum(parts))


def _is_number(given: Any, *kinds: type) -> bool:
    return isinstance(given, kinds) and not isinstance(given, bool)
