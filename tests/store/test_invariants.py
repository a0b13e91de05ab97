"""`verify` names the invariant of docs/invariants.md that does not hold beside the log: I1, I2, I4, I5."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runs import driver
from runs.models import Decision, Interrupt, Run, Step
from runs.store import verifying
from runs.store.log import Row
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import decide, pending, work

pytestmark = [pytest.mark.django_db(transaction=True)]


def why(run: Run) -> str:
    """What `verify` says."""
    misfit = verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run))
    return misfit.why if misfit else ""


def waiting_run() -> Run:
    return work(launch(think("send", to="bob"), FINAL))


def decided_run() -> Run:
    run = waiting_run()
    decide(run, "approve")
    return work(run)


def test_a_run_that_waits_for_nobody() -> None:
    run = launch(FINAL)
    Run.objects.filter(pk=run.pk).update(status="waiting")
    assert why(run).startswith("I1: the run waits, but its last move asks for no answer")


def test_a_run_that_waits_for_a_question_that_is_gone() -> None:
    run = waiting_run()
    assert why(run) == ""
    Interrupt.objects.filter(run=run).delete()
    assert why(run) == "I1: the run waits for a question that is not open"


def test_a_run_that_goes_on_after_its_end() -> None:
    run = work(launch(FINAL))
    last = run.steps.get(seq=run.head)
    row = Row(run.head + 1, "recovered", "end")
    digest = row.hashed(last.hash)
    columns = {"node": "end", "facts_json": "[]", "state_json": None, "ms": 0.0, "hash": digest}
    Step.objects.create(run=run, seq=row.seq, kind=row.kind, at=row.at, **columns)
    Run.objects.filter(pk=run.pk).update(head=row.seq, head_hash=digest)
    assert why(run) == "I2: a step of kind recovered follows the end of the run"


def test_one_key_for_two_calls() -> None:
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL, rules=ALLOW))
    assert why(run) == ""
    first, second = run.exchanges.filter(name="send").order_by("seq")
    run.exchanges.filter(pk=second.pk).update(key=first.key)
    assert why(run) == "I4: it has the key of another call"


def _unsaid(run: Run) -> None:
    Decision.objects.filter(interrupt__run=run).delete()


def _otherwise(run: Run) -> None:
    Decision.objects.filter(interrupt__run=run).update(verdict="reject")


def _unseen(run: Run) -> None:
    Decision.objects.filter(interrupt__run=run).update(fingerprint_seen="0" * 16)


def _other_call(run: Run) -> None:
    run.exchanges.filter(name="send").update(fingerprint="0" * 16)


@pytest.mark.parametrize("change", [_unsaid, _otherwise, _unseen, _other_call])
def test_a_decision_that_is_not_that_of_its_question(change: Callable[[Run], None]) -> None:
    run = decided_run()
    assert why(run) == ""
    change(run)
    assert why(run).startswith("I5: ")


def test_a_question_that_is_open_and_has_a_decision() -> None:
    run = waiting_run()
    open_one = pending(run)
    Decision.objects.create(interrupt=open_one, verdict="approve", by_name="eve", channel="web")
    assert why(run).startswith("I5: its question is pending")
