"""A control state as values that a person may set, and what of it follows from the settings."""

from __future__ import annotations

from typing import Any

from runs.engine.machine import Machine

WRITTEN_AT_THE_END = ("exit_reason", "answer", "answer_source")
"""Values that only the end of a run writes."""


def control_values(machine: Machine) -> tuple[str, ...]:
    """The names of the values that may be set, in the order of the machine's declaration; the common ones last."""
    names = [name for name in machine.state.model_fields if name not in ("terms", *WRITTEN_AT_THE_END)]
    return tuple(sorted(names, key=lambda name: name == "interrupts_asked"))


def carried(before: dict[str, Any], after: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The values in `now` that still are as the old settings opened them, where the new settings open them otherwise.

    So a larger budget counts at once, and what a run has used, or made of it since, stays.
    """
    found = {}
    for name, opened in after.items():
        value = _merged(before.get(name), opened, now.get(name))
        if value != now.get(name):
            found[name] = value
    return found


def _merged(before: Any, after: Any, now: Any) -> Any:
    if before == after:
        return now
    if now == before:
        return after
    if isinstance(before, dict) and isinstance(after, dict) and isinstance(now, dict):
        names = [name for name in {**now, **after} if name in now or name not in before]
        merged = {
            name: _merged(before.get(name), after.get(name, before.get(name)), now.get(name))
            for name in names
        }
        return {name: value for name, value in merged.items() if name in now or name in after}
    return now
