"""The contract: its slots filling up, what was made, and both levels of the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runs.machines.contract.calling import part_of
from runs.machines.contract.state import ContractState, SlotState
from runs.machines.contract.telling import STAGE_NAMES
from runs.models import Budget
from runs.reading import words
from runs.reading.gauges import Gauge, gauge_of, lines_of
from runs.reading.machine_panels.story import Told
from runs.reading.phrases import short, value_text
from runs.reading.unheard import Unheard
from runs.reading.words import Word

FACTS = ("contract.artifact.made", "react.tool.result")

ADVISORY = ("explore", "exploit", "render")
LABELS = {
    "decision_rounds": "Rounds",
    "tool_calls": "Tool calls",
    "decision_reruns": "Reruns",
    "context_reads": "Reads",
}
PREVIEW = 160
"""Characters of an artifact's value that are shown."""


@dataclass(frozen=True)
class Made:
    """An artifact: where it was made, and how it begins."""

    name: str
    kind: str
    error: str | None
    empty: bool
    slot: str | None
    seq: int | None = None
    preview: str = ""


@dataclass(frozen=True)
class SlotView:
    """A slot, what fills it, and what it should use."""

    name: str
    slot: SlotState
    mark: Word
    current: bool
    made: Made | None
    gauges: tuple[Gauge, ...]


def context(
    state: ContractState, rows: list[Told], budgets: list[Budget], _unheard: Unheard | None
) -> dict[str, Any]:
    """What the template is given."""
    made = _registry(state, rows)
    slots = [_slot(state, name, made, budgets) for name in state.slots]
    return {
        "slots": slots,
        "filled": len(state.slots) - len(state.unfilled),
        "artifacts": list(made.values()),
        "gauges": [
            gauge_of(line, label=LABELS.get(name, ""), advisory=name in ADVISORY)
            for name, line in lines_of(budgets, "global").items()
            if line.used or line.limit
        ],
        "phases": list(_phases(state)),
        "awaits": state.awaits_coordinator,
    }


def _registry(state: ContractState, rows: list[Told]) -> dict[str, Made]:
    made_at: dict[str, tuple[int, str]] = {}
    for row in rows:
        result = next((fact for fact in row.facts if fact["kind"] == "react.tool.result"), None)
        for fact in row.facts:
            if fact["kind"] == "contract.artifact.made":
                made_at[fact["name"]] = (row.seq, _preview(result, fact["name"]))
    found = {}
    for name, artifact in state.artifacts.items():
        seq, preview = made_at.get(name, (None, ""))
        error = None if artifact.error is None else short(artifact.error, PREVIEW)
        found[name] = Made(name, artifact.kind, error, artifact.empty, artifact.slot, seq, preview)
    return found


def _preview(result: dict[str, Any] | None, name: str) -> str:
    if result is None or result.get("error") is not None:
        return ""
    return short(value_text(part_of(result["value"], tuple(result["outputs"]), name)), PREVIEW)


def _slot(state: ContractState, name: str, made: dict[str, Made], budgets: list[Budget]) -> SlotView:
    slot = state.slots[name]
    lines = lines_of(budgets, f"stage:{name}")
    gauges = tuple(
        gauge_of(lines[line], label=LABELS.get(line, ""), advisory=True)
        for line in STAGE_NAMES
        if line in lines and (lines[line].used or lines[line].limit)
    )
    return SlotView(
        name=name,
        slot=slot,
        mark=_mark(slot),
        current=name == state.focus_slot and state.exit_reason is None,
        made=made.get(slot.artifact or ""),
        gauges=gauges,
    )


def _mark(slot: SlotState) -> Word:
    if slot.artifact is None:
        return Word("open", "dot", "quiet")
    return Word("draft", "pen", "warn") if slot.draft else Word("filled", "check", "good")


def _phases(state: ContractState) -> list[Word]:
    """What is out of the ordinary about the run's budget, in words."""
    said: list[Word] = []
    if state.exit_reason is not None:
        pass
    elif state.is_wrapup_round:
        why = words.exit_words(state.wrapup_exit_reason)
        said.append(
            Word(f"Wrap-up: one round to fill the empty slots, then the run ends ({why})", "list", "warn")
        )
    elif state.allow_exploit_overdraft:
        used, total = state.exploit_overdraft_used, state.exploit_overdraft_total
        said.append(Word(f"Overdraft: round {used} of {total}, exploit calls only", "gauge", "warn"))
    elif state.must_finish:
        said.append(Word("Budget used up", "gauge", "warn"))
    if state.exit_reason is not None and state.wrapup_round_used:
        said.append(Word("Wrap-up round used", "list", "quiet"))
    if state.exit_reason is not None and state.exploit_overdraft_used:
        used, total = state.exploit_overdraft_used, state.exploit_overdraft_total
        said.append(Word(f"Overdraft: {used} of {total} rounds", "gauge", "quiet"))
    return said
