"""The descendants of the runs in a list: a line each, and the cost of all, with nothing counted twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.utils.safestring import SafeString

from runs.models import Run
from runs.reading.children import child_html, with_standing
from runs.reading.words import money
from runs.store.shared_limits import TOLD

MOST = 20
"""Lines below one run; its page has the rest."""

DEEPEST = 5
"""Levels shown below a run."""


@dataclass(frozen=True)
class Family:
    """The lines below a run, each with its depth, the number left out, and the cost of all."""

    lines: tuple[tuple[int, SafeString], ...]
    more: int
    cost: str


def families_of(runs: Collection[Run]) -> dict[int, Family]:
    """Return the families of these runs, by their keys; one query for each level, however many runs there are."""
    below = _below([run.pk for run in runs])
    found = {}
    for run in runs:
        all_of_them = list(_walk(below, run.pk, 1))
        if all_of_them:
            untold = sum(child.cost_usd for _, child in all_of_them if not child.told)
            lines = tuple((depth, child_html(child)) for depth, child in all_of_them[:MOST])
            found[run.pk] = Family(lines, len(all_of_them) - len(lines), money(run.cost_usd + untold))
    return found


def _below(parents: list[int]) -> dict[int, list[Any]]:
    """Return each run's children in the order of their start."""
    told = RawSQL(TOLD.format("runs_run"), (), output_field=BooleanField())
    children = with_standing().annotate(told=told)
    below: dict[int, list[Any]] = defaultdict(list)
    for _ in range(DEEPEST):
        if not parents:
            break
        level = children.filter(parent__in=parents).defer("site_rules_json", "answer")
        parents = []
        for child in level.order_by("pk"):
            assert child.parent_id is not None
            below[child.parent_id].append(child)
            parents.append(child.pk)
    return below


def _walk(below: dict[int, list[Any]], parent: int, depth: int) -> Iterator[tuple[int, Any]]:
    for child in below.get(parent, ()):
        yield depth, child
        yield from _walk(below, child.pk, depth + 1)
