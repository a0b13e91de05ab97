"""Questions in the words of version 0.1.0, which kept some of their figures in these words alone."""

from __future__ import annotations

from typing import Any

from runs.engine.effects import AtLimit


def worded_then(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a stored question as version 0.1.0 wrote it: without fields for its figures."""
    then = {name: value for name, value in asked.items() if name not in ("figures", "cost_usd")}
    if asked.get("figures"):
        then["why"] = _why_at_limit(AtLimit.model_validate(asked["figures"]))
    elif asked.get("cost_usd"):
        then["title"] = f"The next model call may cost ${asked['cost_usd']:.4f}. Go on?"
    return then


def _why_at_limit(told: AtLimit) -> str:
    why = f"The run's limit {told.name} is {told.limit:g}."
    if told.root:
        why = f"The limit {told.name} of run {told.root} is {told.limit:g}, for it and all that came from it."
    if told.aside > 0:
        why = f"{why} Of what counts, {told.aside:g} is set aside for calls under way in other runs."
    if told.left is not None:
        why = f"{why} The next call may use more than the {told.left:g} that are left."
    return why
