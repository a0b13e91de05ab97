"""The summary of a comparison, in a few sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from runs.models import Run
from runs.reading import words
from runs.reading.comparing import Comparison, Total
from runs.reading.outlines import Outline, StepText, step_texts
from runs.reading.phrases import Line, quoted, short
from runs.reading.statuses import exit_of

PieceKind = Literal["", "code", "quote", "left", "right"]

Said = tuple[str | tuple[str, PieceKind], ...]
"""Words, with pieces of code among them."""

ORIGINS = {"fork": "a fork", "replay": "a replay", "rerun": "a rerun"}


@dataclass(frozen=True)
class Sentence:
    """A sentence of the summary, in pieces: words, code, and the numbers of the two runs."""

    pieces: tuple[tuple[str, PieceKind], ...]

    @property
    def plain(self) -> str:
        """The sentence as text."""
        return "".join(text for text, _ in self.pieces)


def summary_of(found: Comparison) -> list[Sentence]:
    """Return the summary's sentences."""
    said = [_course(found), *_parting(found), _answers(found), _endings(found), _sums(found)]
    left, right = f"#{found.left.pk}", f"#{found.right.pk}"
    return [Sentence(tuple(_pieces(sentence, left, right))) for sentence in said if sentence]


def _pieces(said: Said, left: str, right: str) -> Iterator[tuple[str, PieceKind]]:
    """Yield the words, split at the numbers of the runs."""
    for piece in said:
        if not isinstance(piece, str):
            yield piece
            continue
        for text in re.split(rf"({left}|{right})(?!\w)", piece):
            if text:
                yield text, "left" if text == left else "right" if text == right else ""


def _say(*pieces: str | tuple[str, PieceKind]) -> Said:
    return pieces


def _code(text: str) -> tuple[str, PieceKind]:
    return short(text, 120), "code"


def _course(found: Comparison) -> Said:
    left, right = found.left, found.right
    if not found.same_machine:
        return _say(
            f"#{left.pk} is a run of {left.machine}, #{right.pk} of {right.machine}. Only totals and answers "
            "can be compared."
        )
    if not found.places:
        return _say("Neither has taken a step yet.")
    if not found.apart:
        return _say(f"Step for step the same: all {words.plural(found.same_steps, 'step')}.")
    alike = words.plural(found.begins_alike, "step")
    begins = (
        f"The same for {alike}, then they differ"
        if found.begins_alike
        else "They differ from the first step on"
    )
    again = found.same_steps - found.begins_alike
    return _say(
        f"{begins}; {words.plural(again, 'later step')} the same again." if again > 1 else f"{begins}."
    )


def _parting(found: Comparison) -> list[Said]:
    """Return each run's action at their parting."""
    if not found.apart:
        return []
    place = found.apart[0]
    left = _first(found.left, place.left)
    right = _first(found.right, place.right)
    ours, theirs = f"#{found.left.pk}", f"#{found.right.pk}"
    if left and right:
        return [_both(ours, left, theirs, right)]
    there, other, what = (ours, theirs, left) if left else (theirs, ours, right)
    if what is None:
        return []
    ends = place is found.places[-1]
    before = f"{other} has no more steps; {there} continues: " if ends else f"Then only in {there}: "
    return [_say(before, *_deed(what), ".")]


def _first(run: Run, steps: tuple[Outline, ...]) -> StepText | None:
    if not steps:
        return None
    return step_texts(run, steps[:1]).get(steps[0].rows[-1])


def _both(ours: str, left: StepText, theirs: str, right: StepText) -> Said:
    if "call" in left.content and left.content["call"] == right.content.get("call"):
        return _say(
            "Then ",
            _code(left.call),
            " gave ",
            _quoted(left.said),
            f" in {ours}, and ",
            _quoted(right.said),
            f" in {theirs}.",
        )
    if left.call and left.call == right.call:
        return _say(
            "Both then want ",
            _code(left.call),
            f": {ours} with ",
            _quoted(left.said),
            f", {theirs} with ",
            _quoted(right.said),
            ".",
        )
    verb = "called" if "call" in left.content and "call" in right.content else "went for"
    if left.call and right.call:
        return _say(f"Then {ours} {verb} ", _code(left.call), f", and {theirs} ", _code(right.call), ".")
    return _say(f"Then {ours}: ", *_deed(left), f"; {theirs}: ", *_deed(right), ".")


def _deed(step: StepText) -> Said:
    if step.call:
        return (_code(step.call),)
    return (_quoted(step.said),)


def _quoted(line: Line) -> tuple[str, PieceKind]:
    """Return a step's line in one piece, whatever a model wrote into it."""
    title = line.title.lower() + (" (not run)" if line.not_run else "")
    if line.goes_on:
        text = short(line.text, 100)
        unclosed = text.count("“") > text.count("”")
        return f"{title} {text}{'”' if unclosed else ''}".strip(), "quote"
    text = line.text or line.code
    return (f"{title} {quoted(text, 100)}" if text else title), "quote"


def _answers(found: Comparison) -> Said:
    left, right = found.left, found.right
    match bool(left.answer), bool(right.answer):
        case True, True if found.same_answer:
            return _say("Both give the same answer.")
        case True, True:
            return _say("The answers differ.")
        case True, False:
            return _say(f"Only #{left.pk} has an answer.")
        case False, True:
            return _say(f"Only #{right.pk} has an answer.")
    return _say(
        "Neither has an answer." if left.finished and right.finished else "Neither has an answer yet."
    )


def _endings(found: Comparison) -> Said:
    left, right = found.left, found.right
    if (left.status, left.exit_reason) == (right.status, right.exit_reason):
        return _say()
    return _say(f"#{left.pk} {_ending(left)}; #{right.pk} {_ending(right)}.")


def _ending(run: Run) -> str:
    status = {
        "waiting": "waits for a person",
        "queued": "is queued",
        "running": "is still running",
        "paused": "is paused",
    }
    stopped = "was replayed" if run.replayed_only else "was stopped"
    told = status.get(run.status, {"cancelled": stopped}.get(run.status, run.status))
    return f"{told}: {exit_of(run)}" if run.exit_reason else told


def _sums(found: Comparison) -> Said:
    """Return how much more, or less, the right run used."""
    totals = {total.name: total for total in found.totals}
    tokens = totals["input_tokens"].difference + totals["output_tokens"].difference
    parts = [
        _more("cost", words.money(abs(totals["cost_usd"].difference)), totals["cost_usd"].difference),
        _more("used", f"{abs(tokens):,.0f} tokens", tokens),
        _more(
            "took", words.seconds(abs(totals["active_seconds"].difference)), _felt(totals["active_seconds"])
        ),
    ]
    said = [part for part in parts if part]
    if not said:
        return _say("Cost, tokens and time are the same.")
    listed = f"{', '.join(said[:-1])} and {said[-1]}" if len(said) > 1 else said[0]
    return _say(f"#{found.right.pk} {listed}.")


def _felt(total: Total) -> float:
    """Return the difference, or 0 below a tenth of a second, which people don't notice."""
    return total.difference if abs(total.difference) >= 0.05 else 0


def _more(verb: str, amount: str, difference: float) -> str:
    if abs(difference) < 1e-9:
        return ""
    return f"{verb} {amount} {'more' if difference > 0 else 'less'}"


def relation_of(left: Run, right: Run) -> str:
    """Return how one run came from the other, if it did."""
    for copy, source in ((left, right), (right, left)):
        if copy.copied_from_id == source.pk:
            at = f", taken at step {copy.copied_upto}" if copy.copied_upto else ""
            return f"#{copy.pk} is {ORIGINS.get(copy.origin, 'a copy')} of #{source.pk}{at}."
    if left.copied_from_id and left.copied_from_id == right.copied_from_id:
        return f"Both are copies of #{left.copied_from_id}."
    return ""
