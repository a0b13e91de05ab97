"""The state in words: budget lines for pages and for the model, the registry, and facts as blocks."""

from __future__ import annotations

from runs.engine.artifacts import part_of
from runs.engine.facts import Fact, ToolReported
from runs.engine.machine import ArtifactRow, Block
from runs.engine.presentation import BudgetRow
from runs.machines.contract import prompts as words
from runs.machines.contract.budgets import GlobalBudget, StageBudget
from runs.machines.contract.state import ContractState

GLOBAL_LINES = (
    ("decisions", "decision_rounds", "decision_rounds"),
    ("tools", "tool_calls", "tool_calls"),
    ("explore", "explore", "explore_rounds"),
    ("exploit", "exploit", "exploit_rounds"),
    ("render", "render", "render_rounds"),
    ("decision_reruns", "decision_reruns", "decision_reruns"),
    ("context_reads", "context_reads", "context_reads"),
)
"""Of the global budget: its word in BUDGET_STATE, the name of the budget line, the name in GlobalBudget."""

STAGE_NAMES = ("explore", "exploit", "render", "context_reads")


def budget(state: ContractState) -> tuple[BudgetRow, ...]:
    """Return the global budget, then each stage's."""
    return (
        *(_row("global", line, state.budget.whole, name) for _, line, name in GLOBAL_LINES),
        *(
            _row(f"stage:{slot}", name, stage, name)
            for slot, stage in state.budget.stages.items()
            for name in STAGE_NAMES
        ),
    )


def _row(scope: str, line: str, level: GlobalBudget | StageBudget, name: str) -> BudgetRow:
    used, limit = getattr(level, f"{name}_used"), getattr(level, f"max_{name}")
    return BudgetRow(scope=scope, name=line, used=used, limit=limit)


def budget_text(state: ContractState) -> str:
    """Return BUDGET_STATE: one line, and a second one if a slot is current."""
    whole = [_left(state, state.budget.whole, name, word) for word, _, name in GLOBAL_LINES]
    if state.is_wrapup_round:
        whole.append("wrapup active")
    elif state.allow_exploit_overdraft:
        whole.append(f"exploit_overdraft {state.exploit_overdraft_used}/{state.exploit_overdraft_total}")
    lines = [f"BUDGET_STATE: global({', '.join(whole)})"]
    stage = state.budget.stages.get(state.focus_slot or "")
    if stage is not None:
        parts = ", ".join(_left(state, stage, name, name) for name in STAGE_NAMES)
        lines.append(f"        stage[{state.focus_slot}]({parts})")
    return "\n".join(lines)


def _left(state: ContractState, level: GlobalBudget | StageBudget, name: str, word: str) -> str:
    left = 0 if state.is_wrapup_round else level.left(name)
    return f"{word} left {left}/{getattr(level, f'max_{name}')}"


def artifacts(state: ContractState) -> tuple[ArtifactRow, ...]:
    """Return the registry."""
    return tuple(
        ArtifactRow(name=name, kind=made.kind, error=made.error, slot=made.slot)
        for name, made in state.artifacts.items()
    )


def block(fact: Fact) -> Block | None:
    """Return the block of a fact; of a tool's result the beginning, and the whole for a prompt that shows it."""
    if isinstance(fact, ToolReported):
        return words.result(fact, {name: part_of(fact.value, fact.outputs, name) for name in fact.outputs})
    return words.block(fact)
