"""What every action needs: who acts, whether they may, and the announcement after the commit."""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction

from runs import hints, live
from runs.engine.values import clean_text
from runs.models import Run
from runs.rights import OPERATOR, Person, may_steer
from runs.store.errors import NotPossible, ToldOtherwise


class NotAllowed(Exception):
    """The person may not do that."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)


MAX_NOTE = 500
"""Characters of a note that stands in the log."""


class TooLong(NotPossible):
    """A text that has more characters than are kept; nothing was done."""

    def __init__(self, text: str, most: int) -> None:
        super().__init__(
            f"A reason has at most {most} characters; this one has {len(text)}; nothing was done."
        )


def note_of(text: str) -> str:
    """The note as it is kept; `TooLong`."""
    note = clean_text(text)
    if len(note) > MAX_NOTE:
        raise TooLong(note, MAX_NOTE)
    return note


def name_of(person: Person) -> str:
    """How rows name whoever did something."""
    return OPERATOR if person is None else person.get_username()


def check_steering(person: Person, run: Run) -> None:
    """`NotAllowed` where the run is not the person's to steer."""
    if not may_steer(person, run):
        raise NotAllowed(f"Run {run.pk} is not yours to steer.")


def as_told(seen: str | None, mark: Callable[[Run, int], str], at: int) -> Callable[[Run], None]:
    """Return the check that what was told of row `at` still holds; `seen` is its mark, None where nothing was told."""

    def check(run: Run) -> None:
        if seen is not None and mark(run, at) != seen:
            raise ToldOtherwise(run.pk)

    return check


def tell(run_id: int) -> None:
    """Viewers and workers look again, once the change is committed."""

    def announce() -> None:
        live.ring(run_id, 0)
        live.ring_inbox()
        hints.hint(run_id)

    transaction.on_commit(announce)


def tell_all(run_ids: list[int]) -> None:
    """Whoever looks at one of these sees that something about it has changed."""

    def announce() -> None:
        for run_id in run_ids:
            live.ring(run_id, 0)
        live.ring_inbox()

    transaction.on_commit(announce)
