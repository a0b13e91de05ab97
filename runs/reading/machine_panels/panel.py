"""The machine's own part of the run page.

A part reads the head state, the facts that it names, and the budget's lines: two questions, however long the run is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.template import loader

from runs.engine.machine import State
from runs.machines import CATALOGUE
from runs.models import Budget, Run, Step, tells
from runs.reading.exporting import opening_state, state_of
from runs.reading.machine_panels import checklist, contract, planned, ruled
from runs.reading.machine_panels.story import MOST_ROWS, Told
from runs.reading.unheard import Unheard


@dataclass(frozen=True)
class Part:
    """A machine's part: the facts that it tells of, and what its template is given."""

    facts: tuple[str, ...]
    context: Callable[[Any, list[Told], list[Budget], Unheard | None], dict[str, Any]]


PARTS: dict[str, Part] = {
    "contract": Part(contract.FACTS, contract.context),
    "checklist": Part(checklist.FACTS, checklist.context),
    "planned": Part(planned.FACTS, planned.context),
    "ruled": Part(ruled.FACTS, ruled.context),
}
"""By the machine's name; a machine without one has nothing of its own to show."""


def machine_panel(run: Run, budgets: list[Budget], files: Iterable[str], unheard: Unheard | None) -> str:
    """The machine's own part as HTML; empty where it has none. `unheard`: what the run did not hear of any more."""
    part = PARTS.get(run.machine)
    if part is None:
        return ""
    state = head_state(run)
    own = part.context(state, told(run, part.facts), budgets, unheard)
    text = CATALOGUE[run.machine].budget_text(state)
    found: str = _template(run.machine).render({"run": run, "text": text, "files": set(files), **own})
    return found.strip()


@cache
def _template(machine: str) -> Any:
    return loader.get_template(f"{machine}/panel.html")


def head_state(run: Run) -> State:
    """The control state after the last row."""
    stored = Step.objects.filter(run=run, state_json__isnull=False, seq__lte=run.head).order_by("-seq")
    text = stored.values_list("state_json", flat=True).first()
    return state_of(run, json.loads(text) if text else opening_state(run))


def told(run: Run, kinds: tuple[str, ...]) -> list[Told]:
    """The newest live rows that hold facts of these kinds, oldest first, with those facts alone."""
    rows = (
        Step.objects.filter(tells(*kinds), run=run, live=True)
        .order_by("-seq")
        .values_list("seq", "facts_json")
    )
    return [
        Told(seq, tuple(fact for fact in json.loads(text) if fact["kind"] in kinds))
        for seq, text in reversed(rows[:MOST_ROWS])
    ]
