"""The facts of `ruled`."""

from __future__ import annotations

from typing import Any, Literal

from runs.engine.facts import Fact


class Thought(Fact):
    """The model's reply, read: a draft that has not been validated."""

    kind: Literal["react.decision"] = "react.decision"
    thought: str
    tool: str | None = None
    args: dict[str, Any] = {}
    cached: bool = False


class ReplyUnread(Fact):
    """An unreadable thought; the raw text is on the exchange."""

    kind: Literal["ruled.reply.unread"] = "ruled.reply.unread"
    message: str


class DraftPassed(Fact):
    """The draft broke no rule."""

    kind: Literal["ruled.draft.passed"] = "ruled.draft.passed"


class DraftRejected(Fact):
    """The draft broke rules: it is in the log, and does not count as a step."""

    kind: Literal["ruled.draft.rejected"] = "ruled.draft.rejected"
    rules: tuple[str, ...]
    reason: str


class DraftApproved(Fact):
    """A person let a rule-breaking draft act."""

    kind: Literal["ruled.draft.approved"] = "ruled.draft.approved"
    by: str
    message: str = ""


class DraftReturned(Fact):
    """A person sent the draft back, with a message for the model."""

    kind: Literal["ruled.draft.returned"] = "ruled.draft.returned"
    by: str
    message: str


class RuleBroken(Fact):
    """A terminal rule ends the run."""

    kind: Literal["ruled.rule.broken"] = "ruled.rule.broken"
    rule: str
    message: str


class SubgraphMerged(Fact):
    """A fixed subgraph has run: the parent's metadata takes over its values under new names."""

    kind: Literal["ruled.subgraph.merged"] = "ruled.subgraph.merged"
    name: str
    metadata: dict[str, Any] = {}
    error: str | None = None
    ran: bool = True


class StepObserved(Fact):
    """The result of the step's action."""

    kind: Literal["ruled.step.observed"] = "ruled.step.observed"
    status: Literal["executed", "failed"]


class StepCommitted(Fact):
    """The step counts."""

    kind: Literal["ruled.step.committed"] = "ruled.step.committed"
    number: int
