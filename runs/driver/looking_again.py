"""Check passed calls again: before an answer is used, and directly before a call.

See docs/runtime.md, "Questions".
"""

from __future__ import annotations

from runs.driver.position import Position
from runs.engine.effects import Answer, HumanCall, HumanSaid, ToolCall
from runs.engine.kernel import decide, looked_at_again
from runs.engine.moves import Ask, Move
from runs.engine.settling import Decision
from runs.engine.worker_questions import opened_anew, uncertain
from runs.store import deeds


def decided(at: Position, answer: Answer | None) -> Decision:
    """Return the kernel's decision. A person's answer counts while they may decide; else the question opens again."""
    snapshot = at.snapshot
    waits = snapshot.pending
    if isinstance(answer, HumanSaid) and waits is not None and isinstance(waits.effect, HumanCall):
        lapsed = deeds.lapsed_at(at.run.pk, waits.seq)
        if lapsed is not None:
            return Decision(opened_anew(snapshot, waits.effect, lapsed), snapshot.totals)
    return decide(at.machine, snapshot, answer)


def move_instead(at: Position) -> Move | None:
    """Return the move in place of the waiting call; None if it may begin after all.

    The gates check it under the rules in force, then the question of a lapsed answer opens again. A call tried before
    may have happened: a person decides.
    """
    run_id, waits = at.run.pk, at.snapshot.pending
    assert waits is not None and isinstance(waits.effect, ToolCall) and at.asked is not None
    move = looked_at_again(at.machine, at.snapshot, deeds.passed_before(run_id, waits.seq))
    lapsed = deeds.lapsed_before(run_id, waits.seq, at.host)
    if move == Ask(waits.effect, attempt=waits.attempt):
        if lapsed is None:
            return None
        move = opened_anew(at.snapshot, deeds.question_at(run_id, lapsed.question), lapsed)
    tried = at.asked.status == "started" or waits.attempt > 1
    if not tried or waits.effect.repeatable:
        return move
    question = uncertain(at.snapshot, "tried before")
    return Ask(question) if lapsed is None else opened_anew(at.snapshot, question, lapsed)
