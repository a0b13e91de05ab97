"""What the commands that go back to a row, or on from it, say of what came after it, and whom they obey."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from runs import actions
from runs.management.asking import bad_input
from runs.reading.inspector import OutsideEffect
from runs.reading.rollback import Again, LostChange

GO_BACK = "roll back. Nothing was changed."
BEGIN_AGAIN = "start the new run. None was started."
"""What --sure is for, and what has not been done without it."""


def told_of_going_back(found: Again, to: int) -> str:
    """What stays done, what counts no more, and what going on is likely to cost, when a run goes back to row `to`.

    Empty where nothing stays done, and nothing that people did is lost.
    """
    lines = _told_outside(found, to)
    if found.lost:
        lines.append(f"Changes to the context after step {to} are rolled back:")
        lines += map(told_of_lost, found.lost)
    return "\n".join([*lines, found.likely]) if lines else ""


def told_of_beginning_again(found: Again, at: int) -> str:
    """What stays done, and what going on is likely to cost, when a new run begins at row `at`.

    Empty where nothing was done after it, as far as is known. What people did is not lost: the old run stays as it is.
    """
    lines = _told_outside(found, at)
    return "\n".join([*lines, found.likely]) if lines else ""


def check_sure(told: str, deed: str, options: dict[str, Any]) -> None:
    """What has to be told first is done only for who says --sure; `deed` is what that is for, and what was not done."""
    if told and not options["sure"]:
        raise bad_input(f"{told}\nSay --sure with it to {deed}")


@contextmanager
def told_first(told: str, seen: str, deed: str, options: dict[str, Any]) -> Iterator[str | None]:
    """Give the mark to act by, and say what has to be told only where nothing else refuses the deed.

    It is `seen`, the mark of what is told; none with --sure. Where something has to be told, no deed takes it.
    """
    try:
        yield None if options["sure"] else "" if told else seen
    except actions.ToldOtherwise:
        check_sure(told, deed, options)
        raise


def told_of_lost(change: LostChange) -> str:
    """One change to the context, on a line of a list."""
    return f"  {change.line.plain} (step {change.seq})"


def _told_outside(found: Again, after: int) -> list[str]:
    lines = [found.unknown] if found.unknown else []
    if found.outside:
        lines.append(f"Side effects after step {after} stay, and may be repeated:")
        lines += [f"  {_told(one)}" for one in found.outside]
    return lines


def _told(effect: OutsideEffect) -> str:
    child = f" of the child run {effect.run.pk}" if effect.of_child else ""
    doubt = "" if effect.certain else " (may have happened)"
    return f"{effect.effects.text} {effect.code} in step {effect.seq}{child}{doubt}"
