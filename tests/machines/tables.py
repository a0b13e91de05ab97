"""The machines' edges and exit reasons, written by hand: each declaration is compared with them."""

from __future__ import annotations

COMMON = ("cost_limit", "token_limit", "time_limit", "model_error", "fatal_error", "aborted")

EDGES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "contract": (
        ("decision", "call_tool", "protocol_verify"),
        ("decision", "rerun", "decision"),
        ("decision", "answered", "decision"),
        ("decision", "wrapup", "decision"),
        ("decision", "exit", "exit"),
        ("protocol_verify", "ok", "tool_execution"),
        ("protocol_verify", "violation", "decision"),
        ("tool_execution", "done", "decision"),
        ("exit", "final", "end"),
    ),
    "checklist": (
        ("decision", "call_tool", "tool_execution"),
        ("decision", "infra", "decision"),
        ("decision", "violation", "decision"),
        ("decision", "answered", "decision"),
        ("decision", "exit", "exit"),
        ("tool_execution", "done", "decision"),
        ("tool_execution", "exit", "exit"),
        ("exit", "final", "end"),
    ),
    "planned": (
        ("plan", "planned", "select"),
        ("select", "action", "execute"),
        ("select", "skip", "select"),
        ("select", "replan", "plan"),
        ("select", "exhausted", "finish"),
        ("execute", "success", "select"),
        ("execute", "failure", "select"),
        ("execute", "replan", "plan"),
        ("execute", "final_answer", "finish"),
        ("finish", "final", "end"),
    ),
    "ruled": (
        ("thought", "thought", "validate"),
        ("validate", "pass", "action"),
        ("validate", "retry", "thought"),
        ("validate", "terminal", "end"),
        ("action", "subgraph", "subgraph"),
        ("subgraph", "merged", "action"),
        ("action", "executed", "observation"),
        ("observation", "recorded", "commit"),
        ("commit", "continue", "thought"),
        ("commit", "terminated", "end"),
    ),
}

EXITS: dict[str, tuple[str, ...]] = {
    "contract": (
        "complete",
        "clarify",
        "max_iterations",
        "context_reads_exhausted",
        "decision_no_progress",
        "decision_reruns_exhausted",
        "wrapup_no_decision_rerun",
        "exploit_overdraft_blocked",
        "incomplete_contract",
    ),
    "checklist": ("complete", "clarify", "max_iterations", "protocol_violation", "tool_error"),
    "planned": ("complete", "budget_exhausted"),
    "ruled": ("goal_achieved", "max_steps", "cost_limit", "rule_violation", "retries_exhausted"),
}
"""Beside the common ones."""

START = {"contract": "decision", "checklist": "decision", "planned": "plan", "ruled": "thought"}

DECIDING = {"contract": "decision", "checklist": "decision", "planned": "select", "ruled": "thought"}
"""Where "every N steps" looks."""

TAKES_FATAL = {"contract": set(), "checklist": {"tool_execution"}, "planned": set(), "ruled": set()}
"""Nodes whose table names an edge for a fatal tool error."""


def mermaid(machine: str) -> str:
    """The drawing that the table means."""
    lines = ["stateDiagram-v2", f"    [*] --> {START[machine]}"]
    for source, name, target in EDGES[machine]:
        lines.append(f"    {source} --> {'[*]' if target == 'end' else target}: {name}")
    return "\n".join(lines)
