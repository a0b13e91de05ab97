"""What the commands that take a run back say of what was done after the row."""

from __future__ import annotations

from runs.reading.again import Again
from runs.reading.inspector import OutsideEffect


def told_of_staying(done: Again, to: int) -> str:
    """What stays done when a run goes back to row `to`, and what going on from there is likely to cost."""
    first = f"These were done after row {to}. They stay done, and may be done again:"
    return "\n".join([first, *(f"  {_told(one)}" for one in done.outside), done.likely])


def _told(effect: OutsideEffect) -> str:
    child = f" of the child run {effect.run.pk}" if effect.of_child else ""
    doubt = "" if effect.certain else " (it may have happened)"
    return f"{effect.effects.text} {effect.code} in row {effect.seq}{child}{doubt}"
