"""Warnings of commands that roll back to a step, or go on from it, and their confirmation."""

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
"""The purpose of --sure, and the note that it was not done."""


def told_of_going_back(found: Again, to: int) -> str:
    """Return the lasting side effects, the lost changes and the likely cost of a rollback to step `to`.

    Empty if there are no side effects, and no changes by people are lost.
    """
    lines = _told_outside(found, to)
    if found.lost:
        lines.append(f"Changes to the context after step {to} are rolled back:")
        lines += map(told_of_lost, found.lost)
    return "\n".join([*lines, found.likely]) if lines else ""


def told_of_beginning_again(found: Again, at: int) -> str:
    """Return the lasting side effects and the likely cost of a new run from step `at`.

    Empty if there are no known side effects after it. People's changes are not lost: the old run stays as it is.
    """
    lines = _told_outside(found, at)
    return "\n".join([*lines, found.likely]) if lines else ""


def check_sure(told: str, deed: str, options: dict[str, Any]) -> None:
    """Require --sure if there is a warning `told`; `deed` names its purpose, and the action not done."""
    if told and not options["sure"]:
        raise bad_input(f"{told}\nAdd --sure to {deed}")


@contextmanager
def told_first(told: str, seen: str, deed: str, options: dict[str, Any]) -> Iterator[str | None]:
    """Yield the mark to act by, and print the warning only if nothing else refuses the action.

    `seen` is the mark of the warning. With --sure the mark is None; with a warning it is empty, and every action
    refuses it.
    """
    try:
        yield None if options["sure"] else "" if told else seen
    except actions.ToldOtherwise:
        check_sure(told, deed, options)
        raise


def told_of_lost(change: LostChange) -> str:
    """Return one change of the context, on a line of a list."""
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
