"""The conclusions that only `poll` draws."""

from typing import Any, Literal

from runs.engine.facts import Fact


class VoteCast(Fact):
    """One vote of the model, or what it wants to look up before."""

    kind: Literal["poll.vote.cast"] = "poll.vote.cast"
    answer: str
    because: str = ""
    tool: str = ""
    args: dict[str, Any] = {}


class VoteVoid(Fact):
    """A reply that is no vote; it counts as one that was cast."""

    kind: Literal["poll.vote.void"] = "poll.vote.void"
    message: str


class PollCounted(Fact):
    """How many votes each answer has."""

    kind: Literal["poll.counted"] = "poll.counted"
    votes: dict[str, int]
