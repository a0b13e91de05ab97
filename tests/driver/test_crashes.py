"""The worker dies: every row of the table in docs/runtime.md, "Crashes", in this process and by kill -9 in another.

The tool with a ledger of its own (`EffectsLedger`) stands outside the database: what it says has happened has.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs import actions
from runs.driver import Slice, spool
from runs.engine.effects import ToolReturned
from runs.models import Run
from runs.store import errors, late_answers, leases, log
from tests.commands import launch_and_die
from tests.launching import ALLOW, FINAL, SEND, launch, script, think
from tests.running import decide, kinds, lose_worker, make_due, pending, work
from tests.workers import WorkerKilled, at_call, die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

KEYED = SEND | {"idempotent": True}
BUSY = [{"error": "busy", "kind": "transient"}, {"output": "three results"}]


def totals(run: Run) -> tuple[int, int, int, int, float]:
    return run.model_calls, run.tool_calls, run.input_tokens, run.output_tokens, run.cost_usd


# --- in this process ----------------------------------------------------------------------------------------------


def test_before_the_commit_of_an_ask_nothing_has_happened() -> None:
    """K2: the worker claims the run and is gone."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    leases.claim(run.pk, "doomed")
    lose_worker(run)
    work(run)
    assert kinds(run).count("recovered") == 1
    assert totals(run) == (2, 1, 200, 40, 0.002)


def test_a_model_call_is_made_again() -> None:
    """K3, K4: what was asked and not committed is asked again; the script gives the same reply."""
    run = launch(think("search", q="tides"), FINAL)
    die_in(run, before=kill, only="decision")
    assert kinds(run) == []
    work(run)
    assert run.status == "succeeded"
    assert totals(run) == (2, 1, 200, 40, 0.002)


def test_a_tool_that_only_reads_is_called_again() -> None:
    run = launch(think("search", q="tides"), FINAL)
    die_in(run, before=kill, only="search")
    world = slice_of(run)
    assert world.calls == ["search", "decision"]
    assert run.exchanges.filter(name="search").count() == 1
    assert totals(run) == (2, 1, 200, 40, 0.002)


def test_a_deed_without_an_answer_is_a_persons_to_judge() -> None:
    """K5, K6, K7: `send` was started; nobody knows whether it happened."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    assert run.exchanges.get(name="send").status == "started"
    work(run)
    assert run.status == "waiting"
    question = pending(run)
    assert (question.kind, question.tool, question.args) == ("may_have_happened", "send", {"to": "bob"})
    assert question.verdicts == ["approve", "respond", "reject", "abort", "rollback"]


def uncertain_run() -> Run:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    return work(run)


def test_it_may_have_happened_and_is_run_again() -> None:
    run = uncertain_run()
    decide(run, "approve")
    world = slice_of(run)
    assert world.calls == ["send", "decision"]
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def result_in(facts: str) -> Any:
    """What came of the call, as a step's facts say."""
    return next(fact for fact in json.loads(facts) if fact["kind"] == "react.tool.result")


def test_it_may_have_happened_and_a_person_enters_the_result() -> None:
    run = uncertain_run()
    decide(run, "respond", message="It is in the outbox.")
    world = slice_of(run)
    assert world.calls == ["decision"]
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    row = run.steps.get(edge="executed", facts_json__contains="It is in the outbox.")
    assert result_in(row.facts_json)["value"] == "It is in the outbox."


def test_it_may_have_happened_and_counts_as_failed() -> None:
    run = uncertain_run()
    decide(run, "reject", message="The provider knows of nothing.")
    slice_of(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    row = run.steps.filter(edge="executed").order_by("seq")[0]
    assert result_in(row.facts_json)["error"] == "The provider knows of nothing."


def test_it_may_have_happened_and_the_run_is_stopped_or_goes_back() -> None:
    run = uncertain_run()
    decide(run, "abort")
    assert work(run).exit_reason == "aborted"
    other = uncertain_run()
    decide(other, "rollback", to_step=2)
    work(other)
    assert other.status == "succeeded"
    assert other.tool_calls == 1


def test_a_tool_that_knows_its_key_is_called_again_with_the_same_key() -> None:
    run = launch(played=script(think("send", to="bob"), FINAL, tools={"send": KEYED}), rules=ALLOW)
    die_in(run, before=kill, only="send")
    world = slice_of(run)
    assert world.calls == ["send", "decision"]
    assert world.keys == [run.exchanges.get(name="send").key]
    assert not run.interrupts.exists()
    assert totals(run) == (2, 1, 200, 40, 0.002)


def test_an_answer_that_was_saved_is_used_and_nothing_is_done_or_paid_twice() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    exchange = run.exchanges.get(name="send")
    asked = log.Asked(
        exchange.seq, exchange.kind, exchange.name, exchange.request_json, "started", exchange.key, nth=1
    )
    asked.answered(ToolReturned(value="sent, and saved"))
    late_answers.keep_answer(run.pk, run.epoch, asked, 0.0, written=True)
    world = slice_of(run)
    assert world.calls == ["decision"]
    assert totals(run) == (2, 1, 200, 40, 0.002)


def test_a_paid_reply_whose_ask_is_written_is_saved_and_used() -> None:
    """The second reply of a thought is asked for by a row that is written; its answer is kept by the fenced worker."""
    run = launch("no JSON", FINAL)

    def taken_over() -> None:
        lose_worker(run)
        assert leases.claim(run.pk, "beta") is not None

    with pytest.raises(errors.Fenced):
        slice_of(run, after=at_call(2, taken_over))
    saved = run.exchanges.get(attempt=1, seq=2)
    assert (saved.status, saved.cost_usd) == ("answered", 0.001)
    run.refresh_from_db()
    assert run.cost_usd == 0.001
    lose_worker(run)
    assert slice_of(run).calls == []
    assert totals(run) == (2, 0, 200, 40, 0.002)
    assert run.status == "succeeded"


def test_a_transient_failure_waits_in_a_row_and_no_worker_waits_for_it() -> None:
    flaky = SEND | {"results": [{"error": "busy", "kind": "transient"}, {"output": "sent"}]}
    run = launch(played=script(think("send", to="bob"), FINAL, tools={"send": flaky}), rules=ALLOW)
    slice_of(run)
    assert (run.status, run.worker) == ("queued", "")
    assert leases.claim(run.pk, "alpha") is None
    first, second = run.exchanges.filter(name="send").order_by("seq")
    assert (first.status, second.status, second.attempt) == ("answered", "asked", 2)
    assert first.key == second.key
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_worker_that_dies_in_the_second_attempt_leaves_a_question_too() -> None:
    flaky = SEND | {"results": [{"error": "busy", "kind": "transient"}, {"output": "sent"}]}
    run = launch(played=script(think("send", to="bob"), FINAL, tools={"send": flaky}), rules=ALLOW)
    slice_of(run)
    die_in(run, before=kill, only="send")
    work(run)
    assert pending(run).kind == "may_have_happened"
    decide(run, "approve")
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_after_the_commit_viewers_catch_up_and_nothing_is_lost() -> None:
    """K8: the row is there, and nobody was told."""
    run = launch(think("search", q="tides"), FINAL)
    die_in(run, before=kill, only="search")
    committed = run.steps.count()
    assert committed == 3
    assert work(run).status == "succeeded"
    assert kinds(run)[: committed + 1] == ["ask", "transition", "transition", "recovered"]


def test_a_given_answer_is_written_with_its_question_and_the_next_worker_goes_on_from_it() -> None:
    """A worker dies as soon as they are written."""
    run = launch(think("send", to="bob"), FINAL, answers=[{"verdict": "approve"}])
    make_due(run.pk)
    lease = leases.claim(run.pk, "doomed")
    assert lease is not None
    from runs.driver.holds import held
    from runs.driver.worker import Worker

    class Doomed(Worker):
        """Dies as soon as it has nothing to do."""

        def _parked(self) -> bool:
            raise WorkerKilled

    with held(lease) as hold, pytest.raises(WorkerKilled):
        Doomed(hold).drive(Slice())
    assert run.interrupts.get().status == "decided"
    lose_worker(run)
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert run.interrupts.get().decision.channel == "settings"


def lose_workers(run: Run, times: int) -> None:
    for _ in range(times):
        lose_worker(run)
        assert leases.claim(run.pk, "doomed") is not None
    lose_worker(run)


def test_after_three_lost_workers_a_person_is_asked_whether_the_run_goes_on(client: Client) -> None:
    run = launch(FINAL)
    lose_workers(run, leases.MOST_LOST)
    work(run)
    assert (run.status, run.model_calls) == ("waiting", 0)
    question = pending(run)
    assert question.kind == "manual"
    assert question.title == "3 workers in a row stopped while they drove this run. Try again?"
    client.force_login(User.objects.create_superuser("alice"))
    for address in ("interrupt", "admin:runs_interrupt_change"):
        page = client.get(reverse(address, args=[question.pk])).text
        assert question.title in page and "log first." in page and "Continue" in page
    decide(run, "resume")
    assert work(run).status == "succeeded"


def test_a_call_that_waits_for_its_next_attempt_is_held_by_that_question() -> None:
    busy = {"search": {"params": {"q": "string"}, "effects": "read", "results": BUSY}}
    run = launch(played=script(think("search", q="tides"), FINAL, tools=busy))
    slice_of(run)
    make_due(run.pk)
    lose_workers(run, leases.MOST_LOST)
    work(run)
    question = pending(run)
    assert (question.kind, question.tool, question.args) == ("manual", "search", {"q": "tides"})
    decide(run, "resume")
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_call_with_a_key_that_kills_its_workers_is_asked_about_as_one_that_may_have_happened() -> None:
    run = launch(played=script(think("keyed", to="bob"), FINAL, tools={"keyed": KEYED}), rules=ALLOW)
    for _ in range(leases.MOST_LOST):
        die_in(run, before=kill, only="keyed")
    work(run)
    assert (pending(run).kind, pending(run).tool) == ("may_have_happened", "keyed")
    decide(run, "respond", message="sent")
    assert work(run).status == "succeeded"


def test_three_faults_of_our_own_code_end_the_run_with_the_fault_in_its_last_step() -> None:
    run = launch(FINAL)
    for _ in range(leases.MOST_LOST):
        make_due(run.pk)
        lease = leases.claim(run.pk, "alpha")
        assert lease is not None
        leases.postpone(lease, 30, ValueError("no such thing"))
        leases.let_go(lease)
    work(run)
    assert (run.status, run.exit_reason) == ("failed", "fatal_error")
    assert "ValueError: no such thing" in run.steps.get(kind="stop").facts_json


def test_an_answer_that_waits_for_a_worker_is_kept_while_a_person_looks_why_they_are_lost() -> None:
    """A further question would take its place: the run is paused, and hears it once it is resumed."""
    run = launch(think("send", to="bob"), FINAL)
    work(run)
    decide(run, "approve")
    lose_workers(run, leases.MOST_LOST)
    work(run)
    assert (run.status, run.worker, run.tool_calls) == ("paused", "", 0)
    told = json.loads(run.steps.get(kind="pause").facts_json)[0]
    assert told["by"] == "the runtime"
    assert told["message"] == (
        "3 workers in a row stopped while they drove this run. The answer for it is kept. "
        "Check the worker's log, then resume the run."
    )
    lose_worker(run)
    assert leases.claim(run.pk, "another") is None, "no further worker is lost on it"
    actions.resume(run, by=None)
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)
    assert actions.replay(run, by=None)[1] is None


def test_the_answer_of_a_call_is_kept_so_too() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    late = die_in(run, after=kill, only="send")
    late.keep(late.at.asked, ToolReturned(value="sent 1"))
    lose_workers(run, leases.MOST_LOST - 1)
    assert work(run).status == "paused"
    actions.resume(run, by=None)
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)
    assert run.exchanges.filter(name="send").count() == 1


@pytest.mark.parametrize(
    ("faults", "title"),
    [
        (1, "2 workers stopped and 1 met a fault while they drove this run. Try again?"),
        (2, "1 worker stopped and 2 met a fault while they drove this run. Try again?"),
    ],
)
def test_the_question_after_lost_workers_says_which_met_a_fault(faults: int, title: str) -> None:
    run = launch(FINAL)
    for _ in range(faults):
        make_due(run.pk)
        lease = leases.claim(run.pk, "alpha")
        assert lease is not None
        leases.postpone(lease, 30, ValueError("no such thing"))
        leases.let_go(lease)
    make_due(run.pk)
    lose_workers(run, leases.MOST_LOST - faults)
    work(run)
    assert pending(run).title == title
    decide(run, "resume")
    assert work(run).status == "succeeded"
    assert actions.replay(run, by=None)[1] is None


def test_a_fault_beside_lost_workers_ends_no_run() -> None:
    run = launch(FINAL)
    lose_workers(run, leases.MOST_LOST - 1)
    lease = leases.claim(run.pk, "alpha")
    assert lease is not None
    leases.postpone(lease, 30, ValueError("the disk was full for a moment"))
    leases.let_go(lease)
    make_due(run.pk)
    work(run)
    assert (run.status, pending(run).kind) == ("waiting", "manual")
    decide(run, "resume")
    assert work(run).status == "succeeded"


def left_in_a_call(run: Run) -> None:
    """A worker takes the run, and gives it back in the middle of a model call of a limited run."""
    lease = leases.claim(run.pk, "leaving")
    assert lease is not None
    Run.objects.filter(pk=run.pk).update(reserved_tokens=1, reserved_epoch=lease.epoch)
    assert leases.hand_back(lease)


def test_a_worker_that_leaves_a_model_call_in_order_is_not_lost() -> None:
    """Its row is there all the same, for what the call may have used."""
    run = launch(FINAL)
    for _ in range(leases.MOST_LOST):
        left_in_a_call(run)
    assert work(run).status == "succeeded"
    told = run.steps.filter(kind="recovered").values_list("facts_json", flat=True)
    assert len(told) == leases.MOST_LOST
    assert not any("another one continues" in text for text in told)
    assert run.output_tokens == 20 + leases.MOST_LOST


def test_what_comes_of_a_call_that_was_handed_back_is_refused() -> None:
    run = launch(FINAL)
    lease = leases.claim(run.pk, "leaving")
    assert lease is not None
    assert leases.hand_back(lease) and not leases.hand_back(lease)
    run.refresh_from_db()
    assert run.epoch == lease.epoch + 1, "each write names the epoch of its lease"


def test_only_the_worker_that_has_a_run_hands_it_back() -> None:
    run, other = launch(FINAL), launch(FINAL)
    lease, its = leases.claim(run.pk, "leaving"), leases.claim(other.pk, "working")
    assert lease is not None and its is not None
    assert lease.epoch == its.epoch
    stale = [
        replace(lease, epoch=lease.epoch - 1),
        replace(lease, worker="before"),
        replace(its, worker="leaving"),
    ]
    assert not any(map(leases.hand_back, stale))
    assert set(Run.objects.values_list("status", flat=True)) == {"running"}
    assert leases.hand_back(lease)
    run.refresh_from_db()
    other.refresh_from_db()
    assert (run.status, other.status) == ("queued", "running")


def test_a_run_that_a_person_has_paused_is_not_handed_back() -> None:
    run = launch(FINAL)
    lease = leases.claim(run.pk, "leaving")
    assert lease is not None
    Run.objects.filter(pk=run.pk).update(status="paused")
    assert not leases.hand_back(lease)


def test_a_worker_that_leaves_between_two_that_are_lost_is_no_move() -> None:
    run = launch(FINAL)
    for _ in range(2):
        left_in_a_call(run)
        assert leases.claim(run.pk, "doomed") is not None
        lose_worker(run)
    assert leases.claim(run.pk, "next") is not None
    assert leases.lost_in_a_row(run) == 2
    lose_worker(run)
    work(run)
    assert pending(run).kind == "manual", "three were lost, and none of the two that left counts"
    decide(run, "resume")
    assert work(run).status == "succeeded"


# --- kill -9 ------------------------------------------------------------------------------------------------------

PLACES = [
    "after_claim:kill9",
    *(f"between_moves:kill9:{nth}" for nth in range(1, 10)),
    "before_conclusion_commit:kill9",
    "before_conclusion_commit:kill9:3",
    "after_commit_before_ring:kill9",
    "after_commit_before_ring:kill9:2",
    "after_effect:kill9",
]


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_the_run_goes_on_with_exact_totals(place: str) -> None:
    run = launch_and_die(script(think("search", q="tides"), FINAL), place)
    work(run)
    assert run.status == "succeeded"
    assert totals(run) == (2, 1, 200, 40, 0.002)
    assert kinds(run).count("recovered") == 1
    assert kinds(run).count("transition") == 10


def test_killed_before_the_intent_of_a_deed_is_written_nobody_is_asked_about_it() -> None:
    played = script(think("send", to="bob"), FINAL)
    run = launch_and_die(played, "before_ask_commit:kill9", rules=ALLOW)
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)
    assert not run.interrupts.exists()


def test_killed_before_a_deed_ended_a_person_says_whether_it_happened() -> None:
    played = script(think("send", to="bob"), FINAL)
    run = launch_and_die(played, "after_started:kill9", rules=ALLOW)
    work(run)
    assert pending(run).kind == "may_have_happened"
    decide(run, "respond", message="it was sent")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


AFTER_A_DEED = "after_effect:kill9:2"
"""The call has ended, and the database has not heard of it."""


@pytest.mark.parametrize("tool", [SEND, KEYED])
def test_an_answer_that_the_database_never_got_is_taken_from_the_disk(tool: dict[str, Any]) -> None:
    run = launch_and_die(
        script(think("send", to="bob"), FINAL, tools={"send": tool}), AFTER_A_DEED, rules=ALLOW
    )
    assert run.exchanges.get(name="send").status == "started"
    world = slice_of(run)
    assert world.calls == ["decision"], "the call has ended: it is neither made again nor asked about"
    assert totals(run) == (2, 1, 200, 40, 0.002)
    assert not run.interrupts.exists()
    assert not spool.path_of(run.exchanges.get(name="send").key).exists()


def test_an_answer_that_nobody_asks_for_is_forgotten_after_a_week(tmp_path: Path, settings: Any) -> None:
    settings.DATA_DIR = tmp_path
    answer = ToolReturned(value="sent")
    spool.put("old", answer)
    os.utime(spool.path_of("old"), (0, 0))
    spool.put("new", answer)
    assert (spool.get("old"), spool.get("new")) == (None, answer)


@pytest.mark.parametrize("kept", ["", "{", "[]", '{"kind": "nothing"}'])
def test_a_kept_answer_that_can_not_be_read_is_none(kept: str) -> None:
    run = launch_and_die(script(think("send", to="bob"), FINAL), AFTER_A_DEED, rules=ALLOW)
    spool.path_of(run.exchanges.get(name="send").key).write_text(kept)
    work(run)
    assert pending(run).kind == "may_have_happened"
    decide(run, "reject")
    work(run)


def test_killed_before_a_deed_with_a_key_ended_it_is_done_once() -> None:
    played = script(think("send", to="bob"), FINAL, tools={"send": KEYED})
    run = launch_and_die(played, "after_started:kill9", rules=ALLOW)
    world = slice_of(run)
    assert world.calls == ["send", "decision"]
    assert world.keys == [run.exchanges.get(name="send").key]
    assert totals(run) == (2, 1, 200, 40, 0.002)
