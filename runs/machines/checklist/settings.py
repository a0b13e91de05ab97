"""The settings of `checklist`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from runs.engine.settings import MOST_ROUNDS, Settings, plan_flaw

Strategy = Literal["explore", "exploit"]


Status = Literal["pending", "done", "failed"]


class ChecklistSettings(Settings):
    plan: tuple[str, ...] = ()
    planner: Literal["model"] | None = None
    plan_gate: bool = True
    exploration_budget: int = Field(default=3, ge=0, le=MOST_ROUNDS)
    exploitation_budget: int = Field(default=3, ge=0, le=MOST_ROUNDS)
    max_iterations: int | None = Field(default=None, ge=0, le=MOST_ROUNDS)
    max_consecutive_violations: int = Field(default=2, ge=0, le=MOST_ROUNDS)

    @field_validator("plan")
    @classmethod
    def _says_something(cls, plan: tuple[str, ...]) -> tuple[str, ...]:
        for number, text in enumerate(plan, 1):
            if not text.strip():
                raise ValueError(
                    f"step {number} of the plan is empty; say what is to be done, or leave it out"
                )
        if why := plan_flaw(plan):
            raise ValueError(why)
        return plan

    @property
    def iterations(self) -> int:
        """Return the most decisions that the run may take."""
        if self.max_iterations is not None:
            return self.max_iterations
        return max(2, self.exploration_budget + self.exploitation_budget + 2)
