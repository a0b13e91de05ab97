"""Continue an ended run: a follow-up goal in a new run of the same machine, model, tools and settings."""

from __future__ import annotations

from typing import Any, Literal

from django.db import transaction

from runs import hints
from runs.actions.copying import check_copying
from runs.actions.launching import new_run
from runs.models import Run
from runs.rights import Person
from runs.store import continuing

OF_ONE_RUN = ("answers",)
"""Settings for one run alone."""

OF_ONE_GOAL = ("plan", "plan_outline")
"""Settings for one goal alone; a replayed script needs them."""


def continue_run(
    run: Run,
    *,
    goal: str,
    by: Person,
    model: str = "",
    settings: dict[str, Any] | None = None,
    script: dict[str, Any] | str | None = None,
    driven_by: Literal["a worker", "the caller"] = "a worker",
) -> Run:
    """Launch a run with the earlier runs as its history.

    Its counters begin at 0. `settings` override those of the same name. The script of a scripted run is played again,
    unless `model` or `script` is given.
    """
    check_continuing(run, by)
    played = script or (None if model or run.model else run.script_json or None)
    dropped = OF_ONE_RUN if played else OF_ONE_RUN + OF_ONE_GOAL
    kept = _without(run.settings, dropped) | ({"model": run.switched_to} if run.switched_to else {})
    kept |= (settings or {}) | ({"model": model} if model else {})
    new = new_run(machine=run.machine, goal=goal, settings=kept, owner=by, script=played)
    made = continuing.continue_run(run, new)
    if driven_by == "a worker":
        transaction.on_commit(lambda: hints.hint(made.pk))
    return made


def check_continuing(run: Run, by: Person) -> None:
    """Raise `NotAllowed` if the person may not continue the run, `NotPossible` if it can't be continued."""
    check_copying(by, run)
    continuing.check_continuing(run)


def _without(settings: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the settings without these names, and those of subgraphs without prepared answers."""
    kept = {name: value for name, value in settings.items() if name not in names}
    if children := kept.get("subgraphs"):
        kept["subgraphs"] = {
            name: child | {"settings": _without(child.get("settings", {}), OF_ONE_RUN)}
            for name, child in children.items()
        }
    return kept
