"""The differing places of two runs, with the equal steps between them."""

from __future__ import annotations

from dataclasses import dataclass

from runs.reading import words
from runs.reading.comparing import Comparison, Place, Total
from runs.reading.comparing_words.numbers import signed
from runs.reading.comparing_words.values import ValueView, value_view
from runs.reading.differences import differences_of
from runs.reading.outlines import Outline, StepText, step_texts
from runs.reading.phrases import Line

PLACES = 40
"""Differing places on one page."""

BESIDE = 12
"""Steps of only one run, shown in one place."""

FOLDED = 8
"""Equal steps named in one fold; and folds that name theirs."""
FOLDS = 20

VALUES = 24
"""Differing values shown of one step."""

SIGNS = {
    "same": words.Word("the same", "check", "quiet"),
    "differs": words.Word("{names}", "pen", "ask"),
    "instead": words.Word("in place of each other", "pen", "ask"),
    "left": words.Word("only in #{left}", "plus", "call"),
    "right": words.Word("only in #{right}", "plus", "think"),
}


@dataclass(frozen=True)
class StepView:
    """One run's step in a place."""

    seq: int
    asked: Line | None
    said: Line
    took: str
    tokens: str
    cost: str


@dataclass(frozen=True)
class PlaceView:
    """A place that differs."""

    number: int
    kind: str
    sign: words.Word
    left: tuple[StepView, ...]
    right: tuple[StepView, ...]
    left_more: int
    right_more: int
    values: tuple[ValueView, ...] = ()
    values_more: int = 0
    difference: str = ""
    """How much more, or less, it cost in the right run."""


@dataclass(frozen=True)
class FoldView:
    """Equal steps; the first of them in words."""

    count: str
    left_rows: str
    right_rows: str
    left_seq: int
    right_seq: int
    steps: tuple[tuple[int, int, Line], ...]
    more: int
    difference: str


def place_views(found: Comparison, start: int = 0, most: int = PLACES) -> list[FoldView | PlaceView]:
    """Return the places from the difference number `start` on (from 0), with the equal steps between them."""
    chosen = _chosen(found.places, start, most)
    texts = [
        step_texts(run, (step for place in chosen for step in _named(place, side)))
        for side, run in enumerate((found.left, found.right))
    ]
    views: list[FoldView | PlaceView] = []
    number, folds = start, 0
    for place in chosen:
        if place.kind == "same":
            views.append(_fold(place, texts[0] if folds < FOLDS else {}))
            folds += 1
        else:
            number += 1
            views.append(_place(found, place, number, texts[0], texts[1]))
    return views


def _chosen(places: tuple[Place, ...], start: int, most: int) -> list[Place]:
    """Return so many differing places, and the equal steps before, between and after them."""
    chosen: list[Place] = []
    number = 0
    for place in places:
        differs = place.kind != "same"
        if differs and number >= start + most:
            break
        if number >= start or (not differs and number == start):
            chosen.append(place)
        number += differs
    return chosen


def _named(place: Place, side: int) -> tuple[Outline, ...]:
    steps = place.right if side else place.left
    if place.kind == "same":
        return () if side else steps[:FOLDED]
    return steps[:BESIDE]


def _fold(place: Place, texts: dict[int, StepText]) -> FoldView:
    named = [(step, texts.get(step.rows[-1])) for step in place.left[:FOLDED]]
    steps = tuple(
        (step.rows[-1], other.rows[-1], text.said if text.said.level != "all" else text.asked or text.said)
        for (step, text), other in zip(named, place.right, strict=False)
        if text is not None
    )
    return FoldView(
        words.plural(len(place.left), "step"),
        _rows(place.left),
        _rows(place.right),
        place.left[0].rows[0],
        place.right[0].rows[0],
        steps,
        len(place.left) - len(steps),
        _spent_more(place),
    )


def _rows(steps: tuple[Outline, ...]) -> str:
    first, last = steps[0].rows[0], steps[-1].rows[-1]
    return f"step {first}" if first == last else f"steps {first}–{last}"


def _place(
    found: Comparison, place: Place, number: int, ours: dict[int, StepText], theirs: dict[int, StepText]
) -> PlaceView:
    values: list[ValueView] = []
    more = 0
    if place.kind == "differs":
        left, right = ours[place.left[0].rows[-1]], theirs[place.right[0].rows[-1]]
        differing = differences_of(left.content, right.content, found.left.machine)
        values = [value_view(one) for one in differing[:VALUES]]
        more = max(0, len(differing) - VALUES)
    kind = place.kind if place.kind == "differs" else _one_sided(place)
    word = SIGNS[kind]
    text = word.text.format(left=found.left.pk, right=found.right.pk, names=_listed(values, more))
    sign = words.Word(text, word.icon, word.tone)
    return PlaceView(
        number,
        kind,
        sign,
        tuple(_step(step, ours) for step in place.left[:BESIDE]),
        tuple(_step(step, theirs) for step in place.right[:BESIDE]),
        max(0, len(place.left) - BESIDE),
        max(0, len(place.right) - BESIDE),
        tuple(values),
        more,
        _spent_more(place) if place.left and place.right else "",
    )


def _listed(values: list[ValueView], more: int) -> str:
    """Return the differing values, by name: three names at most."""
    names = [value.name for value in values]
    rest = len(names) - 3 + more
    if rest > 1:
        return f"{', '.join(names[:3])} and {rest} more differ"
    return (
        f"{', '.join(names[:-1])} and {names[-1]} differ" if len(names) > 1 else f"{''.join(names)} differs"
    )


def _one_sided(place: Place) -> str:
    if place.left and place.right:
        return "instead"
    return "left" if place.left else "right"


def _step(step: Outline, texts: dict[int, StepText]) -> StepView:
    text = texts[step.rows[-1]]
    return StepView(
        text.seq,
        text.asked,
        text.said,
        words.length_of(step.ms) if step.ms >= 0.5 else "",
        f"{step.tokens:,}" if step.tokens else "",
        words.money(step.cost_usd) if step.cost_usd else "",
    )


def _spent_more(place: Place) -> str:
    """Return how much more, or less, these steps cost and took in the right run: `+$0.002, −3.1 s`."""
    cost = sum(step.cost_usd for step in place.right) - sum(step.cost_usd for step in place.left)
    seconds = (sum(step.ms for step in place.right) - sum(step.ms for step in place.left)) / 1000
    parts = [signed(Total("cost_usd", 0, cost))] if abs(cost) >= 1e-6 else []
    if abs(seconds) >= 0.1:
        parts.append(signed(Total("active_seconds", 0, seconds)))
    return ", ".join(parts)
