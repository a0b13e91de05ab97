"""The contract: its slots, its artifacts, and both levels of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runs.engine.artifacts import part_of
from runs.engine.presentation import Data, Lost, Meter, Panel, Told, Word, meters_of
from runs.machines.contract.lines import exit_words
from runs.machines.contract.state import ContractState, SlotState
from runs.machines.contract.telling import STAGE_NAMES, budget

FACTS = ("contract.artifact.made", "react.tool.result")

ADVISORY = ("explore", "exploit", "render")
LABELS = {
    "decision_rounds": "Rounds",
    "tool_calls": "Tool calls",
    "decision_reruns": "Reruns",
    "context_reads": "Reads",
}


@dataclass(frozen=True)
class Made:
    """An artifact: its step, and its value (one entry, if it has one to show)."""

    name: str
    kind: str
    error: str | None
    empty: bool
    slot: str | None
    seq: int | None = None
    value: tuple[Any, ...] = ()


@dataclass(frozen=True)
class SlotView:
    """A slot, its artifact, and its advised budget."""

    name: str
    slot: SlotState
    mark: Word
    current: bool
    made: Made | None
    meters: tuple[Meter, ...]


def context(state: ContractState, rows: Sequence[Told], _lost: Lost | None) -> Data:
    """Return the data of the template."""
    made = _registry(state, rows)
    slots = [_slot(state, name, made) for name in state.slots]
    return {
        "slots": slots,
        "filled": len(state.slots) - len(state.unfilled),
        "artifacts": list(made.values()),
        "meters": _used(meters_of(budget(state), "global", LABELS, ADVISORY)),
        "phases": list(_phases(state)),
        "awaits": state.awaits_coordinator,
    }


def _used(meters: dict[str, Meter]) -> list[Meter]:
    return [meter for meter in meters.values() if meter.used or meter.limit]


def _registry(state: ContractState, rows: Sequence[Told]) -> dict[str, Made]:
    made_at: dict[str, tuple[int, tuple[Any, ...]]] = {}
    for row in rows:
        result = next((fact for fact in row.facts if fact["kind"] == "react.tool.result"), None)
        for fact in row.facts:
            if fact["kind"] == "contract.artifact.made":
                made_at[fact["name"]] = (row.seq, _value(result, fact["name"]))
    found = {}
    for name, artifact in state.artifacts.items():
        seq, value = made_at.get(name, (None, ()))
        found[name] = Made(name, artifact.kind, artifact.error, artifact.empty, artifact.slot, seq, value)
    return found


def _value(result: Data | None, name: str) -> tuple[Any, ...]:
    if result is None or result.get("error") is not None:
        return ()
    value = part_of(result["value"], tuple(result["outputs"]), name)
    return () if value == "" else (value,)


def _slot(state: ContractState, name: str, made: dict[str, Made]) -> SlotView:
    slot = state.slots[name]
    meters = _used(meters_of(budget(state), f"stage:{name}", LABELS, STAGE_NAMES))
    return SlotView(
        name=name,
        slot=slot,
        mark=_mark(slot),
        current=name == state.focus_slot and state.exit_reason is None,
        made=made.get(slot.artifact or ""),
        meters=tuple(meters),
    )


def _mark(slot: SlotState) -> Word:
    if slot.artifact is None:
        return Word("open", "dot", "quiet")
    return Word("draft", "pen", "warn") if slot.draft else Word("filled", "check", "good")


def _phases(state: ContractState) -> list[Word]:
    """Return the exceptional states of the run's budget, in words."""
    said: list[Word] = []
    if state.exit_reason is not None:
        pass
    elif state.is_wrapup_round:
        why = exit_words(state.wrapup_exit_reason)
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


PANEL = Panel("The contract", FACTS, context, "contract/panel.html")
