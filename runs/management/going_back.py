"""What the commands that go back to a row, or on from it, say of what came after it."""

from __future__ import annotations

from runs.reading.again import Again, LostChange
from runs.reading.inspector import OutsideEffect


def told_of_going_back(found: Again, to: int) -> str:
    """What stays done, what counts no more, and what going on is likely to cost, when a run goes back to row `to`.

    Empty where nothing stays done, and nothing that people did is lost.
    """
    lines = []
    if found.outside:
        lines.append(f"These were done after row {to}. They stay done, and may be done again:")
        lines += [f"  {_told(one)}" for one in found.outside]
    if found.lost:
        lines.append(f"What people did to the context after row {to} counts no more:")
        lines += map(told_of_lost, found.lost)
    return "\n".join([*lines, found.likely]) if lines else ""


def told_of_lost(change: LostChange) -> str:
    """One change to the context, on a line of a list."""
    return f"  {change.line.plain} (row {change.seq})"


def _told(effect: OutsideEffect) -> str:
    child = f" of the child run {effect.run.pk}" if effect.of_child else ""
    doubt = "" if effect.certain else " (it may have happened)"
    return f"{effect.effects.text} {effect.code} in row {effect.seq}{child}{doubt}"
