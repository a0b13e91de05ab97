"""How a poll reads for people."""

from collections.abc import Sequence
from typing import Any

from runs.engine.presentation import (
    Call,
    Choice,
    Form,
    Meter,
    Panel,
    PanelRow,
    Presentation,
    Reads,
    Said,
    Told,
    Whole,
    panel_of,
)

from .state import PollState


def _cast(fact: dict[str, Any]) -> Said:
    call = Call(fact["tool"], fact["args"]) if fact["tool"] else None
    title = "Looks up first" if call else f"Votes {fact['answer']}"
    return Said(title, fact["because"], icon="thought", tone="think", level="turn", call=call)


def _counted(fact: dict[str, Any]) -> Said:
    return Said("Counted", ", ".join(f"{number} for {answer}" for answer, number in fact["votes"].items()))


def _panel(state: PollState, told: Sequence[Told], _lost: Any) -> dict[str, Any]:
    cast_at = {
        fact["answer"]: row.seq for row in told for fact in row.facts if fact["kind"] == "poll.vote.cast"
    }
    return panel_of(
        f"{state.cast} of {state.settings.votes} votes cast",
        rows=[
            PanelRow(f"Answer {answer}", "done", f"votes: {number}", seq=cast_at.get(answer))
            for answer, number in state.votes.items()
        ],
        meters=[Meter("Votes", state.cast, state.settings.votes, advisory=True)],
    )


PRESENTATION = Presentation(
    facts={
        "poll.vote.cast": Reads(_cast, reply=True, said="because"),
        "poll.vote.void": Reads(
            lambda fact: Said("Vote void", fact["message"], icon="alert", tone="warn", level="turn")
        ),
        "poll.counted": Reads(_counted),
    },
    exits={"poll_tied": "the votes are tied"},
    panel=Panel("The poll", ("poll.vote.cast",), _panel),
    form=Form(
        "The poll",
        "How many votes the model casts, and what a tie means.",
        (
            Whole("votes", "Votes", least=1, placeholder="3"),
            Whole("lookups", "Look-ups", placeholder="2"),
            Choice("tie", "At a tie", (("", "The first answer wins"), ("nobody", "No answer wins"))),
        ),
    ),
)
