"""What the gates let pass is looked at once more: before an answer is heard, and directly before the deed.

See docs/runtime.md, "Questions".
"""

from __future__ import annotations

from runs import store
from runs.driver.ledger import Ledger
from runs.engine.effects import Answer, HumanCall, HumanSaid, ToolCall
from runs.engine.kernel import Decision, decide, looked_at_again, opened_anew, uncertain
from runs.engine.moves import Ask, Move


def decided(ledger: Ledger, answer: Answer | None) -> Decision:
    """What the kernel decides. What a person said counts only while they may decide; else they are asked anew."""
    snapshot = ledger.snapshot
    waits = snapshot.pending
    if isinstance(answer, HumanSaid) and waits is not None and isinstance(waits.effect, HumanCall):
        lapsed = store.lapsed_at(ledger.run.pk, waits.seq)
        if lapsed is not None:
            return Decision(opened_anew(snapshot, waits.effect, lapsed), snapshot.totals)
    return decide(ledger.machine, snapshot, answer)


def move_instead(ledger: Ledger) -> Move | None:
    """What follows in place of the call that waits; None where it may begin after all.

    The gates look at it under the site's rules of now, then the question whose answer counts no more is opened anew.
    What was tried before may have happened: a person says what is to become of it.
    """
    ledger.follow(store.site_rules())
    run_id, waits = ledger.run.pk, ledger.snapshot.pending
    assert waits is not None and isinstance(waits.effect, ToolCall) and ledger.asked is not None
    move = looked_at_again(ledger.machine, ledger.snapshot, store.passed_before(run_id, waits.seq))
    lapsed = store.lapsed_before(run_id, waits.seq, ledger.host)
    if move == Ask(waits.effect, attempt=waits.attempt):
        if lapsed is None:
            return None
        move = opened_anew(ledger.snapshot, store.question_at(run_id, lapsed.question), lapsed)
    tried = ledger.asked.status == "started" or waits.attempt > 1
    if not tried or waits.effect.repeatable:
        return move
    question = uncertain(ledger.snapshot, "tried before")
    return Ask(question) if lapsed is None else opened_anew(ledger.snapshot, question, lapsed)
