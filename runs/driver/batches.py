"""Add a move to the batch of its run: its step, its exchange, the answer that it concludes, its parking or end."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC

from runs.driver.parking import park
from runs.driver.position import Gathered, HeldBack, Position
from runs.engine.effects import (
    ANSWER,
    Answer,
    ChildRun,
    Compaction,
    Effect,
    Failed,
    HumanCall,
    ModelCall,
    ToolCall,
    fingerprint_of,
)
from runs.engine.kernel import advance
from runs.engine.machine import END, Block
from runs.engine.moves import Ask, Compact, Go, Rewind, Stop
from runs.engine.outward import allowed_by_person
from runs.engine.presentation import BudgetRow
from runs.engine.settings import LIMIT_NAMES
from runs.engine.settling import Decision
from runs.engine.snapshot import Snapshot, Totals
from runs.engine.timeline import blocks_of
from runs.models import Run
from runs.store import appending, artifacts, endings, going_back, loading, log, switching

Onward = Ask | Go | Stop | Compact
"""Every move but a rollback."""


def gather(at: Position, decision: Decision, answer: Answer | None) -> Gathered:
    """Return the gathered moves with this one and the answer that it concludes.

    A failure leaves `at.gathered` as it was.
    """
    move, asked = decision.move, at.asked
    gathered = opened(at, decision.totals)
    batch = gathered.batch
    _conclude(at, batch, answer)
    if answer is not None and asked is not None:
        gathered.paid = at.paid(asked, answer)
    if isinstance(move, Rewind):
        _go_back(at, batch, move)
    else:
        _go_on(at, gathered, move, decision.totals)
    if answer is not None and asked is not None:
        batch.rows[-1].cover("answer", asked.seq, asked)
    made = artifacts.made_by(move.facts, answer, asked.seq if asked else None)
    batch.artifacts += tuple((batch.rows[-1].seq, one) for one in made)
    return gathered


def opened(at: Position, totals: Totals) -> Gathered:
    """Return the notes, or a copy of the gathered moves, to add a move to. Notes are written before all moves."""
    if at.gathered is None:
        batch = log.Batch(
            run_id=at.run.pk,
            epoch=at.epoch,
            node=at.snapshot.node,
            totals=totals,
            known=at.snapshot.totals._replace(active_seconds=at.counted_s),
            head_hash=at.head_hash,
            prompt_hash=at.prompt_hash,
            rows=[*at.noted],
            site_rules=at.site_rules,
        )
        return Gathered(batch, since=at.mark)
    batch = at.gathered.batch
    batch = replace(batch, totals=totals, rows=[*batch.rows], asked=[*batch.asked], budgets=[*batch.budgets])
    return replace(at.gathered, batch=batch)


def hold_back(at: Position, move: Ask, totals: Totals) -> None:
    """Take up an ask that is written together with its conclusion."""
    after = advance(at.machine, at.snapshot, move, totals)
    row, at.asked = _rows(at, None, move, after)
    blocks = blocks_of(at.machine, move.facts, row.seq)
    at.snapshot, at.phase = _reached(after, move), HeldBack(row, blocks)


def can_be_held_back(at: Position, move: Ask) -> bool:
    """Return True if a worker performs the effect at once, and a second time does no harm."""
    effect = move.effect
    if move.delay_s or isinstance(at.phase, HeldBack):
        return False
    return isinstance(effect, ModelCall) or (isinstance(effect, ToolCall) and effect.repeatable)


def _conclude(at: Position, batch: log.Batch, answer: Answer | None) -> None:
    """Add the answered ask: written now if it was held back, else completed."""
    asked = at.asked
    if isinstance(at.phase, HeldBack) and asked is not None:
        batch.rows.append(at.phase.row)
        batch.asked.append(asked)
        batch.prompt_hash = _shown(at, batch.prompt_hash, at.blocks_held_back())
        if answer is not None:
            asked.answered(answer)
    elif answer is not None and asked is not None and asked.status != "answered":
        asked.answered(answer)
        batch.concluded = asked


def _go_on(at: Position, gathered: Gathered, move: Onward, totals: Totals) -> None:
    batch, before = gathered.batch, at.snapshot
    after = advance(at.machine, before, move, totals)
    row, asked = _rows(at, batch, move, after)
    batch.rows.append(row)
    batch.node = after.node
    batch.prompt_hash = _shown(at, batch.prompt_hash, blocks_of(at.machine, move.facts, row.seq))
    _budget(at, batch, after)
    if after.node == END:
        _end(at, batch, after)
    elif isinstance(move, Ask) and asked is not None:
        batch.asked.append(asked)
        if isinstance(move.effect, ToolCall):
            batch.host = allowed_by_person(before.state, move.effect)
        gathered.said = park(batch, at.run, at.machine, after.state, move)
        batch.changes |= switching.column_of(move.facts)
    if isinstance(move, Go) and (before.node, move.edge) == at.remembers:
        batch.remembered = at.last_reply
    at.snapshot, at.asked = _reached(after, move), asked


def _go_back(at: Position, batch: log.Batch, move: Rewind) -> None:
    at.loaded.snapshot = at.snapshot
    at.run.node, at.run.head = at.snapshot.node, at.snapshot.head
    back, after = going_back.rewind_batch(at.loaded, move)
    batch.rows += back.rows
    batch.node, batch.prompt_hash = after.node, back.prompt_hash
    batch.budgets, batch.dead_after = back.budgets, back.dead_after
    for line in batch.budgets:
        at.budgets[line.scope, line.name] = (line.used, line.limit)
    after = after._replace(calls=loading.reached_calls(at.run, after.rules, move.to))
    at.snapshot, at.asked, at.blocks = after, None, None


def _end(at: Position, batch: log.Batch, after: Snapshot) -> None:
    """Add the columns of a run that has ended, and its answer to its parent."""
    if at.asked is not None and at.asked.status != "answered" and not isinstance(at.phase, HeldBack):
        batch.left_behind = at.asked.seq
    batch.changes = endings.ended(at.machine, after.state)
    unwritten = [row.facts_json for row in batch.rows]
    cost = after.totals.cost_usd
    batch.parent = endings.for_parent(at.run, at.machine, after.state, batch.changes, cost, unwritten)


def _budget(at: Position, batch: log.Batch, after: Snapshot) -> None:
    """Add the budget lines that have changed."""
    lines = list(at.machine.budget(after.state))
    for name in LIMIT_NAMES:
        if name in after.limits:
            used = round(after.totals.used(name), 10)
            lines.append(BudgetRow(scope="limits", name=name, used=used, limit=after.limits[name]))
    for line in lines:
        if at.budgets.get((line.scope, line.name)) != (line.used, line.limit):
            at.budgets[line.scope, line.name] = (line.used, line.limit)
            batch.budgets.append(line)


def _rows(
    at: Position, batch: log.Batch | None, move: Onward, after: Snapshot
) -> tuple[log.Row, log.Asked | None]:
    """Return the move's step and, of an ask, its exchange; `batch` has the uncommitted steps before."""
    before = at.snapshot
    row = log.Row(before.head + 1, "ask", before.node, facts_json=appending.facts_text(move.facts))
    if after.state is not before.state and after.state != before.state:
        row.state_json = after.state.model_dump_json()
    match move:
        case Ask():
            asked = _exchange(at, batch, move, row.seq)
            row.cover("request", row.seq, asked)
            return row, asked
        case Go(edge=edge):
            row.kind, row.edge, row.to = "transition", edge, after.node
        case Stop():
            row.kind = "stop"
        case Compact():
            row.kind = "compaction"
    row.ms = at.took_ms()
    return row, None


def _exchange(at: Position, batch: log.Batch | None, move: Ask, seq: int) -> log.Asked:
    """Return the exchange of an ask; that of a side effect is marked as started."""
    effect, call = move.effect, fingerprint_of(move.effect)
    deed = isinstance(effect, ToolCall) and not effect.repeatable and not move.delay_s
    if at.asked is not None and move.attempt > 1 and _took_place(at.asked):
        key = at.asked.key
    elif call:
        key = _key(at.run, seq - at.added, call)
    else:
        key = _key(at.run, seq, log.hash_after(batch) if batch else at.head_hash)
    return log.Asked(
        seq=seq,
        kind=effect.kind,
        name=_name(effect),
        request_json=effect.model_dump_json(),
        status="started" if deed else "asked",
        key=key,
        attempt=move.attempt,
        fingerprint=call,
    )


def _name(effect: Effect) -> str:
    """Return the name of an exchange: the role, the tool, or the question's kind."""
    match effect:
        case ModelCall(role=role):
            return role
        case ToolCall() | ChildRun():
            return effect.tool
        case HumanCall(about=about):
            return about
        case Compaction():
            return "summary"


def _key(run: Run, place: int, asked: str) -> str:
    """Return the idempotency key of an ask at a step, with at most 64 characters.

    After a restore the same call at the same move has the same key, so the far side still knows it. Steps that the
    restore, people and the runtime add in one of the two lives do not count. Another call there, or a call of another
    run with a reused number, has another key: it would be taken for done. Other asks have the hash of the steps before,
    which no other life repeats.
    """
    born = run.created_at.astimezone(UTC).isoformat(timespec="microseconds")
    told = hashlib.sha256(f"{born} {place} {asked}".encode()).hexdigest()
    return f"run-{run.pk}-{place}-{told[:12]}"


def _took_place(attempt: log.Asked) -> bool:
    """Return True if a failed attempt ran: the far side then no longer accepts its key."""
    said = ANSWER.validate_json(attempt.answer_json) if attempt.answer_json else None
    return isinstance(said, Failed) and said.ran


def _reached(after: Snapshot, move: Onward) -> Snapshot:
    """Return the snapshot with the reached call counted, if a rule looks at the count."""
    if not isinstance(move, Ask) or move.attempt > 1 or not (call := fingerprint_of(move.effect)):
        return after
    if not any(rule.when.same_call for _, rule in after.rules):
        return after
    return after._replace(calls={**after.calls, call: after.calls.get(call, 0) + 1})


def _shown(at: Position, prompt_hash: str, blocks: list[Block]) -> str:
    """Return the hash chain over the model's blocks, with these added."""
    if at.blocks is not None:
        at.blocks += blocks
    return appending.prompt_chain(prompt_hash, blocks)
