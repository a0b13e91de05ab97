"""How `checklist` reads for people."""

from __future__ import annotations

from runs.engine.presentation import Data, Reads, Said, call_of, spoken

SIGNS = {"done": "✓", "failed": "✗"}


def _decision(fact: Data) -> Said:
    if not fact.get("action"):
        return Said("Reply unreadable", icon="alert", tone="warn")
    said = fact.get("summary") or fact.get("notes") or " ".join(fact.get("questions") or ())
    title, tag = spoken(fact["action"]).capitalize(), fact.get("strategy") or ""
    return Said(title, said, "thought", "think", "turn", tag, call=call_of(fact))


def _plan(fact: Data) -> Said:
    if not fact["steps"]:
        return Said("No plan", fact["why"], "list", "warn", "turn")
    text = ", ".join(f"[{number}] {step}" for number, step in enumerate(fact["steps"], 1))
    return Said("Plan", text, "list", "think", "turn")


def _acknowledged(fact: Data) -> Said:
    text = " ".join(f"{SIGNS.get(mark['status'], '□')} [{mark['number']}]" for mark in fact["marks"])
    return Said("Plan", text, "list", "think")


def _record(fact: Data) -> Said:
    if fact.get("error") is not None:
        return Said("Error", fact["error"], "cross", "bad", tag=fact["tool"])
    return Said("Result", icon="result", tone="call", tag=fact["tool"], value=(fact["value"],))


def violation(code: str) -> str:
    """Return a notice's violation in words; empty if it names none."""
    return spoken(code.removeprefix("protocol_violation.")) if code.startswith("protocol_violation.") else ""


LINES: dict[str, Reads] = {
    "react.decision": Reads(_decision, reply=True, said="notes"),
    "react.infra.result": Reads(
        _record, before_end=True, yields=True, part=("Earlier results", "call"), noun="record read"
    ),
    "react.plan": Reads(_plan, at_ask="told", noun="plan"),
    "react.plan.ack": Reads(_acknowledged, part=("Marks on the plan", "other"), noun="marks on the plan"),
}

EXITS = {
    "clarify": "needs an answer to its questions",
    "max_iterations": "all rounds used",
    "protocol_violation": "too many protocol violations",
    "tool_error": "tool error",
}
