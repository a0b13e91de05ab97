"""A comparison as a reader sees it: a few sentences first, then numbers, terms, answers, and the places that differ."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from runs.models import Run
from runs.reading import words
from runs.reading.aligning import Piece, differing_words
from runs.reading.comparing import (
    MISSING,
    Comparison,
    Difference,
    Outline,
    Place,
    StepText,
    Total,
    differences_of,
    step_texts,
    visits_beside,
)
from runs.reading.lines import Line, short
from runs.reading.unseen import escaped

Data = dict[str, Any]
PieceKind = Literal["", "code", "quote", "left", "right"]

PLACES = 40
"""Places that differ, shown on one page."""

BESIDE = 12
"""Steps that only one run has, shown in one place."""

FOLDED = 8
"""Steps that are the same, named in one fold; and folds that name theirs."""
FOLDS = 20

VALUES = 24
"""Values that differ, shown of one step."""

CHARACTERS = 6000
"""Characters of a value that are shown; around what differs, where it is longer."""

SHORT = 60
"""Characters of a value that fits a line."""

AROUND = 160
"""Characters kept before and after it."""

ORIGINS = {"fork": "a fork", "replay": "a replay", "rerun": "a rerun"}

TOTALS = {
    "cost_usd": "Cost",
    "input_tokens": "Input tokens",
    "output_tokens": "Output tokens",
    "model_calls": "Model calls",
    "tool_calls": "Tool calls",
    "active_seconds": "Time at work",
    "elapsed": "From launch to end",
    "rows": "Rows",
    "dead_rows": "Rows gone back over",
}

SIGNS = {
    "same": words.Word("the same", "check", "quiet"),
    "differs": words.Word("{names}", "pen", "ask"),
    "instead": words.Word("in place of each other", "pen", "ask"),
    "left": words.Word("only in #{left}", "plus", "call"),
    "right": words.Word("only in #{right}", "plus", "think"),
}


@dataclass(frozen=True)
class Sentence:
    """A sentence of the summary, in pieces: words, code, and the numbers of the two runs."""

    pieces: tuple[tuple[str, PieceKind], ...]

    @property
    def plain(self) -> str:
        """The sentence as text."""
        return "".join(text for text, _ in self.pieces)


@dataclass(frozen=True)
class TotalView:
    """One number of both; the shares are per cent of the larger."""

    label: str
    left: str
    right: str
    difference: str
    left_share: float
    right_share: float


@dataclass(frozen=True)
class ValueView:
    """A value that differs, in pieces; `left_missing` where that run has none."""

    name: str
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    left_missing: bool = False
    right_missing: bool = False
    long: bool = False


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
    """What it cost more, or less, in the right run."""


@dataclass(frozen=True)
class FoldView:
    """Steps that are the same; the first of them in words."""

    count: str
    left_rows: str
    right_rows: str
    left_seq: int
    right_seq: int
    steps: tuple[tuple[int, int, Line], ...]
    more: int
    difference: str


# --- sentences ----------------------------------------------------------------------------------------------------


def summary_of(found: Comparison) -> list[Sentence]:
    """What a reader wants to know first."""
    said = [_course(found), *_parting(found), _answers(found), _endings(found), _sums(found)]
    left, right = f"#{found.left.pk}", f"#{found.right.pk}"
    return [Sentence(tuple(_pieces(sentence, left, right))) for sentence in said if sentence]


Said = tuple[str | tuple[str, PieceKind], ...]
"""Words, with pieces of code among them."""


def _pieces(said: Said, left: str, right: str) -> Iterator[tuple[str, PieceKind]]:
    """The words taken apart at the numbers of the runs."""
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
            f"#{left.pk} is a run of {left.machine}, #{right.pk} of {right.machine}: their steps can’t be laid "
            "side by side, so what follows is about totals and answers."
        )
    if not found.places:
        return _say("Neither has taken a step yet.")
    if not found.apart:
        return _say(f"Step for step the same: all {words.plural(found.same_steps, 'step')}.")
    alike = words.plural(found.begins_alike, "step")
    begins = (
        f"The same for {alike}, then they part"
        if found.begins_alike
        else "They differ from the first step on"
    )
    again = found.same_steps - found.begins_alike
    return _say(
        f"{begins}; {words.plural(again, 'later step')} the same again." if again > 1 else f"{begins}."
    )


def _parting(found: Comparison) -> list[Said]:
    """What each did where they part."""
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
    before = f"{other} has nothing more; {there} goes on with " if ends else f"Only {there} then has "
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
    """What a row says; kept in one piece, whatever a model wrote into it."""
    text = line.text or line.code
    return (f"{line.title.lower()} “{short(text, 100)}”" if text else line.title.lower()), "quote"


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
    told = status.get(run.status, {"cancelled": "was stopped"}.get(run.status, run.status))
    return f"{told}: {words.exit_words(run.exit_reason)}" if run.exit_reason else told


def _sums(found: Comparison) -> Said:
    """What the right run took more, or less."""
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
    """Less than a tenth of a second is no difference to a person."""
    return total.difference if abs(total.difference) >= 0.05 else 0


def _more(verb: str, amount: str, difference: float) -> str:
    if abs(difference) < 1e-9:
        return ""
    return f"{verb} {amount} {'more' if difference > 0 else 'less'}"


def relation_of(left: Run, right: Run) -> str:
    """How one came from the other, where it did."""
    for copy, source in ((left, right), (right, left)):
        if copy.copied_from_id == source.pk:
            at = f", taken at row {copy.copied_upto}" if copy.copied_upto else ""
            return f"#{copy.pk} is {ORIGINS.get(copy.origin, 'a copy')} of #{source.pk}{at}."
    if left.copied_from_id and left.copied_from_id == right.copied_from_id:
        return f"Both are copies of #{left.copied_from_id}."
    return ""


# --- numbers ------------------------------------------------------------------------------------------------------


def total_views(totals: tuple[Total, ...]) -> list[TotalView]:
    """The numbers, written."""
    return [_total(total) for total in totals]


def _total(total: Total) -> TotalView:
    most = max(total.left, total.right) or 1
    return TotalView(
        TOTALS[total.name],
        amount(total.name, total.left),
        amount(total.name, total.right),
        signed(total),
        round(total.left / most * 100, 1),
        round(total.right / most * 100, 1),
    )


def amount(name: str, value: float) -> str:
    """A number as its kind is written."""
    match name:
        case "cost_usd":
            return words.money(value)
        case "active_seconds" | "elapsed":
            return words.seconds(value)
    return f"{value:,.0f}"


def signed(total: Total) -> str:
    """The difference with its sign; a dash where there is none."""
    text = amount(total.name, abs(total.difference))
    if abs(total.difference) < 1e-9 or text == amount(total.name, 0):
        return "=" if amount(total.name, total.left) == amount(total.name, total.right) else "≈"
    return f"{'+' if total.difference > 0 else '−'}{text}"


def path_views(found: Comparison) -> list[TotalView]:
    """How often each node was left."""
    if not found.same_machine:
        return []
    visits = visits_beside(found.left, found.right)
    most = max((max(one, other) for _, one, other in visits), default=1)
    return [
        TotalView(
            words.spoken(node),
            f"{one:,}",
            f"{other:,}",
            signed(Total("visits", one, other)),
            round(one / most * 100, 1),
            round(other / most * 100, 1),
        )
        for node, one, other in visits
    ]


# --- values -------------------------------------------------------------------------------------------------------


def value_view(found: Difference) -> ValueView:
    """A value that differs; texts by words."""
    name, left, right = escaped(found.name), _written(found.left), _written(found.right)
    long = any(len(text) > SHORT or "\n" in text for text in (left, right))
    if found.left is MISSING or found.right is MISSING:
        ours, theirs = ((Piece(_cut(text), changed=False),) for text in (left, right))
        return ValueView(name, ours, theirs, found.left is MISSING, found.right is MISSING, long)
    if left == right:
        left, right = json.dumps(found.left), json.dumps(found.right)
    return ValueView(name, *text_pieces(left, right), long=long)


def _written(value: Any) -> str:
    if value is MISSING:
        return ""
    if isinstance(value, str):
        return escaped(value)
    return escaped(json.dumps(value, ensure_ascii=False, indent=2 if _is_deep(value) else None))


def _is_deep(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    )


def text_pieces(left: str, right: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Two texts in pieces, what differs marked; long ones are cut around it."""
    ours, theirs = differing_words(*_around(left, right))
    return _shortened(ours), _shortened(theirs)


def _around(left: str, right: str) -> tuple[str, str]:
    """Where a text is longer than is shown: from a little before the first difference on."""
    if max(len(left), len(right)) <= CHARACTERS:
        return left, right
    most = min(len(left), len(right))
    first = next((place for place in range(most) if left[place] != right[place]), most)
    begin = max(0, first - AROUND)
    lead = f"… {begin:,} characters the same …\n" if begin else ""
    return lead + left[begin:], lead + right[begin:]


def _shortened(pieces: list[Piece]) -> tuple[Piece, ...]:
    shown: list[Piece] = []
    left = CHARACTERS
    for place, (text, changed) in enumerate(pieces):
        if len(text) > left:
            rest = len(text) - left + sum(len(piece.text) for piece in pieces[place + 1 :])
            return (*shown, Piece(text[:left], changed), Piece(f"… {rest:,} more characters", changed=False))
        shown.append(Piece(text, changed))
        left -= len(text)
    return tuple(shown)


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= CHARACTERS
        else f"{text[:CHARACTERS]}… {len(text) - CHARACTERS:,} more characters"
    )


# --- places -------------------------------------------------------------------------------------------------------


def place_views(found: Comparison, start: int = 0, most: int = PLACES) -> list[FoldView | PlaceView]:
    """The places from the difference number `start` on (from 0), with what is the same between them."""
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
    """So many places that differ, and what is the same before, between and after them."""
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
    return f"row {first}" if first == last else f"rows {first}–{last}"


def _place(
    found: Comparison, place: Place, number: int, ours: dict[int, StepText], theirs: dict[int, StepText]
) -> PlaceView:
    values: list[ValueView] = []
    more = 0
    if place.kind == "differs":
        left, right = ours[place.left[0].rows[-1]], theirs[place.right[0].rows[-1]]
        differing = differences_of(left.content, right.content)
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
    """What differs, by name: three names at most."""
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
    """What these steps cost and took more, or less, in the right run: `+$0.002, −3.1 s`."""
    cost = sum(step.cost_usd for step in place.right) - sum(step.cost_usd for step in place.left)
    seconds = (sum(step.ms for step in place.right) - sum(step.ms for step in place.left)) / 1000
    parts = [signed(Total("cost_usd", 0, cost))] if abs(cost) >= 1e-6 else []
    if abs(seconds) >= 0.1:
        parts.append(signed(Total("active_seconds", 0, seconds)))
    return ", ".join(parts)


# --- for other systems --------------------------------------------------------------------------------------------


def as_json(found: Comparison) -> Data:
    """The whole comparison; every place, and every value that differs as it is."""
    return {
        "format": 1,
        "left": _run_json(found.left),
        "right": _run_json(found.right),
        "relation": relation_of(found.left, found.right) or None,
        "same_machine": found.same_machine,
        "same_answer": found.same_answer,
        "same_steps": found.same_steps,
        "parted_after": found.begins_alike if found.apart else None,
        "summary": [sentence.plain for sentence in summary_of(found)],
        "totals": [
            {"name": total.name, "left": total.left, "right": total.right, "difference": total.difference}
            for total in found.totals
        ],
        "launch": [_difference_json(one) for one in found.terms],
        "path": [
            {"node": node, "left": ours, "right": theirs}
            for node, ours, theirs in (visits_beside(found.left, found.right) if found.same_machine else [])
        ],
        "places": [place for group in _by(PLACES, found.places) for place in _places_json(found, group)],
    }


def _by(size: int, places: tuple[Place, ...]) -> list[tuple[Place, ...]]:
    return [places[begin : begin + size] for begin in range(0, len(places), size)]


def _run_json(run: Run) -> Data:
    return {
        "id": str(run.pk),
        "machine": run.machine,
        "goal": run.goal,
        "model": run.model,
        "status": run.status,
        "exit_reason": run.exit_reason,
        "answer": run.answer,
        "head": run.head,
    }


def _places_json(found: Comparison, places: tuple[Place, ...]) -> list[Data]:
    """Places with their steps in words; a group at a time, so that a long run is never whole in memory."""
    apart = [place for place in places if place.kind != "same"]
    ours = step_texts(found.left, (step for place in apart for step in place.left))
    theirs = step_texts(found.right, (step for place in apart for step in place.right))
    written = []
    for place in places:
        data: Data = {"kind": place.kind}
        for side, steps, texts in (("left", place.left, ours), ("right", place.right, theirs)):
            if place.kind == "same":
                data[side] = {"steps": len(steps), "first": steps[0].rows[0], "last": steps[-1].rows[-1]}
            else:
                data[side] = [_step_json(step, texts[step.rows[-1]]) for step in steps]
        if place.kind == "differs":
            one, other = ours[place.left[0].rows[-1]], theirs[place.right[0].rows[-1]]
            data["differences"] = [
                _difference_json(value) for value in differences_of(one.content, other.content)
            ]
        written.append(data)
    return written


def _step_json(step: Outline, text: StepText) -> Data:
    said = f"{text.asked.plain} · {text.said.plain}" if text.asked else text.said.plain
    return {
        "seq": text.seq,
        "rows": list(text.rows),
        "summary": said,
        "cost_usd": step.cost_usd,
        "tokens": step.tokens,
        "ms": round(step.ms, 1),
    }


def _difference_json(found: Difference) -> Data:
    """A side that has no such value is left out."""
    sides = {"left": found.left, "right": found.right}
    return {"name": found.name} | {name: value for name, value in sides.items() if value is not MISSING}
