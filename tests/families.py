"""Runs that call child runs, of one machine and of any."""

from __future__ import annotations

from typing import Any

from runs.models import Run
from tests.launching import FINAL, launch, script, think

CALL = think("agent.inner", goal="Look up the tides")

INNER_ANSWER = {"thought": "FINAL ANSWER: the inner answer", "action": None}


def family(
    *inner: Any, settings: dict[str, Any] | None = None, after: tuple[Any, ...] = (FINAL,), **own: Any
) -> Run:
    """A parent whose first thought calls the child `inner`, which plays these replies."""
    played = script(CALL, *after, subgraphs={"inner": {"replies": {"decision": list(inner)}}})
    subgraphs = {"inner": {"machine": "ruled", "settings": settings or {}}}
    return launch(played=played, subgraphs=subgraphs, **own)


def child_of(run: Run) -> Run:
    return Run.objects.get(parent=run)


KID_CALL = {"tool": "agent.kid", "args": {"goal": "When is high water?"}}

SLOT = [{"id": "tide", "type": "inline", "description": "the tide", "format": "text"}]

PARENTS: dict[str, list[dict[str, Any]]] = {
    "contract": [
        {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {
                "tool_id": "agent.kid",
                "params": KID_CALL["args"],
                "out_artifacts": [{"name": "i1", "kind": "inline"}],
                "reason": "needed",
            },
        },
        {
            "action": "complete",
            "completion_summary": "Asked.",
            "map_slots": [{"slot": "tide", "artifact": "i1"}],
        },
    ],
    "checklist": [
        {
            "action": "call_tool",
            "strategy": "explore",
            "tool_call": {"tool_id": "agent.kid", "params": KID_CALL["args"]},
        },
        {"action": "complete", "completion_summary": "Asked."},
    ],
    "planned": [
        {"thought": "ask", **KID_CALL},
        {"thought": "say", "tool": "final_answer", "args": {"answer": "Asked."}},
    ],
    "ruled": [{"thought": "I ask", "action": KID_CALL}, {"thought": "FINAL ANSWER: Asked.", "action": None}],
}

CHILDREN: dict[str, list[dict[str, Any]]] = {
    "contract": [{"action": "complete", "completion_summary": "At noon."}],
    "checklist": [{"action": "complete", "completion_summary": "At noon."}],
    "planned": [{"thought": "say", "tool": "final_answer", "args": {"answer": "At noon."}}],
    "ruled": [{"thought": "FINAL ANSWER: At noon.", "action": None}],
}

KID_SETTINGS: dict[str, dict[str, Any]] = {
    "contract": {"contract": SLOT},
    "checklist": {"plan": []},
    "planned": {"plan": []},
    "ruled": {},
}


def asking_family(parent: str, child: str) -> Run:
    """Launch a run of the machine `parent` that asks a child of the machine `child`."""
    return launch(
        machine=parent,
        goal="Find out the tide",
        played={
            "replies": {"decision": PARENTS[parent]},
            "subgraphs": {"kid": {"replies": {"decision": CHILDREN[child]}}},
            "usage": {"cost_usd": 0.0625},
        },
        **KID_SETTINGS[parent],
        subgraphs={"kid": {"machine": child, "settings": {} if child == "contract" else KID_SETTINGS[child]}},
    )
