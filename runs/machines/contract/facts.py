"""The conclusions that only `contract` draws."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from runs.engine.artifacts import ArtifactDeclared
from runs.engine.facts import Fact
from runs.machines.contract.replies import Reply
from runs.machines.contract.settings import Depth, Hint, Slot


class ContractSet(Fact):
    """The coordinator's contract, and what its budget follows from."""

    kind: Literal["contract.set"] = "contract.set"
    slots: tuple[Slot, ...] = ()
    hints: dict[str, Hint] = {}
    depth: Depth | None = None
    plan_shape: str | None = None


class OverdraftGranted(Fact):
    """One more round, past the caps, for exploiting."""

    kind: Literal["contract.overdraft.granted"] = "contract.overdraft.granted"
    number: int
    total: int


class DecisionMade(Reply, Fact):
    """The model's decision, read; it is charged, but for the wrap-up round."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: Literal["react.decision"] = "react.decision"


class DecisionUnread(Fact):
    """A reply that is no decision; the raw text is on the exchange, and the round is charged."""

    kind: Literal["contract.decision.unread"] = "contract.decision.unread"
    message: str


class RerunTaken(Fact):
    """One decision rerun is used."""

    kind: Literal["contract.rerun.taken"] = "contract.rerun.taken"


class ThingsShown(Fact):
    """One context read is used: these are shown whole in the next decision's prompt."""

    kind: Literal["contract.shown"] = "contract.shown"
    artifacts: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class SlotMapped(Fact):
    """An artifact fills a slot; it leaves the one that it filled, and what was in this one leaves it."""

    kind: Literal["contract.slot.mapped"] = "contract.slot.mapped"
    slot: str
    artifact: str
    draft: bool = False
    gaps: str = ""


class ArtifactMade(ArtifactDeclared):
    """An artifact, or a new version of one, is in the registry."""

    kind: Literal["contract.artifact.made"] = "contract.artifact.made"


class ExitIntended(Fact):
    """Why the run should end, if the router agrees."""

    kind: Literal["contract.exit.intended"] = "contract.exit.intended"
    reason: str


class WrapUpBegan(Fact):
    """One more round, to put what was made into the slots; `reason` is restored after it."""

    kind: Literal["contract.wrapup.began"] = "contract.wrapup.began"
    reason: str


class ContractJudged(Fact):
    """Which slots are filled at the end."""

    kind: Literal["contract.judged"] = "contract.judged"
    filled: tuple[str, ...] = ()
    unfilled: tuple[str, ...] = ()
