"""What the runs of the bench do: calls of the far side's tools by all four machines, and by children."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from tests.chaos.far_side import ABOVE

TOOLS = ["look", "pay", "post", "shout", "doze", "poison"]
DEEDS = ("pay", "post", "shout")
RULES = [
    {"when": {"tool": tool, "args": {"n": {"gt": ABOVE}}}, "do": "ask"} for tool in ("pay", "post", "shout")
] + [{"when": {"tool": "*"}, "do": "allow"}]
USAGE = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.001}
MACHINES = ("ruled", "contract", "checklist", "planned", "family")


@dataclass(frozen=True)
class Planned:
    """One call that a run is to make."""

    tool: str
    label: str
    n: int

    @property
    def args(self) -> dict[str, Any]:
        """As the model writes them."""
        return {"label": self.label, "n": self.n}


@dataclass(frozen=True)
class Play:
    """One launch."""

    label: str
    machine: str
    settings: dict[str, Any]
    script: dict[str, Any]


def calls_of(label: str, dice: random.Random, most: int) -> list[Planned]:
    """Some calls, a few of which are held back for a person."""
    calls = []
    for n in range(dice.randint(2, most)):
        tool = dice.choice(("look", *DEEDS, *DEEDS))
        held = tool in DEEDS and dice.random() < 0.25
        calls.append(Planned(tool, label, n + (ABOVE + 1 if held else 1)))
    return calls


def play(label: str, dice: random.Random) -> Play:
    """A launch by chance."""
    return play_of(dice.choice(MACHINES), label, calls_of(label, dice, 4))


def play_of(machine: str, label: str, calls: list[Planned]) -> Play:
    """A run of `machine` (or a family: a parent whose child makes the calls) that makes these calls, one by one."""
    settings: dict[str, Any] = {"tools": TOOLS, "rules": RULES}
    if machine == "family":
        child = play_of("ruled", label, calls)
        goal = {"goal": f"Do {label}"}
        script = {"replies": {"decision": _ruled([("agent.kid", goal)])}, "usage": USAGE}
        script["subgraphs"] = {"kid": {"replies": child.script["replies"]}}
        return Play(
            label, "ruled", {"subgraphs": {"kid": {"machine": "ruled", "settings": settings}}}, script
        )
    made = [(call.tool, call.args) for call in calls]
    script = {"replies": {"decision": _REPLIES[machine](made)}, "usage": USAGE}
    return Play(label, machine, settings | _SETTINGS.get(machine, {}), script)


Calls = list[tuple[str, dict[str, Any]]]


def _ruled(calls: Calls) -> list[dict[str, Any]]:
    thoughts = [{"thought": f"I use {tool}", "action": {"tool": tool, "args": args}} for tool, args in calls]
    # a rollback may ask for more replies than a straight way would
    return [*thoughts, *[{"thought": "FINAL ANSWER: done", "action": None}] * 12]


def _contract(calls: Calls) -> list[dict[str, Any]]:
    rounds = [
        {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {
                "tool_id": tool,
                "params": args,
                "out_artifacts": [{"name": f"i{number}", "kind": "inline"}],
                "reason": "wanted",
            },
        }
        for number, (tool, args) in enumerate(calls)
    ]
    last = {"action": "complete", "completion_summary": "done"}
    return [*rounds, last]


def _checklist(calls: Calls) -> list[dict[str, Any]]:
    rounds = [
        {"action": "call_tool", "strategy": "explore", "tool_call": {"tool_id": tool, "params": args}}
        for tool, args in calls
    ]
    return [*rounds, {"action": "complete", "completion_summary": "done"}]


def _planned(calls: Calls) -> list[dict[str, Any]]:
    steps = [{"thought": f"I use {tool}", "tool": tool, "args": args} for tool, args in calls]
    return [*steps, {"thought": "say it", "tool": "final_answer", "args": {"answer": "done"}}]


_REPLIES = {"ruled": _ruled, "contract": _contract, "checklist": _checklist, "planned": _planned}
_SETTINGS: dict[str, dict[str, Any]] = {
    "contract": {"depth": "deep"},
    "checklist": {"plan": [], "exploration_budget": 20},
    "planned": {"plan": [], "retry_buffer": 20, "replan_failure_threshold": 20},
}
