"""The conclusions that `checklist` draws."""

from __future__ import annotations

from typing import Any, Literal

from runs.engine.facts import Fact
from runs.engine.values import Json, Value
from runs.machines.checklist.settings import Status


class DecisionMade(Fact):
    """A reply of the model, as far as it can be read. `accepted` is false where it is a violation."""

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
    """The steps of the run; none where the model's plan could not be used, and `why` says why."""

    kind: Literal["react.plan"] = "react.plan"
    source: Literal["form", "model"]
    steps: tuple[str, ...]
    why: str = ""


class Mark(Value):
    """One step of the plan that was acknowledged."""

    number: int
    status: Status


class PlanAcknowledged(Fact):
    """Steps that another status was noted for."""

    kind: Literal["react.plan.ack"] = "react.plan.ack"
    marks: tuple[Mark, ...]


class InfraAnswered(Fact):
    """What came of a call of an infra tool."""

    kind: Literal["react.infra.result"] = "react.infra.result"
    tool: str
    value: Json = None
    error: str | None = None
