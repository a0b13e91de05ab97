"""Numbers with their limits, as bars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runs.models import Budget
from runs.reading import words


@dataclass(frozen=True)
class Gauge:
    """One number with its limit. `filled` is per cent of the limit; None where there is none."""

    label: str
    used: str
    limit: str = ""
    filled: float | None = None
    tone: str = "quiet"


def filled(used: float, limit: float) -> tuple[float, str]:
    """How full it is, in per cent, and the tone of that; a limit of 0 is full, and nothing to worry about."""
    share = min(1.0, used / limit) if limit else 1.0
    if not limit and not used:
        return 0.0, "busy"
    return round(share * 100, 1), "bad" if share >= 1 else "warn" if share >= 0.8 else "busy"


def advised(used: float, limit: float) -> tuple[float, str]:
    """The same for a budget that only advises: used up is no fault, more than that is worth a look."""
    share, _ = filled(used, limit)
    return share, "warn" if used > limit else "busy"


def lines_of(budgets: Iterable[Budget], scope: str) -> dict[str, Budget]:
    """The budget's lines of one scope by name."""
    return {line.name: line for line in budgets if line.scope == scope}


def gauge_of(line: Budget, *, label: str = "", advisory: bool = False) -> Gauge:
    """A budget line as a gauge."""
    share = advised(line.used, line.limit) if advisory else filled(line.used, line.limit)
    return Gauge(
        label or words.spoken(line.name).capitalize(),
        words.number(line.used),
        words.number(line.limit),
        *share,
    )
