"""The settings of `contract`: slots, hints, caps."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from runs.engine.settings import MOST_ROUNDS, Settings
from runs.engine.values import Value

SlotType = Literal["inline", "file"]
Depth = Literal["shallow", "medium", "deep"]


class Slot(Value):
    """A deliverable of the run."""

    id: str = Field(min_length=1, max_length=60)
    type: SlotType
    description: str = ""
    format: str = ""


class Hint(Value):
    """Rounds and reads for one slot; a given number always wins, and a negative one is 0."""

    explore: int | None = None
    exploit: int | None = None
    render: int | None = None
    ctx_reads: int | None = None


class Caps(Value):
    """Caps of the global budget that replace the derived ones."""

    max_decision_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_tool_calls: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_explore_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_exploit_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_render_rounds: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_decision_reruns: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_context_reads: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)


class ContractSettings(Settings):
    contract: tuple[Slot, ...] = ()
    hints: dict[str, Hint] = {}
    depth: Depth | None = None
    plan_shape: Literal["single_step", "single_deliverable", "multi_step"] | None = None
    """Only `multi_step` changes the budget."""
    coordinator: Literal["form", "model"] | None = None
    """`model`: a model call makes the contract, in place of the form."""
    budget: Caps = Caps()
    skills: dict[str, str] = {}

    @field_validator("contract")
    @classmethod
    def _named_once(cls, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        if twice := first_double([slot.id for slot in slots]):
            raise ValueError(f"two slots are called {twice}; give each a name of its own")
        return slots


def first_double(names: list[str]) -> str:
    """Return the first repeated name; empty if there is none."""
    return next((name for place, name in enumerate(names) if name in names[:place]), "")
