"""How each machine is played in random worlds.

A new machine of agentsite adds its play here. One from elsewhere has it as `PLAY` in the module `play` of its package.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from runs.engine.machine import Machine
from runs.machines import PACKAGES
from runs.machines.ruled.settings import RETRIES
from tests.machines.tapes import CALLS, Play, Tape
from tests.worlds import Run

ASKS = 6
"""Rows of one request at most: three attempts, and three more once the prompt was too long."""

COMPACTION = 6
"""Rows of one summary at most."""

CALL_ROWS = 3
"""Rows of one tool call at most: three attempts."""


# --- ruled ------------------------------------------------------------------------------------------------


def _ruled_settings(tape: Tape) -> dict[str, Any]:
    ruleset: list[dict[str, Any]] = [
        {"type": "max_depth", "value": tape.one_of((None, None, None, None, 0, 1, 3))},
        {"type": "cost_limit", "value": tape.one_of((None, None, None, 0.2, 0, 100))},
        {"type": "forbid_guessing", "value": tape.one_of((None, "perhaps", ["maybe", "guess"]))},
        {"type": "require_tool_use", "enabled": tape.below(2) == 0},
        {
            "type": "forbid_pattern",
            "value": "rm +-rf",
            "severity": tape.one_of((None, "terminal", "retryable")),
        },
        {"type": "forbid_guessing", "severity": "terminal"},
        {"type": "cost_limit", "value": 0.1, "severity": "retryable"},
    ]
    chosen: dict[str, Any] = {
        "max_steps": tape.one_of((1, 2, 4, 8, 12)),
        "on_retries": tape.one_of(("ask", "stop")),
        "max_rejections": tape.one_of((10, 0, 1, 2)),
        "cache": tape.below(2) == 0,
    }
    if tape.chance(4):
        chosen["subgraphs"] = {"auth": {"machine": "ruled", "at": "thought"}}
    if tape.below(3):
        chosen["ruleset"] = [rule for rule in ruleset if tape.below(3) == 1]
    return chosen


def _ruled_replies() -> tuple[Any, ...]:
    calls = [{"thought": "I look it up", "action": {"tool": tool, "args": args}} for tool, args in CALLS]
    return (
        {"thought": "FINAL ANSWER: 42", "action": None},
        *calls,
        *calls[:6],
        {"thought": "So FINAL ANSWER : : 7 FINAL ANSWER", "action": {"tool": "search", "args": {"q": "x"}}},
        {"thought": "I guess it might be FINAL ANSWER: 3"},
        {"thought": "perhaps", "action": {"tool": "search", "args": {"q": "x"}}},
        {"thought": "It is PROBABLY so", "action": {"tool": "search", "args": {"q": "x"}}},
        {"thought": "no tool"},
        {"thought": "I clean up", "action": {"tool": "shell", "args": {"line": "rm  -rf /"}}},
        {"thought": "final answer: 42"},
        {"thought": 5, "action": None},
        {"action": {"tool": "search"}},
        {"thought": "x", "action": "search"},
        {"thought": "x", "action": {"tool": 5, "args": {}}},
        {"thought": "x", "action": {"tool": "search", "args": []}},
        {"thought": "x", "action": {"tool": "search", "args": None}},
        {"thought": "x", "action": {}},
        'Sure!\n```json\n{"thought": "fenced", "action": {"tool": "think"}}\n```',
        '{"thought": "x", "action": {"tool": "search", "args": {"q": "x", "n": Infinity}}}',
    )


def _ruled_rows(run: Run) -> int:
    """A step: RETRIES drafts that come back and one that goes on, each read at its third reply at the latest."""
    draft = 3 * ASKS + 2
    step = (RETRIES + 1) * draft + CALL_ROWS + 3
    fixed = CALL_ROWS + 2
    return int(run.terms.settings.max_steps) * step + fixed + 1  # type: ignore[attr-defined]


# --- contract -----------------------------------------------------------------------------------------------


SLOTS: tuple[dict[str, Any], ...] = (
    {"id": "report", "type": "inline", "description": "a report"},
    {"id": "file", "type": "file", "description": "a file", "format": "md"},
    {"id": "notes", "type": "inline", "description": "notes"},
)
HINTS = {"explore": 1, "exploit": 2, "render": 1, "ctx_reads": 1}


def _contract_settings(tape: Tape) -> dict[str, Any]:
    caps = (
        "max_decision_rounds",
        "max_tool_calls",
        "max_decision_reruns",
        "max_context_reads",
        "max_exploit_rounds",
    )
    return {
        "contract": list(SLOTS[: tape.below(4)]),
        "hints": tape.one_of(({}, {"report": HINTS}, {"file": {"explore": 0, "exploit": -1}})),
        "depth": tape.one_of((None, "shallow", "medium", "deep")),
        "plan_shape": tape.one_of((None, "multi_step")),
        "coordinator": tape.one_of((None, None, "model")),
        "budget": {name: tape.below(4) for name in caps if tape.below(3) == 1},
        "skills": tape.one_of(({}, {"style": "Write plainly."})),
    }


def _contract_replies() -> tuple[Any, ...]:
    calls = [
        {
            "action": "call_tool",
            "strategy": strategy,
            "tool_call": {
                "tool_id": tool,
                "params": args,
                "out_artifacts": [{"name": name, "kind": kind}],
                "reason": "because",
            },
        }
        for (tool, args), strategy, name, kind in zip(
            CALLS,
            ("explore", "exploit", "render", "exploit") * 4,
            ("found", "draft", "text", "found") * 4,
            ("inline", "file", "search", "inline") * 4,
            strict=True,
        )
    ]
    maps = [
        {"slot": slot, "artifact": name, "draft": draft, "gaps": ""}
        for slot, name, draft in (
            ("report", "found", False),
            ("file", "draft", False),
            ("file", "found", True),
            ("notes", "found", False),
            ("nosuch", "found", False),
            ("report", "nosuch", False),
            ("report", "text", False),
        )
    ]
    return (
        {"action": "complete", "completion_summary": "done"},
        *calls,
        *calls[:6],
        {**calls[0], "map_slots": maps},
        {**calls[1], "show_artifacts": ["found"]},
        {**calls[1], "strategy": None},
        {**calls[1], "strategy": "wild"},
        {**calls[1], "strategy": "exit"},
        {"action": "call_tool", "strategy": "exploit"},
        {"action": "call_tool", "strategy": "exploit", "tool_call": {"params": [], "out_artifacts": []}},
        {"action": "decision", "show_artifacts": ["found"], "map_slots": maps[:2]},
        {"action": "decision", "show_skills": ["style"]},
        {"action": "decision", "show_artifacts": ["nosuch"]},
        {"action": "decision", "strategy": "wild", "focus_slot": "file", "notes": "on"},
        {"action": "clarify", "questions": ["Which one?"]},
        {"action": "clarify"},
        {"action": "complete", "completion_summary": "done", "map_slots": maps},
        {"action": "complete", "strategy": "explore"},
        {"action": "exit"},
        {"action": "wild"},
        {"action": 5},
        {"action": "complete", "map_slots": "all"},
        {"action": "call_tool", "strategy": "exploit", "tool_call": "search"},
    )


COORDINATOR: tuple[Any, ...] = (
    {"slots": [], "depth": None},
    {"slots": list(SLOTS), "depth": "shallow", "plan_shape": "multi_step", "hints": {"report": HINTS}},
    {"slots": [{"id": "only", "type": "inline", "description": "x"}]},
    {"slots": "many"},
    "no JSON",
)


def _most(run: Run, *names: str) -> int:
    """The largest value that a name of the state had in the run."""
    found = [0]
    for row in run.rows:
        value: Any = row.state
        for name in names:
            value = value[name]
        found.append(int(value))
    return max(found)


def _contract_rows(run: Run) -> int:
    """Every decision costs a round, but for overdraft, one wrap-up, and the one that ends it."""
    rounds = _most(run, "budget", "global", "max_decision_rounds") + _most(run, "exploit_overdraft_total") + 2
    return ASKS + rounds * (ASKS + COMPACTION + CALL_ROWS + 3) + 2


# --- checklist ----------------------------------------------------------------------------------------------


def _checklist_settings(tape: Tape) -> dict[str, Any]:
    return {
        "plan": ["gather", "draft", "review"][: tape.below(4)],
        "planner": tape.one_of((None, None, "model")),
        "plan_gate": tape.below(3) > 0,
        "exploration_budget": tape.below(4),
        "exploitation_budget": tape.below(4),
        "max_iterations": tape.one_of((None, None, 1, 2, 5)),
        "max_consecutive_violations": tape.one_of((2, 0, 1, 3)),
    }


def _checklist_replies() -> tuple[Any, ...]:
    calls = [
        {"action": "call_tool", "strategy": strategy, "tool_call": {"tool_id": tool, "params": args}}
        for (tool, args), strategy in zip(CALLS, ("explore", "exploit") * 8, strict=True)
    ]
    return (
        {"action": "complete", "completion_summary": "done", "notes": "✓ [1]\n✓ [2]\n- ✗ 3."},
        *calls,
        *calls[:6],
        {**calls[0], "notes": "✓ [1] gathered\n→ [2]\n□ 3: later"},
        {**calls[1], "notes": "* ✗ [2] no\n✓ [9]"},
        {**calls[1], "strategy": "wild"},
        {**calls[1], "strategy": None},
        {**calls[1], "completion_summary": "too early"},
        {"action": "call_tool", "strategy": "explore"},
        {"action": "call_tool", "strategy": "explore", "tool_call": {"tool_id": "search", "params": []}},
        *(
            {"action": "call_tool", "tool_call": {"tool_id": tool, "params": params}}
            for tool, params in (
                ("react.read", {"paths": ["st:1", "st:2"]}),
                ("react.read", {"paths": ["st:999"]}),
                ("react.read", {}),
                ("react.memory_read", {"query": "tides"}),
                ("react.memory_hide", {"path": "st:2", "replacement": "…"}),
            )
        ),
        {"action": "complete", "completion_summary": "done"},
        {"action": "exit", "final_answer": "done"},
        {"action": "complete"},
        {"action": "clarify", "questions": ["Which one?"]},
        {"action": "clarify"},
        {"action": "wild"},
        {"action": 5},
        {"notes": "no action"},
        {"action": "complete", "completion_summary": 7},
    )


def _checklist_rows(run: Run) -> int:
    """Every reply is an iteration; the planner is asked once."""
    iterations = _most(run, "max_iterations") + 1
    return ASKS + iterations * (ASKS + COMPACTION + CALL_ROWS + 2) + 2


# --- planned ------------------------------------------------------------------------------------------------


def _planned_settings(tape: Tape) -> dict[str, Any]:
    rows = [{"tool": tool, "args": args, "thought": "next"} for tool, args in CALLS]
    chosen: dict[str, Any] = {
        "follow": tape.one_of(("model", "plan")),
        "retry_buffer": tape.below(4),
        "replan_failure_threshold": 1 + tape.below(3),
        "max_replans": tape.below(4),
    }
    if tape.below(2):
        chosen["plan"] = [tape.one_of(rows) for _ in range(tape.below(4))]
    return chosen


def _planned_replies() -> tuple[Any, ...]:
    calls = [{"thought": "next", "tool": tool, "args": args} for tool, args in CALLS]
    return (
        {"thought": "done", "tool": "final_answer", "args": {"answer": "42"}},
        *calls,
        *calls[:6],
        {"thought": "done", "tool": "final_answer", "args": {}},
        {"thought": "done", "tool": "final_answer", "args": {"answer": 42}},
        {"thought": 5, "tool": "search", "args": {}},
        {"thought": "x", "tool": 5},
        {"thought": "x", "tool": "search", "args": "q"},
        {"tool": "think"},
        {},
    )


def _planner_replies() -> tuple[Any, ...]:
    rows = [{"tool": tool, "args": args, "thought": "next"} for tool, args in CALLS]
    return (
        {"outline": "short", "steps": []},
        {"outline": "look", "steps": rows[:2]},
        {
            "outline": "save",
            "steps": [*rows[2:5], {"tool": "final_answer", "args": {"answer": "a"}, "thought": ""}],
        },
        {"outline": "bad", "steps": rows[7:12]},
        {"outline": "x", "steps": "many"},
        {"steps": [5]},
        "no JSON",
    )


def _planned_rows(run: Run) -> int:
    """Attempts are bounded by the largest `max_steps`, plans by `max_replans`."""
    plans = int(run.terms.settings.max_replans) + 1  # type: ignore[attr-defined]
    attempts = _most(run, "max_steps") + 1
    return plans * (ASKS + 1) + attempts * (ASKS + COMPACTION + CALL_ROWS + 2) + ASKS + 2


PLAYS: dict[str, Play] = {
    "contract": Play(
        settings=_contract_settings,
        replies={"decision": _contract_replies(), "coordinator": COORDINATOR, "fallback": ("all I know", "")},
        rows=_contract_rows,
        advisory=frozenset({"explore", "exploit", "render"}),
        overdrawn={"decision_rounds": "exploit_overdraft_used", "tool_calls": "exploit_overdraft_used"},
        reworded={"complete": "incomplete_contract"},
    ),
    "checklist": Play(
        settings=_checklist_settings,
        replies={
            "decision": _checklist_replies(),
            "planner": (
                {"steps": ["gather", "draft"]},
                {"steps": []},
                {"steps": "many"},
                {"steps": [5]},
                "no JSON",
            ),
            "fallback": ("all I know", ""),
        },
        rows=_checklist_rows,
    ),
    "planned": Play(
        settings=_planned_settings,
        replies={
            "decision": _planned_replies(),
            "planner": _planner_replies(),
            "fallback": ("all I know", ""),
        },
        rows=_planned_rows,
    ),
    "ruled": Play(
        settings=_ruled_settings,
        replies={"decision": _ruled_replies(), "fallback": ("all I know", "")},
        rows=_ruled_rows,
        advisory=frozenset({"retries"}),
    ),
}
"""By the machine's name."""


def has_play(machine: Machine) -> bool:
    """Whether its play is here or in its package; a machine of one module has none."""
    if machine.name in PLAYS:
        return True
    package = import_module(PACKAGES[machine.name])
    return hasattr(package, "__path__") and find_spec(f"{package.__name__}.play") is not None


def play_of(machine: Machine) -> Play:
    """How the machine is played; a machine without a play escapes the laws, so that is an error."""
    if machine.name in PLAYS:
        return PLAYS[machine.name]
    play = import_module(f"{PACKAGES[machine.name]}.play").PLAY
    assert isinstance(play, Play)
    return play
