"""Check a run beside its log: it can go on, and each decision fits its question.

The names are those of docs/invariants.md, "The invariants".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from runs.engine.effects import LET_PASS
from runs.engine.values import fingerprint
from runs.models import Decision, Exchange, Interrupt, Run, RunStatus, Step

_DECIDED = (Interrupt.Status.DECIDED, Interrupt.Status.EXPIRED)

_RELEASING = (Step.Kind.ASK, Step.Kind.TRANSITION, Step.Kind.STOP, Step.Kind.REWIND)
"""Kinds of steps that release a held call, or begin something else."""


@dataclass(frozen=True)
class Beside:
    """The rows beside a run's steps; each table is read once, at its first use."""

    run: Run

    @cached_property
    def exchanges(self) -> dict[int, Exchange]:
        """Return them by their asking steps, in order."""
        return {found.seq: found for found in Exchange.objects.filter(run=self.run).order_by("seq")}

    @cached_property
    def questions(self) -> dict[int, Interrupt]:
        """Return them by their asking steps, in order."""
        return {found.seq: found for found in Interrupt.objects.filter(run=self.run).order_by("seq")}

    @cached_property
    def decisions(self) -> dict[int, Decision]:
        """Return them by their asking steps."""
        if not self.questions:
            return {}
        made = Decision.objects.filter(interrupt__run=self.run).select_related("interrupt").order_by("pk")
        return {decision.interrupt.seq: decision for decision in made}

    @cached_property
    def sealed(self) -> dict[str, Mapping[int, object]]:
        """Return the same by the kind of seal (`runs.store.seals`)."""
        return {
            "request": self.exchanges,
            "answer": self.exchanges,
            "question": self.questions,
            "decision": self.decisions,
        }


def way_on(beside: Beside, waits: Exchange | None) -> str:
    """I1: return the flaw of a run without anything to end its wait; empty if there is none."""
    run = beside.run
    if run.status != RunStatus.WAITING:
        return ""
    if waits is None or waits.kind not in ("human_call", "child_run"):
        return "I1: the run waits, but its last move asks for no answer"
    if waits.answer_json is not None:
        return "I1: the run waits for an answer that it has"
    if waits.kind == "human_call":
        asked = beside.questions.get(waits.seq)
        is_open = asked is not None and asked.status == Interrupt.Status.PENDING
        return "" if is_open else "I1: the run waits for a question that is not open"
    child = Run.objects.filter(parent=run, parent_seq=waits.seq, ended_at__isnull=True)
    return "" if child.exists() else "I1: the run waits for a child that is missing or has ended"


def effects_of(beside: Beside) -> Iterator[tuple[int, str]]:
    """I4, as far as the database knows: yield asks with another call's key. The attempts at one call share theirs."""
    by_key: dict[str, list[Exchange]] = {}
    for exchange in beside.exchanges.values():
        by_key.setdefault(exchange.key, []).append(exchange)
    for shared in by_key.values():
        calls = sum(exchange.kind == "tool_call" for exchange in shared)
        if calls > 1 and [one.attempt for one in shared] != list(range(1, len(shared) + 1)):
            yield shared[-1].seq, "I4: it has the key of another call"


def decisions_of(beside: Beside, kinds: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    """I5: yield flaws of decided questions: one decision each, its answer at the ask, and the call that was shown.

    `kinds` has the kind of every step.
    """
    for seq, question in beside.questions.items():
        decision = beside.decisions.get(seq)
        if (decision is not None) != (question.status in _DECIDED):
            yield seq, f"I5: its question is {question.status}; its decision does not match"
        elif decision is not None:
            yield from _flaws(beside, question, decision, kinds)


def _flaws(
    beside: Beside, question: Interrupt, decision: Decision, kinds: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    asked = beside.exchanges.get(question.seq)
    answer = asked.answer_json if asked is not None and asked.kind == "human_call" else None
    if answer is None or json.loads(answer).get("verdict") != decision.verdict:
        yield question.seq, f"I5: {decision.by_name} decided {decision.verdict}; the recorded answer differs"
    if decision.fingerprint_seen and decision.fingerprint_seen != question.fingerprint:
        yield question.seq, "I5: the decision was made on another call"
    if question.kind != "tool_call" or decision.verdict not in LET_PASS:
        return
    wanted = question.fingerprint
    if decision.verdict == "edit" and decision.args_json:
        wanted = fingerprint(question.tool, json.loads(decision.args_json))
    later = range(question.seq + 1, len(kinds) + 1)
    released = next((seq for seq in later if kinds[seq] in _RELEASING), 0)
    call = beside.exchanges.get(released)
    if call is not None and call.kind in ("tool_call", "child_run") and call.fingerprint != wanted:
        yield call.seq, "I5: the released call is not the approved one"
