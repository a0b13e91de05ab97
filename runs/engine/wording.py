"""The words of questions that carry figures, and the figures as they are read from the words again.

A replay and the card of a question have only the words: they stand in the log. Figures have the digits of the words.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from runs.engine.effects import ModelReplied, Summarised

_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_TITLE = re.compile(rf"Limit reached: (\w+) {_NUMBER} of {_NUMBER}")
_ROOT = re.compile(r"The limit \w+ of run ([0-9]+) is ")
_LEFT = re.compile(rf"The next call may use more than the {_NUMBER} that are left")
_ASIDE = re.compile(rf"Of what counts, {_NUMBER} is set aside for calls under way in other runs\.")
_COST = re.compile(r"The next model call may cost \$([0-9]+\.[0-9]+)\. Go on\?")
_REPLAYED = re.compile(r"Replayed up to row [0-9]+ of run [0-9]+; it was to go no further\.")
_COST_ROUNDED = 4e-5
"""US dollars that the four digits of a cost may have lost."""


RULES_CHANGED = "The site's rules changed after this call was allowed."
"""Why a question comes about a call that had been let pass."""


def lapsed(verdict: str, by: str, channel: str) -> str:
    """Why a question is asked anew that was answered."""
    did = {"resume": "Resumed", "top_up": "The limit was raised"}.get(verdict, "Approved")
    if channel == "settings":
        return f"{did} by an answer given at launch, which may not answer this."
    return f"{did} by {by}, who may no longer decide."


def lost_in_a_row(times: int, faults: int) -> str:
    """How many workers in a row left a run without a move; `faults` of them met a fault of our own code."""
    if not faults:
        return f"{times} workers in a row stopped while they drove this run."
    lost = times - faults
    stopped = f"{lost} worker{'s' if lost > 1 else ''} stopped"
    return f"{stopped} and {faults} met a fault while they drove this run."


class LimitTold(NamedTuple):
    """A limit as a question tells it, in the limit's own unit."""

    name: str
    used: float
    limit: float
    root: int = 0
    """The run whose limit it is, where others count in it; else 0."""
    left: float | None = None
    """What is left, where that is too little for the next call; None where the limit is reached."""
    aside: float = 0.0
    """What of `used` was only set aside, for calls under way in other runs."""


def at_limit(name: str, used: float, limit: float, root: int, aside: float = 0.0) -> tuple[str, str]:
    """Title and reason of the question at a limit."""
    why = f"The run's limit {name} is {limit:g}."
    if root:
        why = f"The limit {name} of run {root} is {limit:g}, for it and all that came from it."
    if aside > 0:
        why = f"{why} Of what counts, {aside:g} is set aside for calls under way in other runs."
    if used < limit:
        why = f"{why} The next call may use more than the {limit - used:g} that are left."
    return f"Limit reached: {name} {used:g} of {limit:g}", why


def limit_told(title: str, why: str = "") -> LimitTold | None:
    """What the words of `at_limit` tell; None where they are other words."""
    if (found := _TITLE.fullmatch(title)) is None:
        return None
    root, left, aside = _ROOT.search(why), _LEFT.search(why), _ASIDE.search(why)
    return LimitTold(
        name=found[1],
        used=float(found[2]),
        limit=float(found[3]),
        root=int(root[1]) if root else 0,
        left=float(left[1]) if left else None,
        aside=float(aside[1]) if aside else 0.0,
    )


def at_cost(usd: float) -> str:
    """Title of the question before a call that may cost so much."""
    return f"The next model call may cost ${usd:.4f}. Go on?"


def cost_told(title: str) -> float:
    """What the words of `at_cost` tell, no less than was meant; 0 where they are other words."""
    found = _COST.fullmatch(title)
    return float(found[1]) + _COST_ROUNDED if found else 0.0


def unended(answer: ModelReplied | Summarised) -> str:
    """How a reply ended that did not end in order."""
    match answer.ended:
        case "length":
            used = answer.usage.output_tokens
            only = " It held only reasoning." if not answer.text.strip() and answer.reasoning else ""
            return f"The reply was cut off at its limit{f' of {used} tokens' if used else ''}.{only}"
        case "content_filter":
            return "The provider's content filter stopped the reply."
    return "The provider ended the reply with an error."


def unended_told(replied: ModelReplied) -> str:
    """The same for the model, which is asked again."""
    cure = "Reply again, and shorter." if replied.ended == "length" else "Reply again, in other words."
    return f"{unended(replied)} Nothing of it was read. {cure}"


def unended_for_good(replied: ModelReplied, *, limited: bool) -> str:
    """The same at the end of a run, with what a person can do. `limited`: a limit of the run cut the reply short."""
    match replied.ended:
        case "length" if limited:
            cure = "Raise the run's limits on cost and tokens, then run it again."
        case "length":
            cure = "Raise max output tokens in the model's profile, or ask for less at once."
        case "content_filter":
            cure = "Change the goal or the model."
        case _:
            cure = "Try again later, or choose another model."
    times = "Three times in a row." if replied.ended == "error" else "Twice in a row."
    return f"{unended(replied)} {times} {cure}"


def replayed(last: int, run: int) -> str:
    """Why a replay ends whose record had not ended at its last row."""
    return f"Replayed up to row {last} of run {run}; it was to go no further."


def is_replayed(message: str) -> bool:
    """Whether these are the words of `replayed`."""
    return _REPLAYED.fullmatch(message) is not None
