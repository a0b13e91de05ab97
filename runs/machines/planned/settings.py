"""The settings of `planned`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from runs.engine.settings import MOST_ROUNDS, MOST_STEP_TEXT, Settings, plan_flaw
from runs.engine.tools import ToolSpec
from runs.engine.values import Value, canonical

FINAL = ToolSpec(
    name="final_answer",
    description="Gives the answer to the goal and ends the run.",
    parameters={
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "The answer, in full."}},
        "required": ["answer"],
    },
    effects="none",
)
"""Built in: the one tool whose success completes a run."""


class PlanRow(Value):
    """One step of a plan: the tool to call, its arguments, and the reason."""

    tool: str = Field(min_length=1)
    args: dict[str, Any] = {}
    thought: str = ""

    @property
    def text(self) -> str:
        """Return its whole text."""
        return f"{self.tool}{self.thought}{canonical(self.args) if self.args else ''}"


class PlannedSettings(Settings):
    """The settings of a `planned` run. Without `plan` the planner makes one."""

    plan: tuple[PlanRow, ...] | None = None
    plan_outline: str = Field(default="", max_length=MOST_STEP_TEXT)
    """Told with `plan`; without a plan, the planner is asked to follow it."""
    planner: Literal["model"] = "model"
    follow: Literal["model", "plan"] = "model"
    retry_buffer: int = Field(default=2, ge=0, le=MOST_ROUNDS)
    replan_failure_threshold: int = Field(default=2, ge=1, le=MOST_ROUNDS)
    max_replans: int = Field(default=3, ge=0, le=MOST_ROUNDS)

    @field_validator("plan")
    @classmethod
    def _not_too_long(cls, plan: tuple[PlanRow, ...] | None) -> tuple[PlanRow, ...] | None:
        if why := plan_flaw([row.text for row in plan or ()]):
            raise ValueError(why)
        return plan
