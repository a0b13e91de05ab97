"""The prompt of a model call, rendered once more from the rows that were live when it was asked."""

from __future__ import annotations

import json

from runs.driver.ports import tool_specs
from runs.engine.effects import EFFECT, ModelCall
from runs.engine.machine import Block, Terms
from runs.engine.ports import Message
from runs.engine.timeline import blocks_of, prompt
from runs.machines import CATALOGUE
from runs.models import Exchange, ModelProfile, Run, Step
from runs.store import terms_of


def prompt_of(run: Run, seq: int) -> tuple[Message, ...] | None:
    """The messages that the ask at `seq` sent; None where it asked no model."""
    exchange = Exchange.objects.filter(run=run, seq=seq, kind="model_call").first()
    if exchange is None:
        return None
    call = EFFECT.validate_json(exchange.request_json)
    if not isinstance(call, ModelCall):
        return None
    return prompt(CATALOGUE[run.machine], full_terms(run), _blocks_at(run, seq), call)


def full_terms(run: Run) -> Terms:
    """What the run was agreed on, with its tools as they are now."""
    guided = ModelProfile.objects.filter(name=run.model, guided=True).exists()
    return terms_of(run, tool_specs(run), guided=guided)


def _blocks_at(run: Run, seq: int) -> list[Block]:
    machine = CATALOGUE[run.machine]
    rows: list[tuple[int, str]] = []
    found = Step.objects.filter(run=run, seq__lte=seq).exclude(facts_json="[]").order_by("seq")
    for number, kind, facts in found.values_list("seq", "kind", "facts_json"):
        if kind == Step.Kind.REWIND:
            back_to = _goes_back_to(facts)
            rows = [row for row in rows if row[0] <= back_to]
        rows.append((number, facts))
    read = machine.facts.validate_json
    return [block for number, text in rows for block in blocks_of(machine, read(text), number)]


def _goes_back_to(facts_text: str) -> int:
    return next(int(fact["to_seq"]) for fact in json.loads(facts_text) if fact["kind"] == "run.rewound")
