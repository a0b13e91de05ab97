"""Read how long a busy server asks to wait."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST_S = 7 * 24 * 3_600
"""Seconds; a longer wait counts as a mistake."""

_RESETS = (
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
)
_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_EPOCH_S = 1_000_000_000
"""A number from here on is a time, in seconds or in milliseconds."""


def asked_wait(headers: Mapping[str, str], fields: Mapping[str, Any], now: datetime) -> float:
    """Return the seconds that a server asks to wait; 0 if it does not say.

    An explicit wait comes before the times at which its limits are reset: of these the next one counts.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if name in headers:
            return _bounded(_seconds(headers[name], now, unit))
    details = fields.get("details")
    for detail in details if isinstance(details, list) else []:
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return _bounded(_seconds(detail["retryDelay"], now, 1.0))
    resets = [_bounded(_seconds(headers[name], now, 1.0)) for name in _RESETS if name in headers]
    return min((wait for wait in resets if wait), default=0.0)


def _seconds(text: str, now: datetime, unit: float) -> float:
    """Return seconds from a number, a duration such as 6m0s, or a time."""
    text = text.strip()[:80]
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        number = float(text)
        if number >= _EPOCH_S:
            return number / (1_000 if number >= 1_000 * _EPOCH_S else 1) - now.timestamp()
        return number * unit
    if re.fullmatch(r"([0-9]+(\.[0-9]+)?(ms|[dhms]))+", text):
        return sum(float(n) * _UNITS[u] for n, u in re.findall(r"([0-9.]+)(ms|[dhms])", text))
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
        except ValueError:
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return 0.0


def _bounded(seconds: float) -> float:
    return round(seconds, 3) if math.isfinite(seconds) and 0 < seconds <= LONGEST_S else 0.0
