"""Compare two runs: their common beginning, their differences and their results. It writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from runs.machines import CATALOGUE
from runs.models import Run, Step
from runs.reading.aligning import Pair, align
from runs.reading.differences import MISSING, Difference, differences_of
from runs.reading.drawing import order_of
from runs.reading.outlines import Data, Outline, outline_of
from runs.reading.panels import visits_of
from runs.store import loading

Kind = Literal["same", "differs", "apart"]


@dataclass(frozen=True)
class Place:
    """A stretch of equal steps, two differing steps, or steps of only one run."""

    kind: Kind
    left: tuple[Outline, ...]
    right: tuple[Outline, ...]


@dataclass(frozen=True)
class Total:
    """A number of both runs. `name` names it and decides its format."""

    name: str
    left: float
    right: float

    @property
    def difference(self) -> float:
        """Return how much more the right run has."""
        return self.right - self.left


@dataclass(frozen=True)
class Comparison:
    """Two runs, and their steps side by side; no places if their machines differ."""

    left: Run
    right: Run
    places: tuple[Place, ...]
    totals: tuple[Total, ...]
    terms: tuple[Difference, ...]
    """The differences at launch."""

    @property
    def same_machine(self) -> bool:
        """Return True if their steps can be compared at all."""
        return self.left.machine == self.right.machine

    @property
    def apart(self) -> list[Place]:
        """Return the places that differ."""
        return [place for place in self.places if place.kind != "same"]

    @property
    def begins_alike(self) -> int:
        """Return how many steps are the same before the first difference."""
        return len(self.places[0].left) if self.places and self.places[0].kind == "same" else 0

    @property
    def same_steps(self) -> int:
        """Return how many steps are the same."""
        return sum(len(place.left) for place in self.places if place.kind == "same")

    @property
    def same_answer(self) -> bool:
        """Return True if both give the same answer, or neither gives one."""
        return self.left.answer == self.right.answer


def compare(left: Run, right: Run) -> Comparison:
    """Compare two runs."""
    places: tuple[Place, ...] = ()
    if left.machine == right.machine:
        ours, theirs = outline_of(left), outline_of(right)
        pairs = align([step.mark for step in ours], [step.mark for step in theirs])
        places = tuple(_places(ours, theirs, pairs))
    return Comparison(left, right, places, totals_of(left, right), tuple(_terms(left, right)))


def _places(ours: tuple[Outline, ...], theirs: tuple[Outline, ...], pairs: list[Pair]) -> Iterator[Place]:
    kind: Kind | None = None
    lefts: list[Outline] = []
    rights: list[Outline] = []
    for i, j in pairs:
        one, other = None if i is None else ours[i], None if j is None else theirs[j]
        if one and other:
            now: Kind = "same" if one.mark.same == other.mark.same else "differs"
        else:
            now = "apart"
        if kind and (now != kind or kind == "differs"):
            yield Place(kind, tuple(lefts), tuple(rights))
            lefts, rights = [], []
        kind = now
        lefts += [one] if one else []
        rights += [other] if other else []
    if kind:
        yield Place(kind, tuple(lefts), tuple(rights))


def _terms(left: Run, right: Run) -> Iterator[Difference]:
    """Yield the differences of the launches; the model once, wherever it was named."""
    ours, theirs = map(_named_by, (left, right))
    yield from differences_of(ours, theirs)
    if left.script_id != right.script_id:
        yield Difference("script", *(_script(run) for run in (left, right)))
    ours, theirs = ({**run.settings, "model": None} for run in (left, right))
    yield from differences_of(ours, theirs)
    yield from _edited(left, right)


def _named_by(run: Run) -> Data:
    named = {"machine": run.machine, "goal": run.goal}
    return {**named, "model": run.model_name} if run.model_name else named


def _edited(left: Run, right: Run) -> Iterator[Difference]:
    """Yield the edits of the state made when one was copied from the other."""
    for copy, source in ((left, right), (right, left)):
        if copy.copied_from_id != source.pk or copy.copied_upto is None:
            continue
        noted = Step.objects.filter(run=copy, seq=copy.copied_upto + 1, kind=Step.Kind.NOTE).first()
        facts = json.loads(noted.facts_json) if noted else []
        edits: Data = next((fact.get("state", {}) for fact in facts if fact["kind"] == "run.forked"), {})
        before = _state_at(source, copy.copied_upto) if edits else {}
        for name, value in edits.items():
            sides = (before.get(name, MISSING), value)
            yield Difference(f"state.{name}", *(sides if copy is right else sides[::-1]))


def _state_at(run: Run, seq: int) -> Data:
    state = loading.state_at(run, CATALOGUE[run.machine], loading.terms_of(run, {}), seq)
    found: Data = state.model_dump(mode="json")
    return found


def _script(run: Run) -> Any:
    return MISSING if run.script_id is None else f"script {run.script_id[:12]}"


def totals_of(left: Run, right: Run) -> tuple[Total, ...]:
    """Return the totals of both, as their pages show them."""
    names = ("cost_usd", "input_tokens", "output_tokens", "model_calls", "tool_calls", "active_seconds")
    totals = [Total(name, getattr(left, name), getattr(right, name)) for name in names]
    if left.ended_at and right.ended_at:
        lengths = [(left.ended_at - left.created_at), (right.ended_at - right.created_at)]
        totals.append(Total("elapsed", *(length.total_seconds() for length in lengths)))
    totals.append(Total("rows", left.head, right.head))
    dead = [Step.objects.filter(run=run, live=False).count() for run in (left, right)]
    if any(dead):
        totals.append(Total("dead_rows", *dead))
    return tuple(totals)


def visits_beside(left: Run, right: Run) -> list[tuple[str, int, int]]:
    """Return how often each run left each node, in the machine's order; without unvisited nodes."""
    ours, theirs = visits_of(left), visits_of(right)
    order = order_of(CATALOGUE[left.machine])
    nodes = [*order, *(node for node in {**ours, **theirs} if node not in order)]
    return [
        (node, ours.get(node, 0), theirs.get(node, 0)) for node in nodes if node in ours or node in theirs
    ]
