"""The numbers of two runs, written beside each other."""

from __future__ import annotations

from dataclasses import dataclass

from runs.reading import words
from runs.reading.comparing import Comparison, Total, visits_beside

TOTALS = {
    "cost_usd": "Cost",
    "input_tokens": "Input tokens",
    "output_tokens": "Output tokens",
    "model_calls": "Model calls",
    "tool_calls": "Tool calls",
    "active_seconds": "Time at work",
    "elapsed": "From launch to end",
    "rows": "Steps",
    "dead_rows": "Steps rolled back",
}


@dataclass(frozen=True)
class TotalView:
    """One number of both; the shares are per cent of the larger."""

    label: str
    left: str
    right: str
    difference: str
    left_share: float
    right_share: float


def total_views(totals: tuple[Total, ...]) -> list[TotalView]:
    """Return the numbers, formatted."""
    return [_total(total) for total in totals]


def _total(total: Total) -> TotalView:
    most = max(total.left, total.right) or 1
    return TotalView(
        TOTALS[total.name],
        amount(total.name, total.left),
        amount(total.name, total.right),
        signed(total),
        round(total.left / most * 100, 1),
        round(total.right / most * 100, 1),
    )


def amount(name: str, value: float) -> str:
    """Return a number in the format of its kind."""
    match name:
        case "cost_usd":
            return words.money(value)
        case "active_seconds" | "elapsed":
            return words.seconds(value)
    return f"{value:,.0f}"


def signed(total: Total) -> str:
    """Return the difference with its sign; a dash if there is none."""
    text = amount(total.name, abs(total.difference))
    if abs(total.difference) < 1e-9 or text == amount(total.name, 0):
        return "=" if amount(total.name, total.left) == amount(total.name, total.right) else "≈"
    return f"{'+' if total.difference > 0 else '−'}{text}"


def path_views(found: Comparison) -> list[TotalView]:
    """Return how often each node was left."""
    if not found.same_machine:
        return []
    visits = visits_beside(found.left, found.right)
    most = max((max(one, other) for _, one, other in visits), default=1)
    return [
        TotalView(
            words.spoken(node),
            f"{one:,}",
            f"{other:,}",
            signed(Total("visits", one, other)),
            round(one / most * 100, 1),
            round(other / most * 100, 1),
        )
        for node, one, other in visits
    ]
