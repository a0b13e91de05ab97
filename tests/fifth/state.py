"""The control state of a poll, and its fold."""

from typing import Any

from runs.engine.facts import CallEdited, Fact, ToolReported
from runs.engine.machine import State, Terms, evolve_common

from .facts import VoteCast, VoteVoid
from .settings import PollSettings


class PollState(State):
    """The votes so far, and the look-up at hand."""

    cast: int = 0
    lookups: int = 0
    votes: dict[str, int] = {}
    tool: str = ""
    args: dict[str, Any] = {}

    @property
    def settings(self) -> PollSettings:
        """The run's settings."""
        assert isinstance(self.terms.settings, PollSettings)
        return self.terms.settings

    @property
    def leaders(self) -> list[str]:
        """The answers that most votes are for."""
        most = max(self.votes.values(), default=0)
        return [answer for answer, number in self.votes.items() if number == most]


def open_state(terms: Terms) -> PollState:
    """Return the state before the first step."""
    return PollState(terms=terms)


def evolve(state: PollState, fact: Fact) -> State:
    """Fold a fact into the state."""
    match fact:
        case VoteCast(tool=tool, args=args) if tool:
            return state.model_copy(update={"tool": tool, "args": args, "lookups": state.lookups + 1})
        case VoteCast(answer=answer):
            votes = {**state.votes, answer: state.votes.get(answer, 0) + 1}
            return state.model_copy(update={"votes": votes, "cast": state.cast + 1})
        case VoteVoid():
            return state.model_copy(update={"cast": state.cast + 1})
        case CallEdited(args=args):
            return state.model_copy(update={"args": args})
        case ToolReported():
            return state.model_copy(update={"tool": "", "args": {}})
    return evolve_common(state, fact)
