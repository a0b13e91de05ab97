"""The cost of a model's calls, in USD: by the prices of its profile, else by the public list, else nothing.

Charges, estimates and reservations all come from here, so they agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from runs.engine.snapshot import Price

MILLION = 1_000_000
ABOVE_ALL_TIERS = 1_000 * MILLION
"""Tokens of a prompt that the list prices by a model's last, and dearest, tier."""


class Counts(NamedTuple):
    """Tokens of a call: those read, with the cached and newly cached among them; those written, with the thoughts."""

    read: int
    wrote: int = 0
    cached: int = 0
    stored: int = 0
    thought: int = 0


class _Parts(NamedTuple):
    """A call's cost: for reading, for writing, and per call."""

    read: float = 0.0
    wrote: float = 0.0
    itself: float = 0.0


@dataclass(frozen=True, slots=True)
class Tariff:
    """The prices of a model: USD per million tokens.

    Without prices of input and output those of the public list apply. The others follow from these, if they are None.
    """

    model_id: str
    base_url: str
    input_price: float | None = None
    output_price: float | None = None
    cached_price: float | None = None
    cache_write_price: float | None = None
    reasoning_price: float | None = None

    @property
    def is_known(self) -> bool:
        """Return True if there is a price at all; a free model has one of 0."""
        return self._has_own or _listed(self.model_id, self.base_url, Counts(1, 1)) is not None

    @property
    def _has_own(self) -> bool:
        return self.input_price is not None or self.output_price is not None

    def per_million(self) -> dict[str, float]:
        """Return the price of each kind of token, in USD per million, of a short prompt."""
        thousand = 1_000
        return {
            "input": self.charge(thousand, 0) * thousand,
            "cached": self.charge(thousand, 0, cached=thousand) * thousand,
            "written to cache": self.charge(thousand, 0, stored=thousand) * thousand,
            "output": self.charge(0, thousand) * thousand,
            "reasoning": self.charge(0, thousand, thought=thousand) * thousand,
        }

    def charge(self, read: int, wrote: int, cached: int = 0, stored: int = 0, thought: int = 0) -> float:
        """Return the cost of a call with so many tokens; 0 for a model on no list."""
        cached = min(cached, read)
        counts = Counts(read, wrote, cached, min(stored, read - cached), min(thought, wrote))
        return round(sum(self._parts(counts)), 10)

    def worst(self, reply_tokens: int) -> Price:
        """Return the largest cost of a call with so long a reply: never less than the charge, in any tier."""
        tokens = ABOVE_ALL_TIERS
        plain = self._parts(Counts(tokens, tokens))
        stored = self._parts(Counts(tokens, tokens, stored=tokens))
        cached = self._parts(Counts(tokens, tokens, cached=tokens))
        thought = self._parts(Counts(tokens, tokens, thought=tokens))
        read = max(plain.read, stored.read, cached.read)
        wrote = max(plain.wrote, thought.wrote)
        return Price(reply_tokens, read / tokens, wrote / tokens, plain.itself)

    def _parts(self, counts: Counts) -> _Parts:
        """Return the cost, by specific prices if there are any, the rest by those of input and output."""
        read, wrote, cached, stored, thought = counts
        apart_read = apart_wrote = 0.0
        if self.cached_price is not None:
            apart_read += cached * self.cached_price / MILLION
            read, cached = read - cached, 0
        if self.cache_write_price is not None:
            apart_read += stored * self.cache_write_price / MILLION
            read, stored = read - stored, 0
        if self.reasoning_price is not None:
            apart_wrote = thought * self.reasoning_price / MILLION
            wrote, thought = wrote - thought, 0
        rest = self._rest(Counts(read, wrote, cached, stored, thought))
        return _Parts(rest.read + apart_read, rest.wrote + apart_wrote, rest.itself)

    def _rest(self, counts: Counts) -> _Parts:
        if not self._has_own:
            return _listed(self.model_id, self.base_url, counts) or _Parts()
        full = float(counts.read)
        if counts.cached or counts.stored:
            cached, stored = self._shares()
            full += counts.cached * (cached - 1) + counts.stored * (stored - 1)
        read, wrote = full * (self.input_price or 0.0), counts.wrote * (self.output_price or 0.0)
        return _Parts(read / MILLION, wrote / MILLION)

    def _shares(self) -> tuple[float, float]:
        """Return the cost of a cached token and of one written to the cache, as shares of an input token.

        As the list has it for this model wherever it runs, else 1.
        """
        full = _by_name(self.model_id, Counts(1_000))
        cached = _by_name(self.model_id, Counts(1_000, cached=1_000))
        stored = _by_name(self.model_id, Counts(1_000, stored=1_000))
        if full is None or cached is None or stored is None or not full.read:
            return 1.0, 1.0
        return cached.read / full.read, stored.read / full.read


def _listed(model_id: str, base_url: str, counts: Counts) -> _Parts | None:
    """Return the public list's prices: of the provider at `base_url`, else, unless that is local, by the
    model's name."""
    found = _asked(model_id, counts, base_url)
    return found if found is not None or _is_local(base_url) else _by_name(model_id, counts)


def _by_name(model_id: str, counts: Counts) -> _Parts | None:
    """Return the prices of the model's maker."""
    return _asked(model_id, counts)


def _asked(model_id: str, counts: Counts, base_url: str | None = None) -> _Parts | None:
    try:
        import genai_prices

        counted = genai_prices.Usage(
            input_tokens=counts.read,
            output_tokens=counts.wrote,
            cache_read_tokens=counts.cached,
            cache_write_tokens=counts.stored,
        )
        found = genai_prices.calc_price(counted, model_id, provider_api_url=base_url)
    except (ImportError, LookupError, ValueError):
        return None
    read, wrote = found.input_price, found.output_price
    return _Parts(float(read), float(wrote), float(found.total_price - read - wrote))


def context_of(model_id: str, base_url: str) -> int | None:
    """Return the context of a model in tokens, by the public list; None for one of this network, or on no list."""
    if _is_local(base_url):
        return None
    try:
        from genai_prices import data_snapshot

        known = data_snapshot.get_snapshot()
    except ImportError:
        return None
    for url in (base_url, None):
        try:
            return known.find_provider_model(model_id, None, None, url)[1].context_window
        except LookupError:
            continue
    return None


def listed_models(base_url: str) -> list[str]:
    """Return the models of the provider at an address, by the public list."""
    try:
        from genai_prices import data_snapshot

        return sorted(one.id for one in data_snapshot.get_snapshot().find_provider("", None, base_url).models)
    except (ImportError, LookupError):
        return []


def _is_local(url: str) -> bool:
    """Return True if the address is of this machine or network: there even a known model is free."""
    try:
        host = (urlsplit(url).hostname or "").lower()
    except ValueError:  # it is no address
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:  # it is a name
        return "." not in host or host.endswith((".local", ".internal", ".localhost"))
