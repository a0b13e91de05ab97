"""What a model's calls cost, in USD: by the prices of its profile, else by the public list, else nothing.

Whoever charges a call, weighs the next one or sets its worst case aside asks here, so that all of them go by the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from runs.engine.snapshot import Price

MILLION = 1_000_000
ABOVE_ALL_TIERS = 1_000 * MILLION
"""Tokens of a prompt that the list prices by the last, and dearest, tier of a model."""


class _Parts(NamedTuple):
    """A call's cost: what it read, what it wrote, and what it costs by itself."""

    read: float = 0.0
    wrote: float = 0.0
    itself: float = 0.0


@dataclass(frozen=True, slots=True)
class Tariff:
    """Whose prices hold for a model: USD per million tokens; where both are None those of the public list."""

    model_id: str
    base_url: str
    input_price: float | None = None
    output_price: float | None = None

    def charge(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """What a call that used so many tokens costs, some of its input cached; 0 for a model that is on no list."""
        return round(sum(self._parts(input_tokens, output_tokens, cached_tokens)), 10)

    def worst(self, reply_tokens: int) -> Price:
        """What a call with so long a reply may cost at most: never less than the charge, in whichever tier it ends."""
        tokens = ABOVE_ALL_TIERS
        read, wrote, itself = self._parts(tokens, tokens)
        return Price(reply_tokens, read / tokens, wrote / tokens, itself)

    def _parts(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> _Parts:
        if self.input_price is None and self.output_price is None:
            return _listed(self.model_id, self.base_url, input_tokens, output_tokens, cached_tokens)
        full = input_tokens - cached_tokens * (1 - self._cached_share()) if cached_tokens else input_tokens
        read, wrote = full * (self.input_price or 0.0), output_tokens * (self.output_price or 0.0)
        return _Parts(read / MILLION, wrote / MILLION)

    def _cached_share(self) -> float:
        """What a cached token costs of an input token: as the list has it for this model wherever it runs, else 1."""
        full, cached = _listed(self.model_id, None, 1_000), _listed(self.model_id, None, 1_000, 0, 1_000)
        return min(cached.read / full.read, 1.0) if full.read else 1.0


def _listed(
    model_id: str, base_url: str | None, input_tokens: int, output_tokens: int = 0, cached_tokens: int = 0
) -> _Parts:
    """By the public list, of the provider at `base_url` or, where that is None, of the one that made the model."""
    try:
        import genai_prices

        counted = genai_prices.Usage(
            input_tokens=input_tokens, output_tokens=output_tokens, cache_read_tokens=cached_tokens
        )
        found = genai_prices.calc_price(counted, model_id, provider_api_url=base_url)
    except (ImportError, LookupError, ValueError):
        return _Parts()
    read, wrote = found.input_price, found.output_price
    return _Parts(float(read), float(wrote), float(found.total_price - read - wrote))
