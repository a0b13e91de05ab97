"""The three nodes: ask for a vote, look something up, count."""

from typing import Any

from pydantic import ConfigDict

from runs.engine.effects import (
    Answer,
    ChildFinished,
    Failed,
    ModelCall,
    ModelReplied,
    ToolReturned,
)
from runs.engine.facts import Answered, Exited, ToolCalled, ToolReported
from runs.engine.kernel import UnexpectedAnswer
from runs.engine.moves import Ask, Go
from runs.engine.reply import Unread, read
from runs.engine.reporting import reported
from runs.engine.tools import inspect_call
from runs.engine.values import Value

from .facts import PollCounted, VoteCast, VoteVoid
from .state import PollState


class VoteReply(Value):
    """What the model is asked to say; other names are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    answer: str
    because: str = ""
    tool: str = ""
    args: dict[str, Any] = {}


def vote(state: PollState, answer: Answer | None) -> Ask | Go:
    """Ask the model for its vote."""
    match answer:
        case None:
            return Ask(ModelCall(role="decision", reply="vote"))
        case ModelReplied():
            found = read(answer, VoteReply, lambda reply: not reply.tool)
            if isinstance(found, Unread):
                return Go("cast", (VoteVoid(message=found.why), *found.notices))
            reply = found.reply
            wants = reply.tool if state.lookups < state.settings.lookups else ""
            args = reply.args if wants else {}
            cast = VoteCast(answer=reply.answer, because=reply.because, tool=wants, args=args)
            return Go("look" if wants else "cast", (cast, *found.notices))
    raise UnexpectedAnswer("vote", answer)


def look(state: PollState, answer: Answer | None) -> Ask | Go:
    """Make the call that the vote wants."""
    match answer:
        case None:
            return _called(state)
        case ToolReturned() | ChildFinished() | Failed():
            return Go("done", (reported(state.tool, answer),))
    raise UnexpectedAnswer("look", answer)


def _called(state: PollState) -> Ask | Go:
    call = inspect_call(state.terms.tools, state.tool, state.args)
    if call.flaws or call.spec is None:
        error = " ".join(flaw.message for flaw in call.flaws)
        return Go("done", (ToolReported(tool=state.tool, error=error, ran=False),))
    spec, called = call.spec, ToolCalled(tool=state.tool, args=call.args)
    return Ask(spec.effect_with(call.args), (called,))


def count(state: PollState, answer: Answer | None) -> Go:
    """Count, and see whether the poll is over."""
    if answer is not None:
        raise UnexpectedAnswer("count", answer)
    counted = PollCounted(votes=state.votes)
    if state.cast < state.settings.votes:
        return Go("more", (counted,))
    leaders = state.leaders
    if not leaders or (len(leaders) > 1 and state.settings.tie == "nobody"):
        return Go("tied", (counted, Exited(reason="poll_tied")))
    return Go("settled", (counted, Answered(text=leaders[0]), Exited(reason="complete")))
