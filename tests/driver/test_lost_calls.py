"""A call that can't be repeated, and nobody knows whether it happened: the far side is asked, and then a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from agentsite.celery import app
from runs import actions, driver, hints, tasks
from runs.adapters.tool import NotHappened
from runs.adapters.toolbox import MayHaveHappened
from runs.driver import worker as workers
from runs.engine.effects import Failed, ToolReturned
from runs.models import Decision, Run
from runs.reading.rollback import again
from runs.reading.rows import row_views
from runs.store import copying, decisions, errors, leases, log
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import decide, make_due, pending, transitions, work
from tests.stack import LONGEST_S
from tests.workers import Meddled, WorkerKilled, die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def lost_run() -> Run:
    """A run whose worker died in the middle of `send`."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    return run


def test_it_happened_and_its_result_is_used() -> None:
    run = lost_run()
    world = slice_of(run, far_side=ToolReturned(value="in the outbox"))
    assert world.calls == ["decision"]
    exchange = run.exchanges.get(name="send")
    assert (exchange.status, exchange.nth) == ("answered", 1)
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert not run.interrupts.exists()


def test_it_did_not_happen_and_is_made_anew_under_another_key() -> None:
    """Under the old key the far side takes nothing any more: the worker that was frozen may wake up."""
    run = lost_run()
    world = slice_of(run, far_side=NotHappened.FOR_SURE)
    first, second = run.exchanges.filter(name="send").order_by("seq")
    assert (first.status, second.status) == ("started", "answered")
    assert world.keys == [second.key] and first.key != second.key
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert run.steps.filter(kind="ask", facts_json__contains="not_happened").count() == 1


def test_the_rows_say_that_the_tool_was_asked_and_what_it_said() -> None:
    """Of a call whose worker was lost, and of one that was cut off; of one that was answered they say nothing."""
    happened, anew, cut, answered = (
        lost_run(),
        lost_run(),
        *(launch(think("send", to="bob"), FINAL, rules=ALLOW) for _ in range(2)),
    )
    slice_of(happened, far_side=ToolReturned(value="in the outbox"))
    slice_of(anew, far_side=NotHappened.FOR_SURE)
    slice_of(cut, after=cut_off, only="send", far_side=ToolReturned(value="in the outbox"))
    work(answered)
    rows = {run: [row.summary for row in row_views(run)] for run in (happened, anew, cut, answered)}
    for run in (happened, cut):
        assert "Result (send, learned by asking the tool): in the outbox" in rows[run]
        told = run.steps.get(facts_json__contains="found_out").facts_json
        assert "The outcome of send was unknown. The tool was asked and says that the call happened." in told
    why = "The worker stopped mid-call. send says that the call did not happen, so the worker retries it."
    assert f'Calls (retried): {why} send(to="bob")' in rows[anew]
    assert "Result (send): sent 1" in rows[anew] and "Result (send): sent 1" in rows[answered]
    for run in rows:
        assert run.status == "succeeded"
        assert actions.replay(run, by=None)[1] is None


def test_a_worker_that_dies_after_it_has_asked_leaves_the_same_question() -> None:
    run = lost_run()
    die_in(run, before=kill, only="send", far_side=NotHappened.FOR_SURE)
    slice_of(run, far_side=NotHappened.FOR_SURE)
    assert run.exchanges.filter(name="send", status="started").count() == 2
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_where_nobody_can_tell_a_person_is_asked() -> None:
    run = lost_run()
    work(run)
    assert pending(run).kind == "may_have_happened"
    decide(run, "respond", message="it was sent")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


SEARCH_IS_ASKED = [{"when": {"tool": "send"}, "do": "allow"}, {"when": {"tool": "search"}, "do": "ask"}]


def lost_before_a_question(**settings: Any) -> Run:
    """A run whose worker died in `send`, and that would ask before `search`."""
    replies = (think("send", to="bob"), think("search", q="a"), FINAL)
    run = launch(*replies, rules=SEARCH_IS_ASKED, **settings)
    die_in(run, after=kill, only="send")
    return work(run)


def test_an_answer_that_was_given_at_launch_is_for_another_question() -> None:
    run = lost_before_a_question(answers=[{"verdict": "approve"}])
    assert (run.status, pending(run).kind) == ("waiting", "may_have_happened")
    assert run.exchanges.filter(name="send").count() == 1
    decide(run, "respond", message="it was sent")
    work(run)
    answers = Decision.objects.filter(interrupt__run=run).order_by("interrupt__seq")
    assert [(one.interrupt.kind, one.channel) for one in answers] == [
        ("may_have_happened", "command"),
        ("tool_call", "settings"),
    ]
    assert run.status == "succeeded"


def test_an_answer_that_is_kept_does_not_say_of_another_call_whether_it_happened() -> None:
    run = lost_before_a_question()
    before = max(seq for seq in transitions(run) if seq < pending(run).seq)
    decide(run, "approve")
    work(run)
    assert pending(run).tool == "search"
    actions.rewind(run, to=before, by=None, answers="keep")
    die_in(run, after=kill, only="send")
    work(run)
    assert (run.status, pending(run).kind) == ("waiting", "may_have_happened")


def test_another_answer_in_a_fork_is_for_a_question_that_comes_again() -> None:
    run = lost_before_a_question()
    decide(run, "respond", message="it was sent")
    work(run)
    decide(run, "approve")
    work(run)
    assert [one.title for one in again(run, 0).answered] == [run.interrupts.get(kind="tool_call").title]
    forked = work(actions.fork(run, at=0, by=None, decision={"verdict": "reject", "message": "no"}))
    assert Decision.objects.get(interrupt__run=forked).interrupt.tool == "search"
    assert forked.status == "succeeded"


def cut_off() -> None:
    """The line breaks after the call was sent."""
    raise MayHaveHappened("send")


def test_a_call_that_was_cut_off_is_not_made_again_by_itself() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    world = slice_of(run, after=cut_off, only="send")
    assert world.calls == ["decision", "send"]
    question = pending(run)
    assert (question.kind, run.status) == ("may_have_happened", "waiting")
    assert question.why == (
        "The call was cut off without an answer; the outcome is unknown. A second call may cause harm."
    )
    decide(run, "respond", message="it was sent")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_that_the_tool_was_asked_and_could_not_tell_is_said_too() -> None:
    """Of a call that was cut off, and of one whose worker was lost."""
    cut, lost = launch(think("send", to="bob"), FINAL, rules=ALLOW), lost_run()
    slice_of(cut, after=cut_off, only="send", far_side_is_silent=True)
    slice_of(lost, far_side_is_silent=True)
    told = "send can't tell whether the call happened. A second call may cause harm."
    causes = {
        cut: "The call was cut off without an answer; the outcome is unknown.",
        lost: "The worker stopped mid-call; the outcome is unknown.",
    }
    for run, cause in causes.items():
        assert pending(run).why == f"{cause} {told}"
        decide(run, "respond", message="it was sent")
        assert work(run).status == "succeeded"
        assert actions.replay(run, by=None)[1] is None


def test_a_call_that_was_cut_off_is_asked_about_at_the_far_side() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    slice_of(run, after=cut_off, only="send", far_side=ToolReturned(value="sent"))
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert not run.interrupts.exists()


def never_happens(run: Run, after: Callable[[], None] = cut_off) -> Meddled:
    """A slice in which the line breaks at `send`, which the far side says did not happen. It calls once."""
    called: list[int] = []

    def once() -> None:
        called.append(1)
        if len(called) > 1:
            raise WorkerKilled
        after()

    return slice_of(run, after=once, only="send", far_side=NotHappened.FOR_SURE)


def test_a_call_that_was_cut_off_and_did_not_happen_is_tried_three_times_in_all() -> None:
    """No worker waits in between, and each attempt has a key of its own: the far side has closed those before."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    never_happens(run)
    assert (run.status, run.worker) == ("queued", "")
    assert leases.claim(run.pk, "too early") is None
    never_happens(run)
    never_happens(run)
    tried = run.exchanges.filter(name="send").order_by("seq")
    assert [(one.status, one.attempt) for one in tried] == [("answered", 1), ("answered", 2), ("answered", 3)]
    assert len({one.key for one in tried}) == 3
    assert (run.status, run.tool_calls) == ("succeeded", 0)
    fact = json.loads(run.steps.filter(edge="executed")[0].facts_json)[0]
    assert (fact["error"], fact["ran"]) == ("send was cut off and says that the call did not happen.", False)
    assert copying.totals_at(run, run.head).tool_calls == 0
    assert actions.replay(run, by=None)[1] is None


def test_an_attempt_whose_worker_was_lost_is_made_anew_and_is_no_other_attempt() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    never_happens(run)
    die_in(run, before=kill, only="send", far_side=NotHappened.FOR_SURE)
    slice_of(run, far_side=NotHappened.FOR_SURE)
    tried = run.exchanges.filter(name="send").order_by("seq")
    assert [one.attempt for one in tried] == [1, 2, 2]
    assert len({one.key for one in tried}) == 3
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert actions.replay(run, by=None)[1] is None


def test_a_key_that_is_closed_stays_so_where_the_next_attempt_is_another_workers_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)

    def failing(batch: log.Batch) -> str:
        raise OperationalError("the connection was closed")

    def broken() -> None:
        monkeypatch.setattr(workers, "commit", failing)
        cut_off()

    with pytest.raises(OperationalError):
        never_happens(run, broken)
    monkeypatch.undo()
    assert slice_of(run).calls == []
    world = slice_of(run)
    first, second = run.exchanges.filter(name="send").order_by("seq")
    assert world.keys == [second.key] and first.key != second.key
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_call_that_kills_its_workers_is_asked_about_though_it_is_made_anew_each_time() -> None:
    run = lost_run()
    for lost in range(1, leases.MOST_LOST):
        die_in(run, before=kill, only="send", far_side=NotHappened.FOR_SURE)
        assert leases.lost_in_a_row(run) == lost
    work(run)
    assert (run.status, run.tool_calls) == ("waiting", 0)
    assert pending(run).kind == "may_have_happened"
    assert run.exchanges.filter(name="send").count() == leases.MOST_LOST
    assert actions.replay(run, by=None)[1] is None
    decide(run, "reject")
    work(run)


@pytest.mark.parametrize("hours", [-1, 1])
def test_what_is_due_the_databases_clock_says(hours: int) -> None:
    """The clock of a process jumps: its runs are due all the same, and the leases of others hold."""
    run = launch(think("search", q="tides"), FINAL)
    right = timezone.now
    held = launch(FINAL)
    leases.claim(held.pk, "alpha")

    def wrong() -> Any:
        return right() + timedelta(hours=hours)

    timezone.now = wrong
    try:
        assert list(Run.objects.due().values_list("pk", flat=True)) == [run.pk]
        decisions.pause(run.pk, "the operator")
        decisions.resume(run.pk, "the operator")
        assert list(Run.objects.due().values_list("pk", flat=True)) == [run.pk]
    finally:
        timezone.now = right
    assert work(run).status == "succeeded"


def test_what_was_resumed_in_this_millisecond_is_due() -> None:
    run = launch(FINAL)
    for _ in range(20):
        decisions.pause(run.pk, "the operator")
        decisions.resume(run.pk, "the operator")
        assert list(Run.objects.due().values_list("pk", flat=True)) == [run.pk]


def test_a_pin_queues_by_the_databases_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a web process is an hour ahead."""
    run = launch(think("search", q="a"), FINAL, context={"limit_tokens": 50_000})
    right = timezone.now

    def pinned() -> None:
        monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=1))
        actions.compact_now(Run.objects.get(pk=run.pk), by=None)
        monkeypatch.undo()

    with pytest.raises(errors.Fenced):
        slice_of(run, before=pinned)
    assert Run.objects.due().filter(pk=run.pk).exists()


def test_a_terminals_clock_does_not_say_how_long_a_run_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an hour behind."""
    run = launch({"$error": "transient"}, FINAL)
    right, slept = timezone.now, []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        make_due(run.pk)

    monkeypatch.setattr(timezone, "now", lambda: right() - timedelta(hours=1))
    monkeypatch.setattr(driver.time, "sleep", sleep)
    assert driver.drive_inline(run.pk).status == "succeeded"
    assert len(slept) == 1 and slept[0] <= 1, "the second attempt comes after a second"


@pytest.mark.parametrize("woken_by", ["the sweep", "the end of a halt"])
def test_a_silent_broker_holds_up_whoever_hints_once_and_not_for_every_run(
    woken_by: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    asked: list[int] = []

    def silent(name: str, args: tuple[int], **_: Any) -> None:
        asked.append(args[0])
        raise TimeoutError("the broker says nothing")

    runs = [launch(FINAL) for _ in range(3)]
    settings.HINTS = True
    monkeypatch.setattr(app, "send_task", silent)
    for run in runs:
        make_due(run.pk)
    if woken_by == "the sweep":
        assert tasks.sweep() == 0
    else:
        actions.halt_site(by=None, reason="")
        assert actions.unhalt_site(by=None) == 3
        assert hints.flush(LONGEST_S)
    assert len(asked) == 1 and asked[0] in {run.pk for run in runs}


@pytest.mark.parametrize("verdict", ["respond", "reject", "approve"])
def test_an_answer_that_comes_after_the_question_is_kept_beside_the_persons_and_counts_once(
    verdict: str,
) -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    journey = die_in(run, worker="frozen", after=kill, only="send")
    work(run)
    assert pending(run).kind == "may_have_happened"
    journey.keep(journey.at.asked, ToolReturned(value="sent 1"))
    decide(run, verdict, message="I have asked.")
    work(run)
    assert run.finished
    assert run.tool_calls == copying.totals_at(run, run.head).tool_calls == 1
    assert actions.replay(run, by=None)[1] is None


def test_an_attempt_that_answers_after_the_new_one_was_stopped_counts_once() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    frozen = die_in(run, worker="frozen", before=kill, only="send")
    second = die_in(run, worker="second", before=kill, only="send", far_side=NotHappened.FOR_SURE)
    second.keep(second.at.asked, ToolReturned(value="sent"))
    actions.abort(run, by=None)
    frozen.keep(frozen.at.asked, Failed(blame="recoverable", message="This key is closed."))
    run.refresh_from_db()
    assert (run.status, run.tool_calls) == ("cancelled", 1)


@pytest.mark.parametrize("late", ["before the new call", "after it"])
def test_an_attempt_that_answers_though_it_was_made_anew_counts_once(late: str) -> None:
    """The worker slept before the deed; the far side closed its key, said that nothing happened, and refuses it."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    frozen = die_in(run, worker="frozen", before=kill, only="send")

    def wake() -> None:
        frozen.keep(frozen.at.asked, Failed(blame="recoverable", message="This key is closed."))

    if late == "before the new call":
        slice_of(run, before=wake, only="send", far_side=NotHappened.FOR_SURE)
    else:
        slice_of(run, far_side=NotHappened.FOR_SURE)
        wake()
    run.refresh_from_db()
    assert [one.status for one in run.exchanges.filter(name="send")] == ["answered", "answered"]
    assert run.tool_calls == copying.totals_at(run, run.head).tool_calls == 1
    assert actions.replay(run, by=None)[1] is None
    executed = run.steps.filter(edge="executed").order_by("seq")[0]
    fork = actions.fork(run, at=executed.seq, by=None)
    assert fork.tool_calls == 1
