"""Shared parts of actions: the person, their right, and the notification after the commit."""

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
"""Characters of a note in the log."""


class TooLong(NotPossible):
    """A text has too many characters; nothing was done."""

    def __init__(self, text: str, most: int) -> None:
        super().__init__(
            f"A reason has at most {most} characters; this one has {len(text)}; nothing was done."
        )


def note_of(text: str) -> str:
    """Return the note as it is stored; raises `TooLong`."""
    note = clean_text(text)
    if len(note) > MAX_NOTE:
        raise TooLong(note, MAX_NOTE)
    return note


def name_of(person: Person) -> str:
    """Return the person's name for the log."""
    return OPERATOR if person is None else person.get_username()


def check_steering(person: Person, run: Run) -> None:
    """Raise `NotAllowed` if the person may not steer the run."""
    if not may_steer(person, run):
        raise NotAllowed(f"Run {run.pk} is not yours to steer.")


def as_told(seen: str | None, mark: Callable[[Run, int], str], at: int) -> Callable[[Run], None]:
    """Return the check that a page's account of step `at` still holds; `seen` is its mark, None if there was none."""

    def check(run: Run) -> None:
        if seen is not None and mark(run, at) != seen:
            raise ToldOtherwise(run.pk)

    return check


def tell(run_id: int) -> None:
    """Notify viewers and workers once the change is committed."""

    def announce() -> None:
        live.ring(run_id, 0)
        live.ring_inbox()
        hints.hint(run_id)

    transaction.on_commit(announce)


def tell_all(run_ids: list[int]) -> None:
    """Notify viewers of these runs of a change."""

    def announce() -> None:
        for run_id in run_ids:
            live.ring(run_id, 0)
        live.ring_inbox()

    transaction.on_commit(announce)
