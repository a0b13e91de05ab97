"""The machine's own part of the run page.

It is drawn from the newest state and the facts that the machine names: two queries, however long the run is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from django.template import loader

from runs.engine.machine import State
from runs.engine.presentation import Lost, Told
from runs.machines import CATALOGUE
from runs.models import Run, Step, tells
from runs.reading.exporting import opening_state, state_of
from runs.reading.in_flight import Unheard

MOST_ROWS = 2000
"""Steps that a panel looks back on: a longer run begins there."""


def machine_panel(run: Run, files: Iterable[str], unheard: Unheard | None) -> str:
    """Return the machine's own part as HTML; empty if it has none. `unheard`: the call in flight at the stop."""
    machine = CATALOGUE[run.machine]
    panel = machine.presentation.panel
    if panel is None:
        return ""
    state = head_state(run)
    lost = Lost(unheard.tool, unheard.outcome, unheard.sentence, unheard.seq) if unheard else None
    own = panel.context(state, told(run, panel.kinds), lost)
    given = {"run": run, "text": machine.budget_text(state), "files": set(files), **own}
    found: str = _template(panel.template).render(given)
    return found.strip()


@cache
def _template(name: str) -> Any:
    return loader.get_template(name or "runs/_machine_panel.html")


def head_state(run: Run) -> State:
    """Return the control state after the last step."""
    stored = Step.objects.filter(run=run, state_json__isnull=False, seq__lte=run.head).order_by("-seq")
    text = stored.values_list("state_json", flat=True).first()
    return state_of(run, json.loads(text) if text else opening_state(run))


def told(run: Run, kinds: tuple[str, ...]) -> list[Told]:
    """Return the newest live steps with facts of these kinds, oldest first, with only those facts."""
    rows = (
        Step.objects.filter(tells(*kinds), run=run, live=True)
        .order_by("-seq")
        .values_list("seq", "facts_json")
    )
    return [
        Told(seq, tuple(fact for fact in json.loads(text) if fact["kind"] in kinds))
        for seq, text in reversed(rows[:MOST_ROWS])
    ]
