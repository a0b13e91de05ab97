"""Events from outside, read from the record: people, the runtime, the clock, prices, other usage and costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from runs.engine import kernel, old_rows, worker_questions
from runs.engine.effects import EFFECT, Answer, AtLimit, HumanCall, ModelCall, Role, ToolCall
from runs.engine.facts import (
    MADE_ANEW,
    ApprovalLapsed,
    DataRead,
    Exited,
    Fact,
    FeedbackGiven,
    Notice,
    Rewound,
    SummaryStands,
)
from runs.engine.machine import Machine
from runs.engine.moves import Ask, Move, Rewind, Stop
from runs.engine.replaying.differing import worded
from runs.engine.replaying.record import RecordedRow
from runs.engine.rules import NamedRule
from runs.engine.settings import LIMIT_REASONS, PAID_LIMITS, LimitName
from runs.engine.snapshot import SharedLimit, Snapshot, Totals, Worst
from runs.engine.values import add_cost

GIVEN = ("decision", "limit", "pause", "note", "recovered")
"""Kinds of steps added by people and the runtime: taken from the record."""

FROM_OUTSIDE = ("aborted", "fatal_error", "model_error")
"""Reasons of a stop from outside, whatever the machine's next move was."""


def is_newer(fact: Fact) -> bool:
    """Return True if records may lack the fact: earlier versions did not note reads, feedback or summaries."""
    return isinstance(fact, DataRead | FeedbackGiven | SummaryStands)


def lost_before(row: RecordedRow) -> tuple[int, int]:
    """Return how many workers in a row were lost before the step's question, and how many of them met a fault.

    0 if it asks about something else.
    """
    asks = EFFECT.validate_python(row.effect) if row.effect else None
    return (asks.lost, asks.faults) if isinstance(asks, HumanCall) else (0, 0)


def was_lost(row: RecordedRow, facts: tuple[Fact, ...]) -> bool:
    """Return True if a lost call caused the step: its answer, if there is one, came later."""
    return asks_whether_it_happened(row) or _made_anew(row, facts)


def asks_whether_it_happened(row: RecordedRow) -> bool:
    """Return True if the step asks about the outcome of a call."""
    asks = EFFECT.validate_python(row.effect) if row.effect else None
    return isinstance(asks, HumanCall) and asks.about == "may_have_happened"


def _made_anew(row: RecordedRow, facts: tuple[Fact, ...]) -> bool:
    told = any(isinstance(fact, Notice) and fact.code == MADE_ANEW for fact in facts)
    return row.effect is not None and told


def unanswered(
    machine: Machine, snapshot: Snapshot, row: RecordedRow, facts: tuple[Fact, ...], passed: tuple[str, ...]
) -> Move:
    """Return the move without an answer: an event from outside, no room for the call, or another look of the gates.

    `passed` names the gates answered for the call.
    """
    pending = snapshot.pending
    assert pending is not None
    if asks_whether_it_happened(row):
        lapsed = tuple(fact for fact in facts if isinstance(fact, ApprovalLapsed))
        return Ask(_as_worded(worker_questions.uncertain(snapshot, "worker lost"), row), lapsed)
    if _made_anew(row, facts):
        return Ask(pending.effect, facts, attempt=row.attempt)
    outside: Move | None = stop_or_rewind(row, facts, None)
    if outside is None and isinstance(pending.effect, ModelCall):
        outside = kernel.asked_anew(machine, snapshot)
    elif outside is None and isinstance(pending.effect, ToolCall):
        outside = kernel.looked_at_again(machine, snapshot, passed)
    if outside is None:
        raise LookupError("the request of the step before has no answer in the record")
    return replace(outside, facts=worded(outside.facts, facts))


def _as_worded(question: HumanCall, row: RecordedRow) -> HumanCall:
    """Return the question with the record's reason and gates: an earlier version may have had others."""
    assert row.effect is not None
    recorded = {"why": row.effect["why"], "passed": tuple(row.effect["passed"])}
    return question.model_copy(update=recorded)


def stop_or_rewind(row: RecordedRow, facts: tuple[Fact, ...], move: Move | None) -> Stop | Rewind | None:
    """Return a stop or a rollback by a person, or by the runtime."""
    if move is not None and move.facts == facts:
        return None
    match row.kind:
        case "stop":
            last = facts[-1] if facts else None
            if isinstance(last, Exited) and last.reason in FROM_OUTSIDE:
                return Stop(last.reason, facts)
        case "rewind":
            if facts and isinstance(facts[0], Rewound):
                return Rewind(facts[0].to_seq, facts)
    return None


def clock(row: RecordedRow, limit: float | None) -> float:
    """Return the seconds of work so far, if a question, a stop or a missing answer shows that the limit is reached."""
    if limit is None:
        return 0.0
    unasked = any(fact.get("source") == "fallback" for fact in row.facts)
    if unasked or any(fact.get("reason") == "time_limit" for fact in row.facts):
        return limit
    told = _figures(row)
    return told.used if told and told.name == "active_seconds" else 0.0


def price(row: RecordedRow, rules: Iterable[NamedRule]) -> float:
    """Return the next model call's cost: from a question about it, or just above the limit of the rule that spoke.

    A silent rule before it may allow more.
    """
    held = [one for one in rules if one.rule.when.next_cost_usd is not None]
    costs = {name: rule.when.next_cost_usd for name, rule in held}
    for fact in row.facts:
        cost = costs.get(fact.get("rule") or old_rows.rule_told(fact, held))
        if cost is not None:
            return math.nextafter(cost, math.inf)
    return float((row.effect or {}).get("cost_usd", 0.0))


def counted(row: RecordedRow, snapshot: Snapshot, answer: Answer | None, guessed: Totals) -> Totals:
    """Return the totals before `answer`, if a question at one of the run's own limits shows them.

    A late answer of a worker taken for lost is paid beside the steps, and is in none of them. A usage below the steps'
    sum is possible only if they hold guesses (`guessed`), which may have been corrected.
    """
    totals, told = snapshot.totals, _figures(row)
    for name in PAID_LIMITS:
        if told is None or told.name != name or told.root or name not in snapshot.limits:
            continue
        own, limit = totals.after(answer).used(name), snapshot.limits[name]
        used = _used(told, own, limit) if told.rounded else told.used
        if used > own or (used < own and guessed.used(name)):
            return _with(totals, name, used - own)
    return totals


def _used(told: AtLimit, own: float, limit: float) -> float:
    """Return the used amount, if the figures have lost digits: `own` if it reads the same."""
    left = limit - own if own < limit else None
    if (_rounded(own), _rounded(limit), _rounded(left)) == (told.used, told.limit, told.left):
        return own
    if told.left is None:
        return max(told.used, limit)  # rounded down, it had reached the limit all the same
    if told.left < told.used:
        return limit - told.left  # the smaller number has lost less to the rounding
    return told.used


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:g}")


def _figures(row: RecordedRow) -> AtLimit | None:
    """Return the figures of a step that asks at a limit."""
    figures = (row.effect or {}).get("figures")
    return AtLimit.model_validate(figures) if figures else None


def _with(totals: Totals, name: LimitName, beside: float) -> Totals:
    if name == "cost_usd":
        return totals._replace(cost_usd=add_cost(totals.cost_usd, beside))
    return totals._replace(output_tokens=totals.output_tokens + round(beside))


def without(guessed: Totals, totals: Totals) -> Totals:
    """Return the totals without the guesses at the usage of lost calls."""
    return totals._replace(
        cost_usd=add_cost(totals.cost_usd, -guessed.cost_usd),
        output_tokens=totals.output_tokens - guessed.output_tokens,
    )


def shared_limits(
    row: RecordedRow, snapshot: Snapshot, answer: Answer | None
) -> dict[LimitName, SharedLimit]:
    """Return other runs' use of a shared limit, if the step says that it was reached."""
    told = _figures(row)
    for name in PAID_LIMITS:
        own = snapshot.totals.after(answer).used(name)
        if told and told.root and told.name == name:
            return {name: SharedLimit(told.limit, told.used - own, told.root, told.aside)}
        if own < snapshot.limits.get(name, math.inf) and _says_reached(row, name):
            return {name: SharedLimit(0.0, 0.0, 0)}
    return {}


def next_use(row: RecordedRow) -> dict[Role, Worst]:
    """Return the usage of a script's next call, if the step says that a shared limit had less left."""
    told = _figures(row)
    if told is None or not told.root or told.left is None:
        return {}
    return dict.fromkeys(get_args(Role), Worst(told.limit + 1, math.ceil(told.limit) + 1))


def _says_reached(row: RecordedRow, name: LimitName) -> bool:
    """Return True if the step ends the run at a limit, and not by a rule (its message would say so)."""
    return row.kind == "stop" and any(
        fact.get("reason") == LIMIT_REASONS[name] and not fact.get("message") for fact in row.facts
    )
