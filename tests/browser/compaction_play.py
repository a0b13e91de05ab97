"""A long run for the compaction journey: it counts the money of a tide station, and one sum is wrong in the summary."""

from __future__ import annotations

from typing import Any

GOAL = "Count what the tide station was paid, and write it down"

WRONG, RIGHT = "Paid until now: 40 pounds.", "Paid until now: 45 pounds."


def call(tool: str, **params: Any) -> dict[str, Any]:
    """A decision of the machine `checklist` that calls a tool."""
    decision = {"action": "call_tool", "strategy": "exploit", "notes": f"I look at {tool}."}
    return decision | {"tool_call": {"tool_id": tool, "params": params}}


def _letter(number: int) -> str:
    return (
        f"Letter {number}: the harbour paid {number + 3} pounds for a tide table. "
        + "The sea was calm. " * 24
    )


SCRIPT: dict[str, Any] = {
    "replies": {
        "decision": [
            call("post", to="the board", text="I begin to count."),
            *(call("letter", number=number) for number in range(1, 7)),
            call("post", to="the board", text="Half of it is counted."),
            call("post", to="the board", text="All of it is counted."),
            call("post", to="the board", text="It is written down."),
            {"action": "complete", "completion_summary": "45 pounds."},
        ],
        "summary": [
            {
                "goal": GOAL,
                "done": "Letters 1 to 3 are read.",
                "critical_context": WRONG,
                "next_steps": "Read the other letters.",
            },
            {"goal": GOAL, "done": "All letters are read.", "critical_context": "The second summary."},
            {"goal": GOAL, "done": "All letters are read.", "critical_context": "The third summary."},
        ],
    },
    "tools": {
        "letter": {
            "params": {"number": "integer"},
            "required": ["number"],
            "effects": "read",
            "results": [{"output": _letter(number)} for number in range(1, 7)],
        },
        "post": {
            "params": {"to": "string", "text": "string"},
            "required": ["to", "text"],
            "effects": "write",
            "results": [{"output": f"posted {number}"} for number in range(4)],
        },
    },
    "pace": {"model_s": 0.1, "tool_s": 0.05, "stream": False},
}

SETTINGS: dict[str, Any] = {
    "plan": ["read the letters", "tell the board"],
    "plan_gate": False,
    "exploitation_budget": 20,
    "max_iterations": 40,
    "context": {"limit_tokens": 2_000, "compact_at": 0.68, "keep_recent": 0.25},
}
