"""What the runs of the bench do: calls of the far side's tools by all four machines, and by children.

Some have limits, and a price; some read more than fits their window; some use a model whose server tells its key.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos import canaries
from tests.chaos.far_side import ABOVE

TOOLS = ["look", "jot", "pay", "post", "shout", "toil", "doze", "poison"]
DEEDS = ("pay", "post", "shout")
RULES = [
    {"when": {"tool": tool, "args": {"n": {"gt": ABOVE}}}, "do": "ask"} for tool in ("pay", "post", "shout")
] + [{"when": {"tool": "*"}, "do": "allow"}]
USAGE = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.001}
MACHINES = ("ruled", "contract", "checklist", "planned", "family")

LIMITED, LONG, KEYED, SLOW = 0.35, 0.15, 0.04, 0.2
"""Shares of the plays that have limits, a small window, a real model, a slow call that must not be made twice."""

CALL_S = 0.03
"""Seconds of a model call of a limited play: kills fall into it, and what is set aside for it is to be seen."""

WINDOW_TOKENS = 1_200
"""A window that a play with long thoughts fills in a few rounds."""

LONG_THOUGHT = "I weigh what I know, and what I do not know yet, and come to the same end as before. " * 9
SUMMARY = "Goal: do it. Done: some calls, all as wanted. Next: go on."


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
    script: dict[str, Any] | None = field(default=None)


def calls_of(label: str, dice: random.Random, most: int) -> list[Planned]:
    """Some calls, a few of which are held back for a person."""
    calls = []
    for n in range(dice.randint(2, most)):
        tool = dice.choice(("look", "jot", *DEEDS, *DEEDS))
        held = tool in DEEDS and dice.random() < 0.25
        calls.append(Planned(tool, label, n + (ABOVE + 1 if held else 1)))
    if dice.random() < SLOW:
        calls[0] = Planned("toil", label, 1)
    return calls


def play(label: str, dice: random.Random) -> Play:
    """A launch by chance."""
    lot = dice.random()
    if lot < KEYED:
        return keyed(label, dice.choice(canaries.MODELS))
    if lot < KEYED + LONG:
        return long(label, calls_of(label, dice, 5))
    made = play_of(dice.choice(MACHINES), label, calls_of(label, dice, 4))
    return limited(made, limits_of(dice), dice.choice(("ask", "stop"))) if lot > 1 - LIMITED else made


def play_of(machine: str, label: str, calls: list[Planned]) -> Play:
    """A run of `machine` (or a family: a parent whose child makes the calls) that makes these calls, one by one."""
    settings: dict[str, Any] = {"tools": TOOLS, "rules": RULES}
    if machine == "family":
        child = play_of("ruled", label, calls)
        assert child.script is not None
        goal = {"goal": f"Do {label}"}
        script = {"replies": {"decision": _ruled([("agent.kid", goal)])}, "usage": USAGE}
        script["subgraphs"] = {"kid": {"replies": child.script["replies"]}}
        return Play(
            label, "ruled", {"subgraphs": {"kid": {"machine": "ruled", "settings": settings}}}, script
        )
    made = [(call.tool, call.args) for call in calls]
    script = {"replies": {"decision": _REPLIES[machine](made)}, "usage": USAGE}
    return Play(label, machine, settings | _SETTINGS.get(machine, {}), script)


def limits_of(dice: random.Random) -> dict[str, Any]:
    """A limit that some runs keep and others reach; a call sets aside about 0.005 USD and 1,500 tokens at first."""
    if dice.random() < 0.5:
        return {"cost_usd": round(dice.uniform(0.006, 0.016), 4)}
    return {"tokens": dice.randint(2_000, 5_000)}


def limited(play: Play, limits: dict[str, Any], on_limit: str) -> Play:
    """The same with limits, and slow enough that calls are cut off."""
    assert play.script is not None
    return replace(
        play,
        settings=play.settings | {"limits": limits, "on_limit": on_limit},
        script=play.script | {"pace": {"model_s": CALL_S, "stream": False}},
    )


def long(label: str, calls: list[Planned]) -> Play:
    """A run that says so much that its window is compacted under way."""
    looks = [Planned("look", label, 50 + n) for n in range(3)]
    made = play_of("ruled", label, [*looks, *calls])
    assert made.script is not None
    said = [
        reply | {"thought": f"{LONG_THOUGHT}{reply['thought']}"} if reply["action"] else reply
        for reply in made.script["replies"]["decision"]
    ]
    script = made.script | {"replies": {"decision": said, "summary": [SUMMARY] * 30}}
    return replace(made, settings=made.settings | {"context": {"limit_tokens": WINDOW_TOKENS}}, script=script)


def keyed(label: str, model: str) -> Play:
    """A run of a model whose server refuses every call, and says with which key."""
    return Play(f"{canaries.GOAL}-{label}", "ruled", {"model": model, "tools": TOOLS, "rules": RULES})


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
