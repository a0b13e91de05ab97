"""The conversation of a run: the runs before it, and those that continue it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from runs.models import Run
from runs.store.continuing import earlier_runs

MOST_LATER = 50
"""Most later runs that are looked up."""


@dataclass(frozen=True)
class Member:
    """One run of a conversation, as the page names it."""

    run: int
    goal: str
    seen: bool
    """True if the reader may see the run, and it is still there."""


@dataclass(frozen=True)
class Conversation:
    """The place of a run in its conversation."""

    before: tuple[Member, ...]
    after: tuple[Member, ...]
    """Along the newest continuation of each."""
    beside: tuple[Run, ...]
    """Other continuations of this one."""

    @property
    def number(self) -> int:
        """Return the place of the run, counted from 1."""
        return len(self.before) + 1

    @property
    def total(self) -> int:
        """Return how many runs there are."""
        return self.number + len(self.after)


def conversation_of(run: Run, user: Any) -> Conversation | None:
    """Return the conversation of `run`, as `user` may see it; None if the run is alone."""
    visible = Run.objects.for_user(user)
    earlier = earlier_runs(run)
    there = set(visible.filter(pk__in=[one.run for one in earlier]).values_list("pk", flat=True))
    before = tuple(Member(one.run, one.goal, one.run in there) for one in earlier)
    followers = list(visible.filter(continues=run).order_by("-pk")[:MOST_LATER])
    after: list[Member] = []
    newest = followers[0] if followers else None
    while newest is not None and len(after) < MOST_LATER:
        after.append(Member(newest.pk, newest.goal, seen=True))
        newest = visible.filter(continues=newest).order_by("-pk").first()
    if not before and not after:
        return None
    return Conversation(before, tuple(after), tuple(followers[1:]))
