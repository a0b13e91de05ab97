"""What the commands that take a run back say of what was done after the row."""

from __future__ import annotations

from runs.reading.again import Again


def told_of_staying(done: Again, to: int) -> str:
    """What stays done when a run goes back to row `to`, and what going on from there is likely to cost."""
    effects = (
        f"  {one.effects.text} {one.code} in row {one.seq}{'' if one.certain else ' (it may have happened)'}"
        for one in done.outside
    )
    first = f"These were done after row {to}. They stay done, and may be done again:"
    return "\n".join([first, *effects, done.likely])
