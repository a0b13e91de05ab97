"""Add a step to a run without a worker: for people and the runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from runs.engine.facts import Fact, Recovered
from runs.engine.machine import Block
from runs.engine.snapshot import Totals
from runs.engine.timeline import blocks_of
from runs.machines import CATALOGUE
from runs.models import Decision, Run
from runs.store.log import Batch, Row, commit


def facts_text(facts: tuple[Fact, ...]) -> str:
    """Return facts as stored text."""
    return f"[{','.join(fact.model_dump_json() for fact in facts)}]"


def totals_of(run: Run) -> Totals:
    """Return the totals on the run's row."""
    return Totals(
        model_calls=run.model_calls,
        cached_model_calls=run.cached_model_calls,
        tool_calls=run.tool_calls,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        cost_usd=run.cost_usd,
        active_seconds=run.active_seconds,
    )


def prompt_chain(before: str, blocks: Iterable[Block]) -> str:
    """Return the hash chain over the model's blocks, with `blocks` added."""
    for block in blocks:
        before = hashlib.sha256(f"{before}\n{block.author}\n{block.text}".encode()).hexdigest()
    return before


def batch_on(run: Run, row: Row, **changes: Any) -> Batch:
    """Return a batch of one step at the head of `run`, which stays at its node."""
    return Batch(
        run_id=run.pk,
        epoch=run.epoch,
        node=run.node,
        totals=totals_of(run),
        known=totals_of(run),
        head_hash=run.head_hash,
        prompt_hash=run.prompt_hash,
        rows=[row],
        changes=changes,
    )


def tell_lost(run: Run, message: str) -> None:
    """Add a step about a lost worker; the possible cost of its model call counts as spent."""
    _tell(run, Recovered(epoch=run.epoch, message=message))


def tell_fault(run: Run, fault: str, message: str) -> None:
    """Add a step about a worker that met a fault of our own code."""
    _tell(run, Recovered(epoch=run.epoch, message=message, fault=fault))


def tell_stopped(run: Run, message: str) -> None:
    """Add a step about a worker that left in order, in the middle of a model call."""
    _tell(run, Recovered(epoch=run.epoch, message=message, stopped=True))


def _tell(run: Run, fact: Recovered) -> None:
    cost, tokens = run.reserved_usd, run.reserved_tokens
    cut_off = bool(cost or tokens)
    if cut_off:
        told = f"Its model call counts as at most {tokens} tokens, ${cost:.4g}."
        guess = {"cost_usd": cost, "tokens": tokens, "lost": run.reserved_epoch}
        fact = fact.model_copy(update={"message": f"{fact.message} {told}", **guess})
    append(run, "recovered", (fact,))
    if not cut_off:
        return
    Run.objects.filter(pk=run.pk).update(reserved_usd=0, reserved_tokens=0, reserved_epoch=0)
    run.reserved_usd, run.reserved_tokens, run.reserved_epoch = 0.0, 0, 0


def append(
    run: Run,
    kind: str,
    facts: tuple[Fact, ...],
    state: str | None = None,
    decision: Decision | None = None,
    **changes: Any,
) -> None:
    """Write one step at the head of `run`, under its present epoch, and update `run`.

    `state` is None if the facts leave it as it was; `decision` is the one that the step records.
    """
    row = Row(run.head + 1, kind, run.node, facts_json=facts_text(facts), state_json=state)
    if decision is not None:
        row.cover("decision", decision.interrupt.seq, decision)
    batch = batch_on(run, row, **changes)
    batch.totals = batch.totals.after_losses(facts)
    if run.machine in CATALOGUE:  # else it is a restore that pauses the run: no model is told of it
        told = blocks_of(CATALOGUE[run.machine], facts, run.head + 1)
        batch.prompt_hash = prompt_chain(run.prompt_hash, told)
    run.head_hash, run.prompt_hash = commit(batch, savepoint=False), batch.prompt_hash
    run.head += 1
    for name, value in changes.items():
        setattr(run, name, value)
