"""`checklist`: the model acknowledges a plan in its notes, step by step, and may complete once every step is.

Pure functions: `settings`, `facts`, `state` and its fold, `nodes`, `prompts`. Here is the declaration.
See docs/machines.md, "checklist".
"""

from __future__ import annotations

from typing import Any

from runs.engine.machine import COMMON_EXITS, END, ArtifactRow, Edge, Machine
from runs.engine.presentation import Presentation
from runs.machines.checklist import prompts as words
from runs.machines.checklist.facts import DecisionMade, InfraAnswered, PlanAcknowledged, PlanMade
from runs.machines.checklist.form import FORM
from runs.machines.checklist.infra import INFRA
from runs.machines.checklist.lines import EXITS, LINES, violation
from runs.machines.checklist.nodes import decision, exit_, tool_execution
from runs.machines.checklist.panel import PANEL
from runs.machines.checklist.settings import ChecklistSettings
from runs.machines.checklist.state import ChecklistState, budget, evolve, open_state


def artifacts(state: ChecklistState) -> tuple[ArtifactRow, ...]:
    """Return the files made by the run's tools."""
    return tuple(ArtifactRow(name=name, kind=kind) for name, kind in state.artifacts.items())


def reply_schema(name: str, state: ChecklistState) -> dict[str, Any] | None:
    """Return the JSON schema of a reply."""
    return words.reply_schema(name, state, frozenset(INFRA))


CHECKLIST = Machine(
    name="checklist",
    line="Works through a plan, ticks off each step in its notes, and may complete once every step is ticked off.",
    start="decision",
    deciding="decision",
    nodes={"decision": decision, "tool_execution": tool_execution, "exit": exit_},
    edges=(
        Edge("decision", "call_tool", "tool_execution", "validated external tool"),
        Edge("decision", "infra", "decision", "react.read, react.memory_read, react.memory_hide"),
        Edge("decision", "violation", "decision", "rejected"),
        Edge("decision", "answered", "decision", "clarify that a person answered"),
        Edge("decision", "exit", "exit"),
        Edge("tool_execution", "done", "decision"),
        Edge("tool_execution", "exit", "exit", "fatal tool error: tool_error"),
        Edge("exit", "final", END),
    ),
    exit_reasons=("complete", "clarify", "max_iterations", "protocol_violation", "tool_error", *COMMON_EXITS),
    settings=ChecklistSettings,
    state=ChecklistState,
    own_facts=(DecisionMade, PlanMade, PlanAcknowledged, InfraAnswered),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.decisions,
    budget=budget,
    budget_text=words.active_state,
    system=words.system,
    examples=words.examples,
    block=words.block,
    names_paths=words.names_paths,
    reply_schema=reply_schema,
    artifacts=artifacts,
    takes_fatal=frozenset({"tool_execution"}),
    built_in=tuple(INFRA.values()),
    presentation=Presentation(
        facts=LINES, exits=EXITS, violation=violation, panel=PANEL, form=FORM, progress="iterations"
    ),
)
