"""Limits, retries and rules as a driven run keeps them, and the worker's own threads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db.models.functions import Now

from runs import actions, driver
from runs.driver import Slice, holds
from runs.models import Run, ScriptText
from runs.store import leases
from tests.launching import ALLOW, FINAL, SEND, launch, script, think
from tests.running import decide, kinds, no_renewer, pending, transitions, work
from tests.stack import wait_for
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

THINKING = [think("search", q=str(number)) for number in range(8)]


def limited(name: str, limit: float, *replies: Any, **settings: Any) -> Run:
    return launch(*(replies or (*THINKING, FINAL)), limits={name: limit}, **settings)


# --- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "limit", "calls"),
    [
        ("cost_usd", 0, 0),
        ("cost_usd", 0.001, 1),
        ("cost_usd", 0.0015, 2),
        ("cost_usd", 0.002, 2),
        ("tokens", 0, 0),
        ("tokens", 120, 1),
        ("tokens", 121, 2),
        ("active_seconds", 0, 0),
    ],
)
def test_a_limit_is_reached_at_or_above_it_and_passed_by_one_call_at_most(
    name: str, limit: float, calls: int
) -> None:
    run = work(limited(name, limit))
    question = pending(run)
    assert (run.status, run.model_calls) == ("waiting", calls)
    assert (question.kind, question.limit) == ("limit", name)
    assert question.verdicts == ["top_up", "finish", "abort", "rollback"]
    used = {"cost_usd": run.cost_usd, "tokens": run.input_tokens + run.output_tokens}.get(name, 0)
    if name != "active_seconds":
        assert run.budgets.get(scope="limits", name=name).used == pytest.approx(used)


@pytest.mark.parametrize(
    ("name", "limit", "reason"),
    [("cost_usd", 0.001, "cost_limit"), ("tokens", 100, "token_limit"), ("active_seconds", 0, "time_limit")],
)
def test_on_limit_stop_ends_the_run_with_the_limits_reason(name: str, limit: float, reason: str) -> None:
    run = work(limited(name, limit, on_limit="stop"))
    assert (run.status, run.exit_reason, run.answer) == ("stopped", reason, None)
    assert kinds(run)[-1] == "stop"
    assert not run.interrupts.exists()


def test_limits_are_checked_in_the_order_cost_tokens_seconds() -> None:
    limits = {"active_seconds": 0, "tokens": 0, "cost_usd": 0}
    run = work(launch(FINAL, limits=limits, on_limit="stop"))
    assert run.exit_reason == "cost_limit"
    run = work(launch(FINAL, limits={"active_seconds": 0, "tokens": 0}, on_limit="stop"))
    assert run.exit_reason == "token_limit"


def test_a_top_up_adds_to_the_limit_and_the_held_call_goes_on() -> None:
    run = work(limited("cost_usd", 0.001))
    decide(run, "top_up", args={"cost_usd": 0.002})
    line = run.budgets.get(scope="limits", name="cost_usd")
    assert line.limit == 0.003
    assert kinds(run)[-2:] == ["decision", "limit"]
    work(run)
    assert (run.status, run.model_calls) == ("waiting", 3)
    assert pending(run).title == "Limit reached: cost_usd 0.003 of 0.003"
    decide(run, "top_up", args={"cost_usd": 1})
    assert work(run).status == "succeeded"


def test_a_top_up_of_another_limit_asks_again() -> None:
    run = work(launch(*THINKING, FINAL, limits={"cost_usd": 0.001, "tokens": 1000}))
    decide(run, "top_up", args={"tokens": 1000})
    work(run)
    assert (pending(run).limit, run.model_calls) == ("cost_usd", 1)
    assert run.budgets.get(scope="limits", name="tokens").limit == 2000
    decide(run, "top_up", args={"cost_usd": 1, "tokens": 1})
    assert work(run).status == "succeeded"


def test_a_limit_of_whole_numbers_takes_no_fraction() -> None:
    run = work(limited("tokens", 100))
    with pytest.raises(actions.BadDecision, match="tokens: add a whole number"):
        decide(run, "top_up", args={"tokens": 0.5})
    decide(run, "top_up", args={"tokens": 5000.0})
    work(run)
    assert run.status == "succeeded"
    assert work(actions.rerun(run, at=transitions(run)[-2], by=None)).status == "succeeded"


@pytest.mark.parametrize(
    ("args", "field"),
    [
        (None, "args.cost_usd"),
        ({}, "args.cost_usd"),
        ({"cost_usd": 0}, "args.cost_usd"),
        ({"cost_usd": -1}, "args.cost_usd"),
        ({"cost_usd": "much"}, "args.cost_usd"),
        ({"cost_usd": True}, "args.cost_usd"),
        ({"cost_usd": float("nan")}, "args.cost_usd"),
        ({"cost_usd": float("inf")}, "args.cost_usd"),
        ({"dollars": 1}, "args"),
        ({"tokens": 5}, "args.tokens"),
        ([1], "args"),
    ],
)
def test_a_top_up_that_makes_no_sense_is_refused_and_changes_nothing(args: Any, field: str) -> None:
    run = work(limited("cost_usd", 0.001))
    with pytest.raises(actions.BadDecision) as caught:
        decide(run, "top_up", args=args)
    assert caught.value.field == field
    assert run.budgets.get(scope="limits", name="cost_usd").limit == 0.001
    assert pending(run).kind == "limit"


def test_finish_makes_one_last_call_that_no_limit_holds() -> None:
    played = script(*THINKING) | {"replies": {"decision": THINKING, "fallback": ["This far I got."]}}
    run = work(launch(played=played, limits={"cost_usd": 0.001}))
    decide(run, "finish")
    work(run)
    assert (run.status, run.exit_reason) == ("stopped", "cost_limit")
    assert (run.answer, run.answer_source) == ("This far I got.", "fallback")
    assert (run.model_calls, run.cost_usd) == (2, 0.002)


def test_finish_with_a_call_that_fails_gives_a_fixed_sentence_naming_the_goal() -> None:
    run = work(limited("tokens", 100))
    decide(run, "finish")
    work(run)
    assert (run.status, run.exit_reason, run.answer_source) == ("stopped", "token_limit", "fallback")
    assert "Write a short report about tides" in (run.answer or "")
    assert run.model_calls == 1


def test_a_limit_holds_a_tool_call_too() -> None:
    run = work(launch(think("send", to="bob"), FINAL, limits={"cost_usd": 0.001}))
    question = pending(run)
    assert (question.kind, question.tool, run.tool_calls) == ("limit", "send", 0)
    decide(run, "top_up", args={"cost_usd": 1})
    work(run)
    assert pending(run).kind == "tool_call"
    decide(run, "approve")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_a_topped_up_limit_stays_so_after_a_rewind() -> None:
    run = work(limited("cost_usd", 0.001, cache=False))
    decide(run, "top_up", args={"cost_usd": 0.001})
    work(run)
    first = run.steps.filter(kind="transition").order_by("seq")[0]
    actions.rewind(run, to=first.seq, by=None)
    work(run)
    assert run.budgets.get(scope="limits", name="cost_usd").limit == 0.002
    assert pending(run).kind == "limit"


def test_time_that_a_person_takes_is_not_active_time() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    before = run.active_seconds
    assert 0 < before < 60
    Run.objects.filter(pk=run.pk).update(created_at=Now(), started_at=Now())
    decide(run, "approve")
    work(run)
    assert run.active_seconds < before + 60


# --- retries ------------------------------------------------------------------------------------------------------


def test_a_model_call_is_tried_three_times_in_all() -> None:
    error = {"$error": "transient"}
    run = work(launch(error, error, FINAL))
    assert (run.status, run.model_calls, run.cost_usd) == ("succeeded", 1, 0.001)
    assert list(run.exchanges.order_by("seq").values_list("attempt", flat=True)) == [1, 2, 3]
    run = work(launch(error, error, error, FINAL))
    assert (run.status, run.exit_reason, run.model_calls) == ("failed", "model_error", 0)


def test_the_second_attempt_waits_one_second_and_the_third_two() -> None:
    error = {"$error": "transient"}
    run = launch(error, error, FINAL)
    for seconds in (1.0, 2.0):
        begun = Run.objects.values_list(Now()).first()
        slice_of(run)
        assert begun is not None
        wait = (run.due_at - begun[0]).total_seconds()
        assert seconds - 0.1 <= wait < seconds + 3
        assert run.status == "queued"
    assert work(run).status == "succeeded"


def test_a_script_that_is_exhausted_is_a_model_error_that_says_so() -> None:
    run = work(launch(think("search", q="a")))
    assert (run.status, run.exit_reason) == ("failed", "model_error")
    last = run.steps.get(kind="stop")
    assert "script exhausted (role decision, call 2)" in last.facts_json


def test_a_fatal_tool_ends_the_run() -> None:
    broken = SEND | {"results": [{"error": "on fire", "kind": "fatal"}]}
    run = work(launch(played=script(think("send", to="bob"), FINAL, tools={"send": broken}), rules=ALLOW))
    assert (run.status, run.exit_reason, run.tool_calls) == ("failed", "fatal_error", 1)


# --- rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [1, 50])
def test_the_same_call_is_counted_within_a_slice_and_over_slices(moves: int) -> None:
    rules = [{"when": {"same_call": 3}, "do": "ask"}, *ALLOW]
    run = launch(*[think("search", q="a")] * 4, FINAL, rules=rules)
    while run.status not in ("waiting", "succeeded"):
        slice_of(run, Slice(moves=moves))
    assert (run.status, run.tool_calls) == ("waiting", 2)
    assert pending(run).tool == "search"
    decide(run, "approve")
    work(run)
    assert (run.status, run.tool_calls) == ("waiting", 3)
    decide(run, "reject")
    assert work(run).tool_calls == 3


def test_other_calls_are_not_the_same_call() -> None:
    rules = [{"when": {"same_call": 2}, "do": "ask"}, *ALLOW]
    run = work(
        launch(think("search", q="a"), think("search", q="b"), think("send", to="a"), FINAL, rules=rules)
    )
    assert (run.status, run.tool_calls) == ("succeeded", 3)


def test_a_rule_on_the_next_cost_asks_before_the_call() -> None:
    rules = [{"when": {"next_cost_usd": 0.0005}, "do": "ask"}]
    run = work(launch(FINAL, rules=rules))
    assert (pending(run).kind, run.model_calls) == ("manual", 0)
    decide(run, "resume")
    assert work(run).status == "succeeded"


def test_a_reply_with_more_room_may_cost_more() -> None:
    rules = [{"when": {"next_cost_usd": 0.0015}, "do": "ask"}]
    cut = {"$reply": FINAL, "ended": "length"}
    run = work(launch(cut, FINAL, rules=rules))
    assert (pending(run).kind, pending(run).title) == (
        "manual",
        "The next model call may cost $0.0020. Continue?",
    )
    decide(run, "resume")
    assert work(run).status == "succeeded"


def test_a_rule_on_the_first_step_asks_before_it() -> None:
    run = work(launch(FINAL, rules=[{"when": {"first_step": True}, "do": "ask"}]))
    assert (pending(run).kind, run.model_calls) == ("plan", 0)
    decide(run, "reject", message="not like this")
    assert (work(run).status, run.exit_reason) == ("cancelled", "aborted")


# --- the worker ---------------------------------------------------------------------------------------------------


def test_a_run_that_is_taken_up_with_an_open_question_waits_for_its_answer() -> None:
    """As where it was due although it waits: a worker that takes it must not leave it at work for good."""
    run = work(launch(think("send", to="bob"), FINAL))
    head = run.head
    Run.objects.filter(pk=run.pk).update(status="queued", due_at=Now())
    assert driver.drive(run.pk) == []
    run.refresh_from_db()
    assert (run.status, run.head, run.worker, run.tool_calls) == ("waiting", head, "", 0)
    decide(run, "approve")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_budget_lines_that_a_run_gets_on_its_way_are_written() -> None:
    """As those of a contract that the model makes: a line for each slot, which the launch knew nothing of."""
    made = {"slots": [{"id": "tide", "type": "inline"}], "depth": "deep", "hints": {"tide": {"explore": 7}}}
    said = {"action": "complete", "completion_summary": "Nothing to say."}
    run = launch(
        machine="contract",
        goal="Say when high water is",
        played={"replies": {"coordinator": [made], "decision": [said] * 9}},
        coordinator="model",
    )
    begun = set(run.budgets.values_list("scope", "name"))
    run = work(run)
    lines = {(line.scope, line.name): line.limit for line in run.budgets.all()}
    assert lines["stage:tide", "explore"] == 7
    assert {key for key in lines if key[0] == "stage:tide"} == lines.keys() - begun


def test_a_finished_run_drives_nowhere() -> None:
    run = work(launch(FINAL))
    assert driver.drive(run.pk) == []
    assert driver.drive_inline(run.pk).status == "succeeded"
    assert driver.drive(10**9) == []


def test_the_renewer_keeps_a_lease_alive_during_a_long_call() -> None:
    """The call here goes on until the lease, which had run out, has been renewed by the other thread."""
    run = launch(FINAL)

    def wait_for_renewal() -> None:
        Run.objects.filter(pk=run.pk).update(lease_until=Now())
        holds.renew_now()
        wait_for(Run.objects.filter(pk=run.pk, lease_until__gt=Now()).exists)

    slice_of(run, before=wait_for_renewal)
    assert run.status == "succeeded"


def test_the_renewer_ends_with_the_last_hold() -> None:
    run = launch(FINAL)
    work(run)
    assert not holds.holds_any()
    wait_for(no_renewer)


def test_a_log_that_can_not_be_written_postpones_the_run_and_takes_no_worker_with_it() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    Run.objects.filter(pk=run.pk).update(head_hash="x" * 64, head=7)  # a log that can't be written on
    run.steps.create(seq=8, kind="note", node="thought", at=run.created_at, hash="x")
    driver.drive(run.pk)
    run.refresh_from_db()
    assert (run.status, run.worker) == ("queued", "")
    assert leases.claim(run.pk, "alpha") is None
    run.delete()


def test_a_fault_of_our_own_leaves_a_row_and_the_run_is_tried_again_later() -> None:
    run = launch(think("send", to="bob"), FINAL)
    in_the_way = run.interrupts.create(seq=4, kind="tool_call", title="in the way", status="superseded")
    assert driver.drive(run.pk) == []
    run.refresh_from_db()
    assert (kinds(run)[-1], run.status, run.worker) == ("recovered", "queued", "")
    assert '"fault":"IntegrityError: ' in run.steps.order_by("-seq")[0].facts_json
    assert leases.claim(run.pk, "alpha") is None
    assert work(run).status == "waiting"
    assert pending(run).seq == 5
    in_the_way.delete()  # no row asks it


def test_a_run_whose_script_can_not_be_read_ends_with_a_reason() -> None:
    run = launch(FINAL)
    played = run.script_json
    ScriptText.objects.update(text=json.dumps({"replies": 5}))
    driver.drive(run.pk)
    run.refresh_from_db()
    assert (run.status, run.exit_reason) == ("failed", "fatal_error")
    ScriptText.objects.update(text=played)
