"""The conversation of turns that a run is in: the runs that it continues, and those that continue it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runs.models import Run
from runs.store import earlier_turns

MOST_LATER = 50
"""Later turns that are looked up."""


@dataclass(frozen=True)
class Turn:
    """One turn: its number in the conversation, and its run."""

    number: int
    run: int
    goal: str
    seen: bool
    """Whether the reader may see the run, and it is still there."""


@dataclass(frozen=True)
class Conversation:
    """The place of a run in its conversation."""

    number: int
    before: tuple[Turn, ...]
    after: tuple[Turn, ...]
    """Along the newest run that continues each."""
    beside: tuple[Run, ...]
    """Other runs that continue this one."""

    @property
    def total(self) -> int:
        """How many turns there are."""
        return self.number + len(self.after)


def conversation_of(run: Run, user: Any) -> Conversation | None:
    """Return the conversation of `run`, as `user` may see it; None where the run is alone."""
    visible = Run.objects.for_user(user)
    turns = earlier_turns(run)
    there = set(visible.filter(pk__in=[turn.run for turn in turns]).values_list("pk", flat=True))
    before = tuple(
        Turn(number, turn.run, turn.goal, turn.run in there) for number, turn in enumerate(turns, 1)
    )
    number = len(turns) + 1
    followers = list(visible.filter(continues=run).order_by("-pk")[:MOST_LATER])
    after: list[Turn] = []
    newest = followers[0] if followers else None
    while newest is not None and len(after) < MOST_LATER:
        after.append(Turn(number + len(after) + 1, newest.pk, newest.goal, seen=True))
        newest = visible.filter(continues=newest).order_by("-pk").first()
    if not before and not after:
        return None
    return Conversation(number, before, tuple(after), tuple(followers[1:]))
