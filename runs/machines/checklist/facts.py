"""The facts of `checklist`."""

from __future__ import annotations

from typing import Any, Literal

from runs.engine.facts import Fact
from runs.engine.values import Json, Value
from runs.machines.checklist.settings import Status


class DecisionMade(Fact):
    """A reply of the model, as far as it can be read. `accepted` is false for a violation."""

    kind: Literal["react.decision"] = "react.decision"
    accepted: bool
    action: str = ""
    strategy: str = ""
    notes: str = ""
    tool: str = ""
    args: dict[str, Any] = {}
    summary: str = ""
    questions: tuple[str, ...] = ()


class PlanMade(Fact):
    """The steps of the run; none if the model's plan could not be used (`why` says why)."""

    kind: Literal["react.plan"] = "react.plan"
    source: Literal["form", "model"]
    steps: tuple[str, ...]
    why: str = ""


class Mark(Value):
    """An acknowledged step of the plan."""

    number: int
    status: Status


class PlanAcknowledged(Fact):
    """Steps with a newly noted status."""

    kind: Literal["react.plan.ack"] = "react.plan.ack"
    marks: tuple[Mark, ...]


class InfraAnswered(Fact):
    """The result of an infra call."""

    kind: Literal["react.infra.result"] = "react.infra.result"
    tool: str
    value: Json = None
    error: str | None = None
