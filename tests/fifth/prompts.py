"""What a poll's model is told."""

from runs.engine.facts import Fact
from runs.engine.machine import Block, Terms
from runs.engine.timeline import common_block

from .facts import VoteCast, VoteVoid


def system(terms: Terms) -> str:
    """Return the system text."""
    tools = ", ".join(spec.name for spec in terms.permitted()) or "none"
    return (
        'Reply with one JSON object: {"answer": "yes or no", "because": "why"}. '
        f'To look something up first, add "tool" and "args". Tools: {tools}.'
    )


def block(fact: Fact) -> Block | None:
    """Return how a fact reads; None where the model is not told."""
    match fact:
        case VoteCast(answer=answer, because=because):
            return Block(kind=fact.kind, author="agent", text=f"{answer}: {because}")
        case VoteVoid(message=why):
            return Block(kind=fact.kind, author="system", text=f"This vote is void: {why}")
    return common_block(fact)
