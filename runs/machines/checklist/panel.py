"""The checklist: its steps with their marks, violations in a row, the strategies' budgets, and the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runs.engine.presentation import Data, Lost, Meter, Panel, Told, meters_of
from runs.machines.checklist.lines import violation
from runs.machines.checklist.state import ChecklistState, budget

FACTS = ("react.decision", "react.notice", "react.plan.ack")

SIGNED = re.compile(r"^\s*(?:[-*]\s*)?([✓✗→□])\s*(?:\[([0-9]{1,6})\]|([0-9]{1,6})[.:](?![0-9]))\s*(.*)$")
"""A line of notes about a step: the machine reads only done and failed; people also see the rest."""

SIGNS = {"done": "✓", "failed": "✗", "now": "→", "later": "□"}
SAID = {"done": "done", "failed": "failed", "now": "in progress", "later": "to do"}


@dataclass(frozen=True)
class StepView:
    """A step of the plan: its mark, the model's last note about it, and the step of that note."""

    number: int
    text: str
    status: str
    sign: str
    said: str
    note: str = ""
    seq: int | None = None


@dataclass(frozen=True)
class FileView:
    """A file made by a tool."""

    name: str
    kind: str


def context(state: ChecklistState, rows: Sequence[Told], _lost: Lost | None) -> Data:
    """Return the data of the template."""
    noted = _noted(rows)
    lines = meters_of(budget(state), "global", {})
    return {
        "steps": [_step(number, step, noted) for number, step in enumerate(state.plan, 1)],
        "done": state.count("done"),
        "failed": state.count("failed"),
        "gated": state.settings.plan_gate and bool(state.count("pending")) and state.exit_reason is None,
        "awaits": state.settings.planner == "model" and not state.plan_told and not state.plan,
        "meters": [
            Meter("Violations in a row", state.violations, state.settings.max_consecutive_violations),
            lines["explore"],
            lines["exploit"],
        ],
        "violation": _last_violation(rows) if state.violations else "",
        "artifacts": [FileView(name, kind) for name, kind in state.artifacts.items()],
    }


def _noted(rows: Sequence[Told]) -> dict[int, tuple[str, str, int]]:
    """Return the last mark of each plan step in the notes, with its text and its step."""
    noted: dict[int, tuple[str, str, int]] = {}
    for row in rows:
        for fact in row.facts:
            if fact["kind"] != "react.decision":
                continue
            for line in fact["notes"].splitlines():
                if found := SIGNED.match(line):
                    noted[int(found[2] or found[3])] = (found[1], found[4], row.seq)
    return noted


def _step(number: int, step: Any, noted: dict[int, tuple[str, str, int]]) -> StepView:
    sign, note, seq = noted.get(number, ("", "", None))
    status = step.status
    if status == "pending":
        status = "now" if sign == SIGNS["now"] else "later"
    if note == step.text:
        note = ""
    return StepView(number, step.text, status, SIGNS[status], SAID[status], note, seq)


def _last_violation(rows: Sequence[Told]) -> str:
    for row in reversed(rows):
        for fact in row.facts:
            if fact["kind"] == "react.notice" and (found := violation(fact["code"])):
                return found
    return ""


PANEL = Panel("The checklist", FACTS, context, "checklist/panel.html")
