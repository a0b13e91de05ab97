"""Decisions of the machine `contract`."""

from __future__ import annotations

from typing import Any

INLINE = {"id": "summary", "type": "inline", "description": "a summary", "format": "text"}


def call(strategy: Any = "explore", *names: str, kind: str = "inline", **more: Any) -> dict[str, Any]:
    """A decision that calls `search`."""
    outputs = [{"name": name, "kind": kind} for name in names or ("i1",)]
    tool_call = {"tool_id": "search", "params": {"q": "tides"}, "out_artifacts": outputs, "reason": "needed"}
    return {"action": "call_tool", "strategy": strategy, "tool_call": tool_call, **more}


def fill(slot: str = "summary", artifact: str = "i1", **more: Any) -> dict[str, Any]:
    return {"slot": slot, "artifact": artifact, **more}


def done(*maps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"action": "complete", "completion_summary": "It is done.", "map_slots": list(maps), **more}
