"""A restored run, its forks and its children ask before each call that changes something: it may have been made."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from runs import actions, tasks
from runs.driver import Slice
from runs.models import Interrupt, Run
from runs.reading.cards import card_of
from runs.store import backups
from runs.store.restored import resume_restored
from tests.launching import ALLOW, FINAL, SEND, launch, script, think
from tests.running import decide, pending, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

TO_BOB = think("send", to="bob")
INNER = {"inner": {"machine": "ruled", "settings": {"rules": ALLOW}}}
DEADLINE = {"when": {"tool": "send"}, "do": "ask", "deadline_s": 3600, "on_timeout": "approve"}


def restored(run: Run) -> Run:
    """The run after a restore, resumed by a person and driven as far as it goes."""
    backups.pause_unfinished("Restored from a backup.")
    resume_restored(run.pk, "root")
    return work(Run.objects.get(pk=run.pk))


def sent(run: Run) -> int:
    """How often the run has sent something."""
    return run.exchanges.filter(name="send", kind="tool_call", nth__gt=0).count()


def is_asked_first(run: Run) -> None:
    """The run waits with its call not made; with a person's yes it is made, once, and a replay comes out the same."""
    assert (run.status, sent(run)) == ("waiting", 0)
    assert card_of(pending(run), None).doubt and card_of(pending(run), None).wants_a_tick
    decide(run, "approve")
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert actions.replay(run, by=None)[1] is None


# --- whatever would let the call pass unasked ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        {"rules": ALLOW},
        {"rules": [{"when": {"effects": ["send"]}, "do": "notify"}]},
        {"answers": [{"verdict": "approve"}]},
        {},
    ],
    ids=["a rule allows it", "a rule notes it", "an answer given at launch", "it asks anyhow"],
)
def test_a_restored_run_asks_before_a_call_that_changes_something(parts: dict[str, Any]) -> None:
    is_asked_first(restored(launch(TO_BOB, FINAL, **parts)))


def test_it_asks_about_a_call_with_a_key_too() -> None:
    keyed = script(TO_BOB, FINAL, tools={"send": SEND | {"idempotent": True}})
    is_asked_first(restored(launch(played=keyed, rules=ALLOW)))


def test_it_asks_before_each_such_call() -> None:
    run = restored(launch(TO_BOB, think("send", to="eve"), FINAL, rules=ALLOW))
    decide(run, "approve")
    assert (work(run).status, sent(run), pending(run).args) == ("waiting", 1, {"to": "eve"})


def test_it_asks_about_no_call_that_changes_nothing() -> None:
    run = restored(launch(think("search", q="a"), FINAL, rules=ALLOW))
    assert (run.status, run.interrupts.count()) == ("succeeded", 0)


def test_a_rule_that_denies_is_not_asked_about() -> None:
    run = restored(launch(TO_BOB, FINAL, rules=[{"when": {"tool": "send"}, "do": "deny"}]))
    assert (run.status, sent(run), run.interrupts.count()) == ("succeeded", 0, 0)


def test_a_run_that_had_ended_is_not_restored() -> None:
    run = work(launch(FINAL, rules=ALLOW))
    backups.pause_unfinished("Restored from a backup.")
    assert Run.objects.get(pk=run.pk).restored_at is None


def test_a_run_that_a_person_had_paused_asks_too() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    actions.pause(run, by=None)
    backups.pause_unfinished("Restored from a backup.")
    actions.resume(Run.objects.get(pk=run.pk), by=None)
    is_asked_first(work(Run.objects.get(pk=run.pk)))


# --- where the run stood when the backup was made -----------------------------------------------------------------


def test_an_answer_that_was_given_before_the_restore_does_not_count_after_it() -> None:
    run = work(launch(TO_BOB, FINAL))
    decide(run, "approve")
    is_asked_first(restored(run))


def test_a_yes_that_was_given_between_two_restores_does_not_count_after_the_second() -> None:
    run = restored(launch(TO_BOB, FINAL, rules=ALLOW))
    decide(run, "approve")
    is_asked_first(restored(run))


def test_a_question_that_was_open_is_asked_once() -> None:
    """Its card says that the site was restored, so that the yes to it is enough."""
    run = restored(work(launch(TO_BOB, FINAL)))
    is_asked_first(run)
    assert run.interrupts.count() == 1


def test_arguments_that_a_person_wrote_after_the_restore_are_not_asked_about_again() -> None:
    run = restored(launch(TO_BOB, FINAL, rules=ALLOW))
    decide(run, "edit", args={"to": "eve"})
    assert (work(run).status, sent(run), run.interrupts.count()) == ("succeeded", 1, 1)
    assert actions.replay(run, by=None)[1] is None


def test_a_call_that_had_not_begun_yet_is_asked_about() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    slice_of(run, after=lambda: actions.halt_site(by=None, reason="x") and None, only="decision")
    actions.unhalt_site(by=None)
    is_asked_first(restored(run))


def failing_once(**parts: Any) -> Run:
    """A run that waits until it may try its call for the second time."""
    tool = SEND | {"results": [{"error": "busy", "kind": "transient"}, {"output": "sent"}]} | parts
    run = launch(played=script(TO_BOB, FINAL, tools={"send": tool}), rules=ALLOW)
    slice_of(run)
    assert (run.status, sent(run)) == ("queued", 1)
    return run


def test_a_call_that_is_to_be_tried_again_is_asked_about() -> None:
    run = restored(failing_once())
    assert (run.status, sent(run)) == ("waiting", 1)
    decide(run, "approve")
    assert (work(run).status, sent(run)) == ("succeeded", 2)
    assert actions.replay(run, by=None)[1] is None


def test_a_call_that_is_tried_again_under_its_key_is_not_asked_about() -> None:
    """The far side can tell it from the first one."""
    run = restored(failing_once(idempotent=True))
    assert (run.status, sent(run), run.interrupts.count()) == ("succeeded", 2, 0)
    assert len(set(run.exchanges.filter(name="send").values_list("key", flat=True))) == 1


def test_a_call_that_had_begun_is_asked_about() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    after = restored(run)
    assert (after.status, pending(after).kind) == ("waiting", "may_have_happened")


def test_a_deadline_that_approves_lets_no_call_pass_that_may_have_been_made() -> None:
    run = work(launch(TO_BOB, FINAL, rules=[DEADLINE]))
    run = restored(run)
    Interrupt.objects.filter(run=run).update(deadline=Now() - timedelta(seconds=1))
    tasks.sweep()
    assert run.interrupts.get().decision.verdict == "approve"
    after = work(Run.objects.get(pk=run.pk))
    assert (pending(after).deadline, after.interrupts.count()) == (None, 2)
    is_asked_first(after)


def test_room_that_is_made_elsewhere_lets_no_call_pass_that_may_have_been_made() -> None:
    run = work(launch(TO_BOB, FINAL, rules=ALLOW, limits={"cost_usd": 0.0005}))
    other = work(actions.fork(run, at=transitions(run)[0], by=None, settings={"limits": None}))
    restored(run)
    resume_restored(other.pk, "root")
    decide(run, "top_up", args={"cost_usd": 1.0})
    assert pending(other).kind == "limit"
    assert sent(work(other)) == 0


# --- what comes from a restored run -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1])
def test_a_fork_asks_from_whichever_step(at: int) -> None:
    run = launch(think("search", q="a"), TO_BOB, FINAL, rules=ALLOW)
    slice_of(run, Slice(moves=4))
    backups.pause_unfinished("Restored from a backup.")
    run.refresh_from_db()
    at = at and transitions(run)[0]
    fork = work(actions.fork(run, at=at, by=None))
    of_the_fork = work(actions.fork(fork, at=at, by=None))
    is_asked_first(fork)
    is_asked_first(of_the_fork)


def test_answers_that_are_kept_over_a_restore_let_no_call_pass() -> None:
    run = work(launch(TO_BOB, think("send", to="eve"), FINAL))
    decide(run, "approve")
    work(run)
    backups.pause_unfinished("Restored from a backup.")
    run.refresh_from_db()
    is_waiting = work(actions.fork(run, at=0, by=None, answers="keep"))
    assert (is_waiting.status, sent(is_waiting)) == ("waiting", 0)
    decided = work(actions.fork(run, at=0, by=None, decision={"verdict": "approve"}))
    assert (decided.status, sent(decided)) == ("waiting", 0)
    actions.rewind(run, to=transitions(run)[0], by=None, answers="keep")
    resume_restored(run.pk, "root")
    before = sent(run)
    assert (work(run).status, sent(run)) == ("waiting", before)


def test_a_child_that_is_started_after_the_restore_asks() -> None:
    inner = {"replies": {"decision": [TO_BOB, FINAL]}}
    played = script(think("agent.inner", goal="look"), FINAL, subgraphs={"inner": inner})
    parent = restored(launch(played=played, rules=ALLOW, subgraphs=INNER))
    child = work(parent.children.get())
    is_asked_first(child)
    assert work(parent).status == "succeeded"
