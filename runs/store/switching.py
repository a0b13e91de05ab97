"""The model in place of a run's own: by a person's decision, or as the fallback of an unavailable one.

The log says so (`run.model`), and a column of the run has it for readers of the profile. A rollback does not change it:
the model is unavailable in an earlier state, too. A fork is launched with the model of its step.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.db.models import Max

from runs.engine.effects import EFFECT, HumanCall
from runs.engine.facts import Fact, Forked, ModelChanged
from runs.models import Exchange, Interrupt, ModelProfile, Run, tells
from runs.store.appending import append
from runs.store.errors import BadDecision

CHANGES = ("run.model", "run.forked")
"""Kinds of facts that change a run's model, or name the launch model of a fork."""


def changed_by(facts: Iterable[Fact], before: str = "") -> str:
    """Return the value of `switched_to` after these facts."""
    for fact in facts:
        match fact:
            case ModelChanged(model=model):
                before = model
            case Forked():
                before = ""
    return before


def column_of(facts: Iterable[Fact]) -> dict[str, Any]:
    """Return the change of the run's column for a step; empty if its facts change no model."""
    after = changed_by(facts)
    return {"switched_to": after} if after else {}


def model_at(run: Run, seq: int) -> str:
    """Return the model that the run called at step `seq`."""
    return [run.model, *(model for changed, model in changes_of(run) if changed <= seq)][-1]


def changes_of(run: Run) -> list[tuple[int, str]]:
    """Return each change of the run's model, as the step and the model from there on."""
    forked = run.steps.filter(tells("run.forked")).aggregate(seq=Max("seq"))["seq"] or 0
    rows = run.steps.filter(tells("run.model"), seq__gt=forked).order_by("seq")
    return [
        (seq, fact["model"])
        for seq, text in rows.values_list("seq", "facts_json")
        for fact in json.loads(text)
        if fact["kind"] == "run.model"
    ]


def model_asked_about(interrupt: Interrupt) -> str:
    """Return the model that can't be called, if the question is about it; else empty."""
    if interrupt.kind != "manual":
        return ""
    text = Exchange.objects.values_list("request_json", flat=True).get(
        run=interrupt.run_id, seq=interrupt.seq
    )
    asked = EFFECT.validate_json(text)
    return asked.model if isinstance(asked, HumanCall) else ""


def others_than(name: str) -> list[str]:
    """Return the models fit to replace it."""
    served = ModelProfile.objects.filter(enabled=True).exclude(kind=ModelProfile.Kind.SCRIPT)
    return list(served.exclude(name=name).values_list("name", flat=True))


def check_another(interrupt: Interrupt, args: Any) -> dict[str, str]:
    """Return the arguments of a `resume` with another model; raises `BadDecision` if it names none that exists."""
    away = model_asked_about(interrupt)
    if not away:
        raise BadDecision("Only a question about a model that can't be called takes another model.", "args")
    named = args.get("model") if isinstance(args, dict) and set(args) == {"model"} else None
    if not isinstance(named, str):
        raise BadDecision('Name the model: {"model": "NAME"}.', "args.model")
    known = others_than(away)
    if named not in known:
        others = ", ".join(known) or "none"
        raise BadDecision(f"There is no other model {named!r} here. Others: {others}.", "args.model")
    return {"model": named}


def switch(run: Run, model: str, by: str) -> None:
    """Add the step that changes the run's model to `model`."""
    told = ModelChanged(before=run.model_name, model=model, by=by)
    append(run, "note", (told,), switched_to=model)
