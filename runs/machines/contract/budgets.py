"""The two levels of budget, and a contract's share of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, Field

from runs.engine.values import Value
from runs.machines.contract.settings import Caps, Depth, Hint, Slot

Level = TypeVar("Level", bound=Value)

ROUNDS_WITHOUT_SLOTS = 12
LEAST_CONTEXT_READS = 3
RERUNS = 2


class GlobalBudget(Value):
    """The budget of the whole run. Rounds and calls gate; explore, exploit and render are advisory."""

    max_decision_rounds: int
    decision_rounds_used: int = 0
    max_tool_calls: int
    tool_calls_used: int = 0
    max_explore_rounds: int
    explore_rounds_used: int = 0
    max_exploit_rounds: int
    exploit_rounds_used: int = 0
    max_render_rounds: int
    render_rounds_used: int = 0
    max_decision_reruns: int = RERUNS
    decision_reruns_used: int = 0
    max_context_reads: int
    context_reads_used: int = 0

    def left(self, name: str) -> int:
        """Return the rest of a cap, by the name after `max_`; never below 0."""
        return max(0, int(getattr(self, f"max_{name}")) - int(getattr(self, f"{name}_used")))


class StageBudget(Value):
    """The advisory budget of one slot."""

    max_explore: int
    explore_used: int = 0
    max_exploit: int
    exploit_used: int = 0
    max_render: int
    render_used: int = 0
    max_context_reads: int
    context_reads_used: int = 0

    def left(self, name: str) -> int:
        """Return the rest of a cap, by the name after `max_`; never below 0."""
        return max(0, int(getattr(self, f"max_{name}")) - int(getattr(self, f"{name}_used")))


class BudgetState(Value):
    """The budget of the whole run, and of each slot."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, serialize_by_alias=True)
    whole: GlobalBudget = Field(alias="global")
    stages: dict[str, StageBudget] = {}


DERIVED: dict[Depth | None, Hint] = {
    None: Hint(explore=2, exploit=3, render=0, ctx_reads=0),
    "shallow": Hint(explore=1, exploit=2, render=1, ctx_reads=0),
    "medium": Hint(explore=2, exploit=3, render=2, ctx_reads=1),
    "deep": Hint(explore=3, exploit=4, render=2, ctx_reads=2),
}
"""Rounds and reads of a file slot by depth; an inline slot renders nothing."""


def derive(
    slots: Iterable[Slot], hints: Mapping[str, Hint], depth: Depth | None, plan_shape: str | None, caps: Caps
) -> BudgetState:
    """Return the budget of a contract (docs/machines.md, "contract")."""
    stages = {slot.id: _stage(slot, hints.get(slot.id, Hint()), depth, plan_shape) for slot in slots}
    explore = sum(stage.max_explore for stage in stages.values())
    exploit = sum(stage.max_exploit for stage in stages.values())
    render = sum(stage.max_render for stage in stages.values())
    reads = sum(stage.max_context_reads for stage in stages.values())
    rounds = explore + exploit + render or ROUNDS_WITHOUT_SLOTS
    whole = GlobalBudget(
        max_decision_rounds=rounds,
        max_tool_calls=rounds,
        max_explore_rounds=explore,
        max_exploit_rounds=exploit,
        max_render_rounds=render,
        max_context_reads=max(reads, LEAST_CONTEXT_READS),
    )
    given = {name: cap for name, cap in caps.model_dump().items() if cap is not None}
    return BudgetState(whole=whole.model_copy(update=given), stages=stages)


def _stage(slot: Slot, hint: Hint, depth: Depth | None, plan_shape: str | None) -> StageBudget:
    table = DERIVED[depth].model_dump()
    if slot.type == "inline":
        table["render"] = 0
    if plan_shape == "multi_step":
        table["exploit"] += 1
    table.update({name: max(0, number) for name, number in hint.model_dump().items() if number is not None})
    return StageBudget(
        max_explore=table["explore"],
        max_exploit=table["exploit"],
        max_render=table["render"],
        max_context_reads=table["ctx_reads"],
    )


def added(budget: BudgetState, slot: str | None, whole: Mapping[str, int], stage: Mapping[str, int]) -> Any:
    """Return the budget with these amounts added to the global one and to the stage of `slot`."""
    stages = budget.stages
    if slot in stages and stage:
        stages = {**stages, slot: _plus(stages[slot], stage)}
    return budget.model_copy(update={"whole": _plus(budget.whole, whole), "stages": stages})


def _plus(level: Level, amounts: Mapping[str, int]) -> Level:
    return level.model_copy(update={name: getattr(level, name) + amount for name, amount in amounts.items()})
