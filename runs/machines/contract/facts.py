"""The facts of `contract` alone."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from runs.engine.artifacts import ArtifactDeclared
from runs.engine.facts import Fact
from runs.machines.contract.replies import Reply
from runs.machines.contract.settings import Depth, Hint, Slot


class ContractSet(Fact):
    """The coordinator's contract, and the sources of its budget."""

    kind: Literal["contract.set"] = "contract.set"
    slots: tuple[Slot, ...] = ()
    hints: dict[str, Hint] = {}
    depth: Depth | None = None
    plan_shape: str | None = None


class OverdraftGranted(Fact):
    """One more round beyond the caps, for exploiting."""

    kind: Literal["contract.overdraft.granted"] = "contract.overdraft.granted"
    number: int
    total: int


class DecisionMade(Reply, Fact):
    """The model's decision, read; charged outside wrap-up."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["react.decision"] = "react.decision"


class DecisionUnread(Fact):
    """An unreadable decision; the raw text is on the exchange, and the round is charged."""

    kind: Literal["contract.decision.unread"] = "contract.decision.unread"
    message: str


class RerunTaken(Fact):
    """One decision rerun is used."""

    kind: Literal["contract.rerun.taken"] = "contract.rerun.taken"


class ThingsShown(Fact):
    """A used context read: these are shown whole in the next decision's prompt."""

    kind: Literal["contract.shown"] = "contract.shown"
    artifacts: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class SlotMapped(Fact):
    """An artifact fills a slot: it leaves its earlier slot, and the slot's earlier artifact leaves this one."""

    kind: Literal["contract.slot.mapped"] = "contract.slot.mapped"
    slot: str
    artifact: str
    draft: bool = False
    gaps: str = ""


class ArtifactMade(ArtifactDeclared):
    """An artifact, or a new version of one, is in the registry."""

    kind: Literal["contract.artifact.made"] = "contract.artifact.made"


class ExitIntended(Fact):
    """The reason to end the run, if the router agrees."""

    kind: Literal["contract.exit.intended"] = "contract.exit.intended"
    reason: str


class WrapUpBegan(Fact):
    """One more turn, to fill the slots with existing artifacts; `reason` is restored after it."""

    kind: Literal["contract.wrapup.began"] = "contract.wrapup.began"
    reason: str


class ContractJudged(Fact):
    """The slots filled at the end."""

    kind: Literal["contract.judged"] = "contract.judged"
    filled: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()
