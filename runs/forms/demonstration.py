"""Prefilled launches, one for each machine, for a newcomer without a model.

A machine's own is `demonstration.json` in its folder: the goal, the settings, and a script's replies.
"""

from __future__ import annotations

import json
from typing import Any

from runs.forms.launching import SCRIPT, pretty
from runs.forms.machines import usual_fields, write
from runs.machines import CATALOGUE, FOLDERS

USAGE = {"input_tokens": 420, "output_tokens": 60, "cost_usd": 0.0021}
PACE = {"model_s": 1.5, "tool_s": 0.4}


def _told() -> dict[str, dict[str, Any]]:
    """Return the machines' demonstrations, the usual one first."""
    order = sorted(CATALOGUE, key=lambda name: not CATALOGUE[name].presentation.usual)
    files = {name: FOLDERS[name] / "demonstration.json" for name in order if name in FOLDERS}
    return {name: json.loads(file.read_text("utf-8")) for name, file in files.items() if file.is_file()}


def _demonstration(machine: str, told: dict[str, Any]) -> dict[str, Any]:
    """Return a prefilled form: a script plays the model, and asks before it writes."""
    usual = {"asks": "writes", "on_limit": "ask", "on_clarify": "ask"}
    settings = dict(told["settings"])
    own = {"machine": machine, "goal": told["goal"], "model": SCRIPT, "tools": settings.pop("tools", [])}
    script = {"replies": told["replies"], "usage": USAGE, "pace": PACE}
    fields = usual_fields() | usual | own | {"cost_usd": 0.5, "script": pretty(script)}
    return fields | write(machine, settings)


_TOLD = _told()

DEMONSTRATIONS: dict[str, dict[str, Any]] = {name: _demonstration(name, told) for name, told in _TOLD.items()}
"""By the machine's name; a newcomer sees the first one."""

SHOWS: dict[str, str] = {name: told["shows"] for name, told in _TOLD.items()}
"""The point of each demonstration."""
