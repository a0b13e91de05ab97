"""`poll`: asks the model several times, and the answer that most votes are for wins.

A machine that is no part of agentsite: all that it needs stands in this folder, which the tests copy elsewhere.
"""

from runs.engine.machine import COMMON_EXITS, END, Edge, Machine
from runs.engine.presentation import BudgetRow

from .facts import PollCounted, VoteCast, VoteVoid
from .nodes import count, look, vote
from .presentation import PRESENTATION
from .prompts import block, system
from .settings import PollSettings
from .state import PollState, evolve, open_state


def _budget(state: PollState) -> tuple[BudgetRow, ...]:
    settings = state.settings
    return (
        BudgetRow(scope="global", name="votes", used=state.cast, limit=settings.votes),
        BudgetRow(scope="global", name="lookups", used=state.lookups, limit=settings.lookups),
    )


POLL = Machine(
    name="poll",
    line="Asks the model several times; the answer with most votes wins.",
    start="vote",
    deciding="vote",
    nodes={"vote": vote, "look": look, "count": count},
    edges=(
        Edge("vote", "look", "look", "the vote wants to look something up first"),
        Edge("vote", "cast", "count"),
        Edge("look", "done", "vote"),
        Edge("count", "more", "vote"),
        Edge("count", "settled", END),
        Edge("count", "tied", END, "two answers have most votes, and a tie has no winner"),
    ),
    exit_reasons=("complete", "poll_tied", *COMMON_EXITS),
    settings=PollSettings,
    state=PollState,
    own_facts=(VoteCast, VoteVoid, PollCounted),
    open=open_state,
    evolve=evolve,
    turns=lambda state: state.cast,
    budget=_budget,
    budget_text=lambda state: f"BUDGET_STATE: votes {state.cast}/{state.settings.votes}",
    system=system,
    block=block,
    reply_schema=lambda name, state: None,
    presentation=PRESENTATION,
)
