"""What came from outside, read from the record: people, the runtime, the clock, prices, what else was used or paid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from runs.engine import kernel, old_rows
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
from runs.engine.replaying.record import RecordedRow
from runs.engine.rules import NamedRule
from runs.engine.settings import LIMIT_REASONS, PAID_LIMITS, LimitName
from runs.engine.snapshot import SharedLimit, Snapshot, Totals, Worst
from runs.engine.values import add_cost

GIVEN = ("decision", "limit", "pause", "note", "recovered")
"""Kinds of rows that people and the runtime add: taken from the record."""

FROM_OUTSIDE = ("aborted", "fatal_error", "model_error")
"""Reasons with which somebody may stop a run whatever the machine was about to do."""


def is_newer(fact: Fact) -> bool:
    """Return whether records may lack the fact: earlier versions did not note what a run had read, or states keep."""
    return isinstance(fact, DataRead | FeedbackGiven | SummaryStands)


def lost_before(row: RecordedRow) -> tuple[int, int]:
    """Return how many workers in a row were lost before the row's question, and how many of them met a fault.

    0 where it asks about something else.
    """
    asks = EFFECT.validate_python(row.effect) if row.effect else None
    return (asks.lost, asks.faults) if isinstance(asks, HumanCall) else (0, 0)


def was_lost(row: RecordedRow, facts: tuple[Fact, ...]) -> bool:
    """Whether the row was written because a worker was lost in a call: its answer, where there is one, came later."""
    return asks_whether_it_happened(row) or _made_anew(row, facts)


def asks_whether_it_happened(row: RecordedRow) -> bool:
    """Whether the row asks what became of a call."""
    asks = EFFECT.validate_python(row.effect) if row.effect else None
    return isinstance(asks, HumanCall) and asks.about == "may_have_happened"


def _made_anew(row: RecordedRow, facts: tuple[Fact, ...]) -> bool:
    told = any(isinstance(fact, Notice) and fact.code == MADE_ANEW for fact in facts)
    return row.effect is not None and told


def unanswered(
    machine: Machine, snapshot: Snapshot, row: RecordedRow, facts: tuple[Fact, ...], passed: tuple[str, ...]
) -> Move:
    """Nothing was answered to what was asked: somebody from outside went on, there was no room for the call, or the
    gates looked at it again. `passed` names those that had been answered for it."""
    pending = snapshot.pending
    assert pending is not None
    if asks_whether_it_happened(row):
        lapsed = tuple(fact for fact in facts if isinstance(fact, ApprovalLapsed))
        return Ask(_as_worded(kernel.uncertain(snapshot, "worker lost"), row), lapsed)
    if _made_anew(row, facts):
        return Ask(pending.effect, facts, attempt=row.attempt)
    outside = stop_or_rewind(row, facts, None)
    if outside is None and isinstance(pending.effect, ModelCall):
        return kernel.asked_anew(machine, snapshot)
    if outside is None and isinstance(pending.effect, ToolCall):
        return kernel.looked_at_again(machine, snapshot, passed)
    if outside is None:
        raise LookupError("what was asked in the row before has no answer in the record")
    return outside


def _as_worded(question: HumanCall, row: RecordedRow) -> HumanCall:
    """The question with the reason and the gates that the record gives: an earlier version may have had others."""
    assert row.effect is not None
    recorded = {"why": row.effect["why"], "passed": tuple(row.effect["passed"])}
    return question.model_copy(update=recorded)


def stop_or_rewind(row: RecordedRow, facts: tuple[Fact, ...], move: Move | None) -> Stop | Rewind | None:
    """A stop or a rollback by a person, or by the runtime."""
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
    """Seconds of work so far: where a question, a stop, or an answer that nobody gave says that they are up."""
    if limit is None:
        return 0.0
    unasked = any(fact.get("source") == "fallback" for fact in row.facts)
    if unasked or any(fact.get("reason") == "time_limit" for fact in row.facts):
        return limit
    told = _figures(row)
    return told.used if told and told.name == "active_seconds" else 0.0


def price(row: RecordedRow, rules: Iterable[NamedRule]) -> float:
    """What the next model call may cost: what a question about it says, or just above what a rule that spoke allows.

    A rule before that one, which said nothing, may allow more.
    """
    held = [one for one in rules if one.rule.when.next_cost_usd is not None]
    costs = {name: rule.when.next_cost_usd for name, rule in held}
    for fact in row.facts:
        cost = costs.get(fact.get("rule") or old_rows.rule_told(fact, held))
        if cost is not None:
            return math.nextafter(cost, math.inf)
    return float((row.effect or {}).get("cost_usd", 0.0))


def counted(row: RecordedRow, snapshot: Snapshot, answer: Answer | None, guessed: Totals) -> Totals:
    """The totals as they stood before `answer`, where a question at one of the run's own limits says what was used.

    A late answer of a worker that was taken for lost is paid beside the rows, and is in none of them. Less than the
    rows tell can have been used only where they tell guesses (`guessed`), which may have been taken back.
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
    """What was used, where the figures have lost digits: `own` where that reads the same."""
    left = limit - own if own < limit else None
    if (_rounded(own), _rounded(limit), _rounded(left)) == (told.used, told.limit, told.left):
        return own
    if told.left is None:
        return max(told.used, limit)  # what was rounded down had reached it all the same
    if told.left < told.used:
        return limit - told.left  # the smaller number has lost less to the rounding
    return told.used


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else float(f"{figure:g}")


def _figures(row: RecordedRow) -> AtLimit | None:
    """The figures of a row that asks at a limit."""
    figures = (row.effect or {}).get("figures")
    return AtLimit.model_validate(figures) if figures else None


def _with(totals: Totals, name: LimitName, beside: float) -> Totals:
    if name == "cost_usd":
        return replace(totals, cost_usd=add_cost(totals.cost_usd, beside))
    return replace(totals, output_tokens=totals.output_tokens + round(beside))


def without(guessed: Totals, totals: Totals) -> Totals:
    """The totals where the guesses at what lost calls had used were taken back."""
    return replace(
        totals,
        cost_usd=add_cost(totals.cost_usd, -guessed.cost_usd),
        output_tokens=totals.output_tokens - guessed.output_tokens,
    )


def shared_limits(
    row: RecordedRow, snapshot: Snapshot, answer: Answer | None
) -> dict[LimitName, SharedLimit]:
    """What other runs had used of a limit that this one shares, where the row says that it was reached."""
    told = _figures(row)
    for name in PAID_LIMITS:
        own = snapshot.totals.after(answer).used(name)
        if told and told.root and told.name == name:
            return {name: SharedLimit(told.limit, told.used - own, told.root, told.aside)}
        if own < snapshot.limits.get(name, math.inf) and _says_reached(row, name):
            return {name: SharedLimit(0.0, 0.0, 0)}
    return {}


def next_use(row: RecordedRow) -> dict[Role, Worst]:
    """What the next call of a script would have used, where the row says that less was left of a shared limit."""
    told = _figures(row)
    if told is None or not told.root or told.left is None:
        return {}
    return dict.fromkeys(get_args(Role), Worst(told.limit + 1, math.ceil(told.limit) + 1))


def _says_reached(row: RecordedRow, name: LimitName) -> bool:
    """Whether the row ends the run at a limit, and no rule does so (that says which)."""
    return row.kind == "stop" and any(
        fact.get("reason") == LIMIT_REASONS[name] and not fact.get("message") for fact in row.facts
    )
