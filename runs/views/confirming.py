"""What a page told before a deed must be so still when it is confirmed; else nothing is done, and it is told anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import transaction

from runs.models import Run
from runs.reading.again import Again, again
from runs.store import for_people
from runs.store.log import lock

T = TypeVar("T")


class ToldOtherwise(Exception):
    """What was told before the deed is not so any more."""

    def __init__(self, run: Run) -> None:
        self.sentence = (
            f"The steps of #{run.pk} after that one have changed since you looked. Read them again, then confirm. "
            "What you typed is kept. If they keep changing, pause the run first."
        )
        super().__init__(self.sentence)


@for_people
@transaction.atomic
def as_told(run: Run, at: int, seen: str, mark: Callable[[Again], str], deed: Callable[[], T]) -> T:
    """What the deed gives; taken back where what is told of row `at` has another mark than the one that was seen.

    So it is refused for other reasons first, and no call begins between what is told and the deed.
    """
    lock(run.pk)
    now = mark(again(run, at))
    done = deed()
    if now != seen:
        raise ToldOtherwise(run)
    return done
