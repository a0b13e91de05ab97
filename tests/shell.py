"""Calls of a tool `shell`, as each machine makes them."""

from __future__ import annotations

from typing import Any

ARGS = {"line": "ls"}

OUT = [{"name": "files", "kind": "inline"}]

SHELL_CALL: dict[str, Any] = {
    "contract": {
        "action": "call_tool",
        "strategy": "explore",
        "tool_call": {"tool_id": "shell", "params": ARGS, "out_artifacts": OUT},
    },
    "checklist": {
        "action": "call_tool",
        "strategy": "explore",
        "tool_call": {"tool_id": "shell", "params": ARGS},
    },
    "planned": {"thought": "look", "tool": "shell", "args": ARGS},
    "ruled": {"thought": "I look", "action": {"tool": "shell", "args": ARGS}},
}

LAST: dict[str, Any] = {
    "contract": {"action": "complete", "completion_summary": "Done."},
    "checklist": {"action": "complete", "completion_summary": "Done."},
    "planned": {"tool": "final_answer", "args": {"answer": "Done."}},
    "ruled": {"thought": "FINAL ANSWER: Done."},
}

ROWS = [{"tool": "shell", "args": ARGS}, {"tool": "final_answer", "args": {"answer": "Done."}}]
