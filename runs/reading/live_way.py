"""The way of a run that counts: what its live rows asked, and the children that they called.

A child whose call was gone back over is no part of it, whatever it did and whoever decided in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet

from runs.engine.effects import ANSWER, ChildFinished
from runs.models import Exchange, Run, Step


class Untold(Exception):
    """A run can't be told in the form that was wanted; `why` without a full stop."""

    def __init__(self, why: str) -> None:
        self.sentence = (
            f"The run can't be exported in this form: {why}. Export it as a test (pytest) instead."
        )
        super().__init__(self.sentence)


def live_asks(run: Run, after: int = 0) -> QuerySet[Step, int]:
    """The rows after row `after` that asked for something, and were not gone back over."""
    return run.steps.filter(seq__gt=after, live=True, kind=Step.Kind.ASK).values_list("seq", flat=True)


def called_by(run: Run) -> list[Run]:
    """The children that the run called on its way, in order; `Untold` where one is not kept any more."""
    own = {child.parent_seq: child for child in run.children.all()}
    calls = run.exchanges.filter(kind="child_run", seq__in=live_asks(run)).order_by("seq")
    return [own.get(call.seq) or _called_before_the_copy(run, call) for call in calls]


def _called_before_the_copy(run: Run, call: Exchange) -> Run:
    """The child of a row that was copied: it is one of the run's that the row was copied from."""
    finished = ANSWER.validate_json(call.answer_json) if call.answer_json else None
    child = Run.objects.filter(pk=finished.run).first() if isinstance(finished, ChildFinished) else None
    if child is None:
        raise Untold(f"the child that row {call.seq} of run {run.pk} called is not kept any more")
    return child


def family(run: Run) -> Iterator[Run]:
    """The run, the children that it called on its way, and theirs."""
    yield run
    for child in called_by(run):
        yield from family(child)
