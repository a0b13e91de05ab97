"""What holds of a run beside its log: it has a way on, and each decision is that of its question.

The names are those of docs/invariants.md, "The invariants".
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.db.models import Count

from runs.engine.effects import LET_PASS
from runs.engine.values import fingerprint
from runs.models import Decision, Exchange, Interrupt, Run, RunStatus

_DECIDED = (Interrupt.Status.DECIDED, Interrupt.Status.EXPIRED)


def way_on(run: Run, waits: Exchange | None) -> str:
    """I1: who waits, waits for somebody who can end it; empty where that is so."""
    if run.status != RunStatus.WAITING:
        return ""
    if waits is None or waits.kind not in ("human_call", "child_run"):
        return "I1: the run waits, and its last move asks nobody who could answer"
    if waits.answer_json is not None:
        return "I1: the run waits for what has been answered"
    if waits.kind == "human_call":
        asked = Interrupt.objects.filter(run=run, seq=waits.seq, status=Interrupt.Status.PENDING)
        return "" if asked.exists() else "I1: the run waits for a question that is not open"
    child = Run.objects.filter(parent=run, parent_seq=waits.seq, ended_at__isnull=True)
    return "" if child.exists() else "I1: the run waits for a child that is not there or has ended"


def effects_of(run: Run) -> Iterator[tuple[int, str]]:
    """I4, as far as the database knows: a key is that of one ask, or of the attempts at one call."""
    shared = run.exchanges.filter(kind="tool_call").values("key").annotate(times=Count("pk"))
    for key in shared.filter(times__gt=1).values_list("key", flat=True):
        attempts = list(run.exchanges.filter(key=key).order_by("seq").values_list("seq", "attempt"))
        if [attempt for _, attempt in attempts] != list(range(1, len(attempts) + 1)):
            yield attempts[-1][0], "I4: its key is that of another call"


def decisions_of(run: Run) -> Iterator[tuple[int, str]]:
    """I5: a question that was decided has one decision, the ask has its answer, and the call is the one shown."""
    decided = {one.interrupt_id: one for one in Decision.objects.filter(interrupt__run=run)}
    answers = dict(run.exchanges.filter(kind="human_call").values_list("seq", "answer_json"))
    for interrupt in run.interrupts.all():
        decision = decided.get(interrupt.pk)
        if (decision is not None) != (interrupt.status in _DECIDED):
            yield interrupt.seq, f"I5: its question is {interrupt.status}, and its decision says otherwise"
        elif decision is not None:
            yield from _flaws(run, interrupt, decision, answers.get(interrupt.seq))


def _flaws(
    run: Run, interrupt: Interrupt, decision: Decision, answer: str | None
) -> Iterator[tuple[int, str]]:
    if answer is None or json.loads(answer).get("verdict") != decision.verdict:
        yield interrupt.seq, f"I5: {decision.by_name} decided {decision.verdict}, and its answer is another"
    if decision.fingerprint_seen and decision.fingerprint_seen != interrupt.fingerprint:
        yield interrupt.seq, "I5: who decided had seen another call"
    if interrupt.kind != "tool_call" or decision.verdict not in LET_PASS:
        return
    wanted = interrupt.fingerprint
    if decision.verdict == "edit" and decision.args_json:
        wanted = fingerprint(interrupt.tool, json.loads(decision.args_json))
    after = run.exchanges.filter(seq__gt=interrupt.seq, kind__in=("tool_call", "child_run"))
    first = after.order_by("seq").values_list("seq", "fingerprint").first()
    released = run.steps.filter(seq__gt=interrupt.seq, kind__in=("ask", "transition", "stop", "rewind"))
    next_move = released.order_by("seq").values_list("seq", flat=True).first()
    if first is not None and first[0] == next_move and first[1] != wanted:
        yield first[0], "I5: another call was released than the one that was approved"
