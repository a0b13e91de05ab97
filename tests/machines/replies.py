"""Decisions as a model writes them, for each machine."""

from __future__ import annotations

import json
from typing import Any

ALLOW = [{"when": {"tool": "*"}, "do": "allow"}]

NAMES = ("contract", "checklist", "planned", "ruled")

SETTINGS: dict[str, dict[str, Any]] = {
    "contract": {"contract": [{"id": "n", "type": "inline", "description": "the sum"}]},
    "checklist": {},
    "planned": {"plan": []},
    "ruled": {},
}


def call(name: str, tool: str, **args: Any) -> str:
    """A decision of the machine that calls the tool."""
    match name:
        case "contract" | "checklist":
            outputs = {"out_artifacts": [{"name": "s", "kind": "inline"}]} if name == "contract" else {}
            asked = {"tool_id": tool, "params": args} | outputs
            return json.dumps({"action": "call_tool", "strategy": "exploit", "notes": "", "tool_call": asked})
        case "planned":
            return json.dumps({"thought": "so", "tool": tool, "args": args})
    return json.dumps({"thought": "so", "action": {"tool": tool, "args": args}})


def end(name: str) -> str:
    """A decision that ends the run."""
    match name:
        case "contract" | "checklist":
            return json.dumps({"action": "complete", "completion_summary": "93"})
        case "planned":
            return call(name, "final_answer", answer="93")
    return json.dumps({"thought": "FINAL ANSWER: 93", "action": None})
