"""Numbers with their limits, as bars."""

from __future__ import annotations

from dataclasses import dataclass

from runs.engine.presentation import Meter
from runs.reading import words


@dataclass(frozen=True)
class Gauge:
    """One number with its limit. `filled` is per cent of the limit; None if there is none."""

    label: str
    used: str
    limit: str = ""
    filled: float | None = None
    tone: str = "quiet"


def filled(used: float, limit: float) -> tuple[float, str]:
    """Return how full it is, in per cent, and its tone; a limit of 0 is full, without alarm."""
    share = min(1.0, used / limit) if limit else 1.0
    if not limit and not used:
        return 0.0, "busy"
    return round(share * 100, 1), "bad" if share >= 1 else "warn" if share >= 0.8 else "busy"


def advised(used: float, limit: float) -> tuple[float, str]:
    """Return the same for an advisory budget: used up is no fault, more than that is worth a look."""
    share, _ = filled(used, limit)
    return share, "warn" if used > limit else "busy"


def gauge_of(meter: Meter) -> Gauge:
    """Return a machine's number as a gauge."""
    write = words.money if meter.unit == "usd" else words.number
    share = advised(meter.used, meter.limit) if meter.advisory else filled(meter.used, meter.limit)
    return Gauge(meter.label, write(meter.used), write(meter.limit), *share)
