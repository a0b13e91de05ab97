"""The whole comparison as one JSON object, for other systems."""

from __future__ import annotations

from typing import Any

from runs.models import Run
from runs.reading.comparing import Comparison, Place, visits_beside
from runs.reading.comparing_words.places import PLACES
from runs.reading.comparing_words.sentences import relation_of, summary_of
from runs.reading.differences import MISSING, Difference, differences_of
from runs.reading.outlines import Outline, StepText, step_texts

Data = dict[str, Any]


def as_json(found: Comparison) -> Data:
    """Return the whole comparison; every place, and every differing value unformatted."""
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
        "model": run.model_name,
        "status": run.status,
        "exit_reason": run.exit_reason,
        "answer": run.answer,
        "head": run.head,
    }


def _places_json(found: Comparison, places: tuple[Place, ...]) -> list[Data]:
    """Return the places with their steps in words; a group at a time, so a long run is never whole in memory."""
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
                _difference_json(value)
                for value in differences_of(one.content, other.content, found.left.machine)
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
    """Return a difference; a side without the value is left out."""
    sides = {"left": found.left, "right": found.right}
    return {"name": found.name} | {name: value for name, value in sides.items() if value is not MISSING}
