"""The way of a run that counts: what its live rows asked, and the children that they called.

A child whose call was gone back over is no part of it, whatever it did and whoever decided in it. Rows that were copied
called their children in the run that they were copied from: these are the copy's as much as its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet

from runs.models import Run, Step
from runs.store import NotPossible, called_after


class Untold(NotPossible):
    """A run can't be told in the form that was wanted; `why` without a full stop."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The run can't be exported in this form: {why}. Export it as a test (pytest) instead."
        )


def live_asks(run: Run, after: int = 0) -> QuerySet[Step, int]:
    """The rows after row `after` that asked for something, and were not gone back over."""
    return run.steps.filter(seq__gt=after, live=True, kind=Step.Kind.ASK).values_list("seq", flat=True)


def called_by(run: Run) -> list[Run]:
    """The children that the run called on its way, in order; `Untold` where one is not kept any more."""
    called = called_after(run)
    calls = run.exchanges.filter(kind="child_run", seq__in=live_asks(run)).order_by("seq")
    seqs = list(calls.values_list("seq", flat=True))
    if lost := [seq for seq in seqs if seq not in called]:
        raise Untold(f"the child that step {lost[0]} of run {run.pk} called was deleted")
    return [called[seq] for seq in seqs]


def family(run: Run) -> Iterator[Run]:
    """The run, the children that it called on its way, and theirs."""
    yield run
    for child in called_by(run):
        yield from family(child)
