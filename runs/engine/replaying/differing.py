"""A replayed step, compared with the record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runs.engine.effects import EFFECT, Effect, HumanCall
from runs.engine.facts import Exited, Fact, Notice
from runs.engine.machine import State
from runs.engine.replaying.record import RecordedRow
from runs.engine.values import Value

RECKONED = ("input_tokens", "reply_tokens")
"""Parts of a request to a model that follow from the price list: it may have changed."""

WORDS = ("title", "why")
"""Parts of a question that are for people; its other parts hold the same data, and a version may word it better."""

SHOWN = 160
"""Characters of a value shown in a difference."""


@dataclass(frozen=True, slots=True)
class Made:
    """A replayed step."""

    seq: int
    kind: str
    node: str
    edge: str | None
    to: str | None
    facts: tuple[Fact, ...]
    state: State
    effect: Effect | None = None
    attempt: int = 1


class Difference(Value):
    """The first difference between a replay and its record."""

    run: str
    seq: int
    what: str
    """The part of the step."""
    recorded: str
    made: str

    def __str__(self) -> str:
        return f"Run {self.run}, step {self.seq}: {self.what} is {self.made}; the record has {self.recorded}."


def parts(row: RecordedRow, facts: tuple[Fact, ...], made: Made) -> Iterator[tuple[str, Any, Any]]:
    """Yield each part of the step except the state: its name, as recorded, as replayed."""
    yield "its number", row.seq, made.seq
    yield "the kind of step", row.kind, made.kind
    yield "the node", row.node, made.node
    yield "the edge", row.edge, made.edge
    yield "the next node", row.to, made.to
    yield "the facts", _dumped(facts), _dumped(_facts_as_old(made.facts, facts))
    recorded = EFFECT.validate_python(row.effect) if row.effect else None
    yield "the request", _asked(recorded), _asked(_as_old(made.effect, recorded))
    yield "the attempt", row.attempt, made.attempt


def worded(made: tuple[Fact, ...], recorded: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Return the facts with the record's words for people: a version may word them better."""
    if len(made) != len(recorded):
        return made
    return tuple(_worded(fact, old) for fact, old in zip(made, recorded, strict=True))


def _worded(fact: Fact, old: Fact) -> Fact:
    match fact, old:
        case (Notice(), Notice()) if fact.code == old.code:
            return fact.model_copy(update={"message": old.message})
        case (Exited(), Exited()) if fact.reason == old.reason:
            return fact.model_copy(update={"message": old.message})
    return fact


def _as_old(effect: Effect | None, recorded: Effect | None) -> Effect | None:
    """Return a question as it was before it carried the draft, or its exact figures."""
    if not isinstance(recorded, HumanCall) or not isinstance(effect, HumanCall):
        return effect
    if effect.draft and not recorded.draft:
        return effect.model_copy(update={"draft": None})
    if effect.figures and recorded.figures and recorded.figures.rounded:
        return effect.model_copy(update={"figures": recorded.figures})
    return effect


def _facts_as_old(made: tuple[Fact, ...], recorded: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Return the facts without their rule, if the record's have none."""
    if len(made) != len(recorded):
        return made
    return tuple(
        fact.model_copy(update={"rule": ""}) if _names_rule(fact) and not _names_rule(old) else fact
        for fact, old in zip(made, recorded, strict=True)
    )


def _names_rule(fact: Fact) -> bool:
    return isinstance(fact, Notice | Exited) and bool(fact.rule)


def _asked(effect: Effect | None) -> dict[str, Any] | None:
    """Return the parts of a request that follow from the log, without words for people."""
    if effect is None:
        return None
    told = _without_prices(effect.model_dump(mode="json"))
    words = WORDS if isinstance(effect, HumanCall) else ()
    return {name: value for name, value in told.items() if name not in words}


def _without_prices(told: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in told.items() if name not in RECKONED}
    if isinstance(kept.get("holds"), dict):
        kept["holds"] = _without_prices(kept["holds"])
    return kept


def _dumped(facts: tuple[Fact, ...]) -> list[dict[str, Any]]:
    return [fact.model_dump(mode="json") for fact in facts]


def shown(value: Any, other: Any) -> str:
    """Return the value; of large ones the first part that differs from `other`, with its place."""
    place = ""
    while True:
        if isinstance(value, dict) and isinstance(other, dict):
            names = [name for name in {**value, **other} if value.get(name) != other.get(name)]
            step: Any = names[0]
            value, other = value.get(step), other.get(step)
        elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            step = next(at for at, pair in enumerate(zip(value, other, strict=True)) if pair[0] != pair[1])
            value, other = value[step], other[step]
        else:
            break
        place = f"{place}.{step}" if place else str(step)
    text = repr(value)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return f"{place} = {text}" if place else text
