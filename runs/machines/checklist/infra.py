"""The tools of `checklist` that work on the run's own record."""

from __future__ import annotations

from typing import Any

from runs.engine.tools import Reads, ToolSpec


def _infra(
    name: str, description: str, required: dict[str, Any], optional: dict[str, Any], reads: Reads = ""
) -> ToolSpec:
    parameters = {"type": "object", "properties": required | optional, "required": list(required)}
    return ToolSpec(name=name, description=description, parameters=parameters, effects="none", reads=reads)


INFRA: dict[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        _infra(
            "react.read",
            "Shows earlier blocks (st:NUMBER), summaries (su:NUMBER) or files (fi:NAME) again; those of an earlier "
            "run by the path that react.memory_read gives (run:ID/st:NUMBER).",
            {"paths": {"type": "array", "items": {"type": "string"}}},
            {},
            reads="private",
        ),
        _infra(
            "react.memory_read",
            "Finds earlier blocks of this run and of earlier runs by words, each with its path for react.read.",
            {"query": {"type": "string"}},
            {"top_k": {"type": "integer", "minimum": 1, "maximum": 50}},
            reads="private",
        ),
        _infra(
            "react.memory_hide",
            "Shows a short replacement in place of a block or a summary from now on.",
            {"path": {"type": "string"}, "replacement": {"type": "string"}},
            {},
        ),
    )
}
"""Tools on the run's own record. Such calls have no side effects: they are not charged, limited or counted."""
