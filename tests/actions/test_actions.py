"""What people can do: decide, pause, resume, abort, rewind; who may; and what that does to a busy run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db.models.functions import Now

from runs import actions, driver, tasks
from runs.adapters.folder import NAME_SENTENCE
from runs.adapters.secrets import seal
from runs.driver import Slice, holds
from runs.engine.effects import VERDICTS
from runs.models import Decision, Interrupt, ModelProfile, Run, SiteRule
from runs.reading.arguments import read_arguments
from runs.store import decisions, errors, leases
from tests.cast import person, stranger
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import decide, kinds, lose_worker, pending, transitions, work
from tests.workers import at_call, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def asking(**settings: Any) -> Run:
    """A run that waits for leave to send."""
    return work(launch(think("send", to="bob", n=3), FINAL, **settings))


def facts(run: Run, kind: str) -> list[dict[str, Any]]:
    rows = run.steps.filter(live=True).order_by("seq").values_list("facts_json", flat=True)
    return [fact for text in rows for fact in json.loads(text) if fact["kind"] == kind]


# --- verdicts on a call -------------------------------------------------------------------------------------------


def test_a_question_holds_the_exact_call() -> None:
    run = asking()
    question = pending(run)
    assert (question.kind, question.tool, question.args) == ("tool_call", "send", {"to": "bob", "n": 3})
    assert (question.effects, question.risk, question.status) == ("send", "high", "pending")
    assert question.verdicts == list(VERDICTS["tool_call"])
    assert question.fingerprint
    assert (run.status, run.worker) == ("waiting", "")


def test_approve_runs_the_call_as_shown() -> None:
    run = asking()
    decision = decide(run, "approve")
    assert decision.by_name == "the operator"
    run.refresh_from_db()
    assert run.status == "queued"
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert json.loads(run.exchanges.get(name="send").request_json)["args"] == {"to": "bob", "n": 3}
    assert "decision" in kinds(run)


def test_edit_runs_the_call_with_the_new_arguments_and_their_types() -> None:
    run = asking()
    decide(run, "edit", args={"to": "eve", "n": 7}, message="eve is the one")
    work(run)
    request = json.loads(run.exchanges.get(name="send").request_json)
    assert request["args"] == {"to": "eve", "n": 7}
    assert isinstance(request["args"]["n"], int)
    assert facts(run, "react.tool.edited")[0]["args"] == {"to": "eve", "n": 7}
    assert run.status == "succeeded"


@pytest.mark.parametrize(
    ("args", "field", "word"),
    [
        ({"to": 5}, "args.to", "string"),
        ({}, "args.to", "needs"),
        ({"to": "eve", "n": True}, "args.n", "integer"),
        ({"to": "eve", "n": "7"}, "args.n", "integer, not a string; mend it, or take it out."),
        ({"to": "eve", "cc": "bob"}, "args.cc", "no argument cc; take it out."),
        (["eve"], "args", "object"),
        (None, "args", "object"),
    ],
)
def test_edit_with_arguments_that_do_not_fit_is_refused_with_the_field(
    args: Any, field: str, word: str
) -> None:
    run = asking()
    with pytest.raises(actions.BadDecision) as caught:
        decide(run, "edit", args=args)
    assert caught.value.field == field
    assert word in caught.value.sentence
    assert pending(run).status == "pending"
    assert not Decision.objects.exists()
    run.refresh_from_db()
    assert run.status == "waiting"


@pytest.mark.parametrize(
    ("tool", "args", "sentence"),
    [
        (
            "http_request",
            {"method": "POST", "url": "http://page.test:8080/"},
            "url must be an http(s) address",
        ),
        ("write_file", {"name": "../x", "content": "x"}, "name must be a relative name"),
    ],
)
def test_no_one_is_asked_about_a_call_that_can_never_run(
    tool: str, args: dict[str, Any], sentence: str
) -> None:
    run = work(launch(think(tool, **args), FINAL, tools=[tool]))
    assert (run.status, run.tool_calls, run.interrupts.count()) == ("succeeded", 0, 0)
    texts = " ".join(run.steps.values_list("facts_json", flat=True))
    assert sentence in texts and "must match" not in texts


def test_an_edit_to_a_call_that_can_never_run_is_refused_with_the_field() -> None:
    run = work(launch(think("write_file", name="a.txt", content="x"), FINAL, tools=["write_file"]))
    args = {"name": "../x", "content": "x"}
    with pytest.raises(actions.BadDecision, match="write_file: name must be a relative name") as caught:
        decide(run, "edit", args=args)
    assert caught.value.field == "args.name"
    read = read_arguments(pending(run).schema, pending(run).args, {"arg.name": "../x"})
    assert [field.error for field in read.fields if field.name == "name"] == [f"name {NAME_SENTENCE}."]


def test_an_edited_call_meets_the_other_rules_again() -> None:
    rules = [{"when": {"tool": "send", "args": {"to": {"equals": "eve"}}}, "do": "deny"}]
    run = asking(rules=rules)
    decide(run, "edit", args={"to": "eve"})
    work(run)
    assert run.tool_calls == 0
    assert "Refused by a rule" in facts(run, "react.tool.result")[0]["error"]


def test_reject_gives_an_error_with_the_message_and_runs_nothing() -> None:
    run = asking()
    decide(run, "reject", message="Not to bob.")
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 0)
    result = facts(run, "react.tool.result")[0]
    assert (result["error"], result["ran"]) == ("Not to bob.", False)
    assert not run.exchanges.filter(kind="tool_call").exists()


def test_respond_gives_the_message_as_the_result_and_runs_nothing() -> None:
    run = asking()
    decide(run, "respond", message="Bob knows already.")
    work(run)
    assert run.tool_calls == 0
    assert facts(run, "react.tool.result")[0]["value"] == "Bob knows already."


def test_respond_needs_words() -> None:
    run = asking()
    with pytest.raises(actions.BadDecision) as caught:
        decide(run, "respond", message="  ")
    assert caught.value.field == "message"


def test_abort_ends_the_run_and_rollback_goes_back() -> None:
    run = asking()
    decide(run, "abort", message="enough")
    assert (work(run).status, run.exit_reason) == ("cancelled", "aborted")
    other = asking()
    first = transitions(other)[0]
    decide(other, "rollback", to_step=first)
    work(other)
    assert kinds(other).count("rewind") == 1
    assert other.interrupts.count() == 2


@pytest.mark.parametrize(
    ("step", "word"), [(None, "Name the step"), (99, "99"), (1, "not a live transition")]
)
def test_rollback_needs_a_live_transition(step: int | None, word: str) -> None:
    run = asking()
    with pytest.raises(actions.BadDecision) as caught:
        decide(run, "rollback", to_step=step)
    assert caught.value.field == "to_step"
    assert word in caught.value.sentence


def test_a_verdict_that_the_kind_does_not_have_is_refused() -> None:
    run = asking()
    with pytest.raises(actions.BadDecision, match="resume is not an answer"):
        decide(run, "resume")


def test_every_n_steps_is_resumed() -> None:
    run = work(launch(think("search", q="a"), think("search", q="b"), FINAL, interrupt_every=1))
    assert (pending(run).kind, pending(run).verdicts) == ("every_n_steps", ["resume", "abort", "rollback"])
    decide(run, "resume")
    work(run)
    decide(run, "resume")
    work(run)
    assert run.status == "succeeded"


# --- deciding once ------------------------------------------------------------------------------------------------


def test_the_same_decision_again_returns_the_first_one() -> None:
    run = asking()
    question = pending(run)
    said: dict[str, Any] = {"verdict": "reject", "by": None, "channel": "web", "message": "no"}
    first = actions.decide(question.pk, **said)
    assert actions.decide(question.pk, **(said | {"channel": "api"})) == first
    work(run)
    assert actions.decide(question.pk, **said) == first
    assert Decision.objects.count() == 1
    assert kinds(run).count("decision") == 1


@pytest.mark.parametrize(("verdict", "to"), [("approve", "bob"), ("edit", "carol")])
def test_a_form_that_sends_arguments_may_be_sent_twice(verdict: str, to: str) -> None:
    run = asking()
    question = pending(run)
    said: dict[str, Any] = {"verdict": verdict, "by": None, "channel": "web", "args": {"to": to, "n": 3}}
    assert actions.decide(question.pk, **said) == actions.decide(question.pk, **said)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"verdict": "approve", "args": {"to": "evil"}}, "args"),
        ({"verdict": "approve", "args": {"to": "bob", "n": 3.0}}, "args"),
        ({"verdict": "approve", "args": {}}, "args"),
        ({"verdict": "reject", "args": {"to": "bob", "n": 3}}, "args"),
        ({"verdict": "approve", "to_step": 2}, "to_step"),
        ({"verdict": "reject", "message": "x" * (decisions.MAX_MESSAGE + 1)}, "message"),
        ({"verdict": "respond", "message": "x" * (decisions.MAX_RESPONSE + 1)}, "message"),
    ],
)
def test_nothing_of_a_decision_is_dropped_without_a_word(said: dict[str, Any], field: str) -> None:
    run = asking()
    head = run.head
    with pytest.raises(actions.BadDecision, match="nothing was decided") as caught:
        decide(run, **said)
    assert caught.value.field == field
    run.refresh_from_db()
    assert (pending(run).status, run.head, Decision.objects.count()) == ("pending", head, 0)
    decide(run, "approve")
    if field != "message":
        with pytest.raises(actions.BadDecision):
            actions.decide(Interrupt.objects.get(run=run).pk, by=None, channel="web", **said)


def test_a_message_may_be_as_long_as_a_form_lets_it_be_and_a_result_longer() -> None:
    run = asking()
    assert decide(run, "reject", message="x" * decisions.MAX_MESSAGE).message == "x" * decisions.MAX_MESSAGE
    other = asking()
    assert decide(other, "respond", message="x" * 50_000).message == "x" * 50_000


def test_a_fork_with_an_answer_that_does_not_fit_is_refused() -> None:
    run = asking()
    decide(run, "approve")
    work(run)
    with pytest.raises(actions.BadLaunch, match=r"decision\.args: Only edit and top_up take arguments"):
        actions.fork(run, at=0, by=None, decision={"verdict": "approve", "args": {"to": "evil"}})


def test_another_decision_is_a_conflict_that_says_who_decided_what() -> None:
    run = asking()
    question = pending(run)
    bob = person("bob", "view_run", "decide_interrupt")
    actions.decide(question.pk, verdict="reject", by=bob, channel="web", message="no")
    with pytest.raises(actions.Conflict) as caught:
        actions.decide(question.pk, verdict="approve", by=None, channel="command")
    assert caught.value.decision is not None
    assert caught.value.decision.by_name == "bob"
    assert "bob already decided at" in caught.value.sentence
    assert "reject" in caught.value.sentence


@pytest.mark.parametrize("seen", [{"revision": 2}, {"fingerprint": "0" * 16}])
def test_a_decision_on_something_else_than_what_is_asked_is_a_conflict(seen: dict[str, Any]) -> None:
    run = asking()
    with pytest.raises(actions.Conflict):
        decide(run, "approve", **seen)
    question = pending(run)
    decide(run, "approve", revision=question.revision, fingerprint=question.fingerprint)


def test_a_superseded_question_can_not_be_decided() -> None:
    run = asking()
    question = pending(run)
    actions.rewind(run, to=transitions(run)[0], by=None)
    with pytest.raises(actions.Conflict, match="no longer open"):
        actions.decide(question.pk, verdict="approve", by=None, channel="web")


def test_there_is_no_such_question() -> None:
    with pytest.raises(Interrupt.DoesNotExist):
        actions.decide(uuid.uuid4(), verdict="approve", by=None, channel="web")
    model()
    with pytest.raises(Interrupt.DoesNotExist):
        actions.decide(uuid.uuid4(), verdict="resume", args={"model": "real"}, by=None, channel="web")


# --- deadlines ----------------------------------------------------------------------------------------------------


def with_deadline(on_timeout: str, **when: Any) -> Run:
    rule = {"when": when or {"tool": "send"}, "do": "ask", "deadline_s": 3600, "on_timeout": on_timeout}
    run = work(launch(think("send", to="bob"), think("search", q="a"), FINAL, rules=[rule, *ALLOW]))
    Interrupt.objects.filter(run=run, status="pending").update(deadline=Now() - timedelta(seconds=1))
    return run


@pytest.mark.parametrize(
    ("on_timeout", "verdict", "calls", "status"),
    [
        ("deny", "reject", 1, "succeeded"),
        ("approve", "approve", 2, "succeeded"),
        ("abort", "abort", 0, "cancelled"),
    ],
)
def test_the_sweep_applies_a_deadline(on_timeout: str, verdict: str, calls: int, status: str) -> None:
    run = with_deadline(on_timeout)
    tasks.sweep()
    decision = Decision.objects.get()
    assert (decision.verdict, decision.channel) == (verdict, "deadline")
    assert run.interrupts.get().status == "expired"
    assert (work(run).status, run.tool_calls) == (status, calls)
    assert tasks.sweep() == 0


@pytest.mark.parametrize(
    ("on_timeout", "verdict"), [("approve", "resume"), ("deny", "abort"), ("abort", "abort")]
)
def test_the_deadline_of_a_step_question_lets_it_go_on_or_ends_it(on_timeout: str, verdict: str) -> None:
    run = with_deadline(on_timeout, every_n_steps=1)
    tasks.sweep()
    assert Decision.objects.filter(interrupt__run=run).first().verdict == verdict  # type: ignore[union-attr]
    if verdict == "resume":
        work(run)
        decide(run, "resume")
    work(run)


def test_who_answers_too_late_hears_what_the_deadline_decided() -> None:
    run = with_deadline("deny")
    question = pending(run)
    with pytest.raises(actions.Conflict, match="the deadline already decided at"):
        decide(run, "approve")
    question.refresh_from_db()
    assert question.status == "expired"
    assert work(run).tool_calls == 1


def test_who_answers_too_late_hears_that_the_deadline_can_not_decide_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = with_deadline("deny")
    question = pending(run)
    decided = decisions.decide

    def locked(*given: Any) -> None:
        raise errors.Busy

    monkeypatch.setattr(decisions, "decide", locked)
    said = decisions.Said(verdict="approve", by_name="bob", channel="web")
    with pytest.raises(errors.Busy):
        decided(question.pk, said)
    question.refresh_from_db()
    assert question.status == "pending"


def test_a_decision_fences_whoever_still_has_the_run() -> None:
    run = asking()
    epoch = run.epoch
    decisions.decide(pending(run).pk, decisions.Said(verdict="approve", by_name="bob", channel="web"))
    run.refresh_from_db()
    assert run.epoch > epoch


def test_a_deadline_that_is_not_over_changes_nothing() -> None:
    run = with_deadline("deny")
    Interrupt.objects.update(deadline=Now() + timedelta(hours=1))
    tasks.sweep()
    assert pending(run).status == "pending"


# --- pause and resume ---------------------------------------------------------------------------------------------


def test_a_paused_run_is_not_driven_until_it_is_resumed() -> None:
    run = launch(FINAL)
    actions.pause(run, by=None)
    assert work(run).status == "paused"
    with pytest.raises(actions.NotPossible, match="paused already"):
        actions.pause(run, by=None)
    actions.resume(run, by=None)
    with pytest.raises(actions.NotPossible, match="not paused"):
        actions.resume(run, by=None)
    assert work(run).status == "succeeded"
    assert kinds(run)[:2] == ["pause", "pause"]


def test_paused_while_it_waits_decided_while_it_is_paused_and_resumed() -> None:
    run = asking()
    actions.pause(run, by=None)
    decide(run, "approve")
    assert work(run).status == "paused"
    actions.resume(run, by=None)
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_paused_while_it_waits_and_resumed_it_waits_on() -> None:
    run = asking()
    actions.pause(run, by=None)
    assert actions.resume(run, by=None).status == "waiting"
    decide(run, "approve")
    assert work(run).status == "succeeded"


def test_a_pause_in_the_middle_of_a_call_keeps_its_answer() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    with pytest.raises(errors.Fenced):
        slice_of(run, before=lambda: actions.pause(run, by=None), only="send")
    run.refresh_from_db()
    assert (run.status, run.worker, run.stopping) == ("paused", "", False)
    actions.resume(run, by=None)
    assert slice_of(run).calls == ["decision"]
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_call_that_was_cut_by_a_pause_is_made_again() -> None:
    """A written ask of the model: the cut is no answer, and ends nothing."""
    run = launch("no JSON", FINAL)

    def pause_the_second() -> None:
        actions.pause(run, by=None)
        holds.look()

    with pytest.raises(errors.Fenced):
        slice_of(run, before=at_call(2, pause_the_second))
    assert run.exchanges.get(seq=2).status == "asked"
    actions.resume(run, by=None)
    assert (work(run).status, run.model_calls) == ("succeeded", 2)


# --- abort --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_glances")
@pytest.mark.parametrize("where", ["decision", "search", "send"])
def test_an_abort_in_the_middle_of_a_call_is_final_and_what_was_paid_is_charged(where: str) -> None:
    """The worker has not looked since the call began: the answer comes, and finds the seat taken."""
    run = launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW)
    seen: list[bool] = []

    def aborted() -> None:
        actions.abort(run, by=None, message="enough")
        seen.append(Run.objects.get(pk=run.pk).stopping)

    with pytest.raises(errors.Fenced):
        slice_of(run, before=aborted, only=where)
    run.refresh_from_db()
    assert seen == [True]
    assert (run.status, run.exit_reason, run.stopping) == ("cancelled", "aborted", False)
    assert run.model_calls == {"decision": 1, "search": 1, "send": 2}[where]
    assert run.cost_usd == pytest.approx(run.model_calls * 0.001)
    assert run.tool_calls == {"decision": 0, "search": 1, "send": 2}[where]
    assert work(run).head == run.head


def test_an_abort_before_a_saved_answer_is_concluded_charges_it() -> None:
    run = launch("no JSON", FINAL)

    def taken_over() -> None:
        lose_worker(run)
        leases.claim(run.pk, "beta")

    with pytest.raises(errors.Fenced):
        slice_of(run, after=at_call(2, taken_over))
    actions.abort(run, by=None)
    run.refresh_from_db()
    assert (run.model_calls, run.cost_usd) == (2, 0.002)
    assert json.loads(run.steps.get(kind="stop").state_json or "")["metadata"]["total_cost"] == 0.002


def test_a_written_call_that_is_answered_after_the_abort_is_charged() -> None:
    run = launch("no JSON", FINAL)

    def abort_the_second() -> None:
        actions.abort(run, by=None)

    with pytest.raises(errors.Fenced):
        slice_of(run, after=at_call(2, abort_the_second))
    assert (Run.objects.get(pk=run.pk).model_calls, Run.objects.get(pk=run.pk).cost_usd) == (2, 0.002)


def test_an_ended_run_takes_no_more_moves() -> None:
    run = work(launch(FINAL))
    for move in (
        lambda: actions.abort(run, by=None),
        lambda: actions.pause(run, by=None),
        lambda: actions.resume(run, by=None),
        lambda: actions.rewind(run, to=2, by=None),
    ):
        with pytest.raises(actions.NotPossible, match="has ended already"):
            move()
    assert Run.objects.get(pk=run.pk).head == run.head


def test_an_abort_closes_the_open_question() -> None:
    run = asking()
    actions.abort(run, by=None)
    assert run.interrupts.get().status == "superseded"


# --- rewind -------------------------------------------------------------------------------------------------------


def test_a_rewind_restores_the_state_and_keeps_what_was_spent() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL, FINAL))
    first = transitions(run, "recorded")[0]
    before = json.loads(run.steps.get(seq=transitions(run, "executed")[0]).state_json or "")
    actions.rewind(run, to=first, by=None, message="again")
    run.refresh_from_db()
    assert (run.status, run.node) == ("queued", "commit")
    rewind = run.steps.get(kind="rewind")
    state = json.loads(rewind.state_json or "")
    assert state["steps"] == before["steps"] == 0
    assert state["metadata"]["rolled_back_to"] == first
    assert state["metadata"]["rolled_back_from"] == rewind.seq - 1
    assert state["metadata"]["total_cost"] == run.cost_usd == 0.002
    assert not run.steps.filter(seq__gt=first, seq__lt=rewind.seq, live=True).exists()
    assert run.steps.filter(seq__lte=first, live=False).count() == 0
    assert run.budgets.get(name="steps").used == 0
    assert run.interrupts.get().status == "superseded"
    work(run)
    decide(run, "approve")
    assert work(run).status == "succeeded"
    assert run.answer == "42"


def test_after_a_rewind_the_same_prompt_is_answered_from_the_cache_and_costs_nothing() -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    actions.rewind(run, to=transitions(run, "continue")[0], by=None)
    world = slice_of(run)
    assert world.calls == []
    assert (run.model_calls, run.cached_model_calls, run.cost_usd) == (3, 1, 0.002)
    decide(run, "approve")
    work(run)
    assert (run.status, run.model_calls, run.cached_model_calls, run.cost_usd) == ("succeeded", 4, 1, 0.003)


GUESS = {"thought": "I guess so", "action": {"tool": "search", "args": {"q": "a"}}}


def test_a_reply_whose_thought_never_passed_is_not_in_the_cache() -> None:
    """Back to the first thought itself: what passes next is that thought, not the guess that came after it."""
    run = launch(think("search", q="a"), GUESS, think("send", to="bob"), FINAL)
    while not transitions(run, "retry"):
        slice_of(run, Slice(moves=1))
    actions.rewind(run, to=transitions(run, "thought")[0], by=None)
    while not transitions(run, "pass"):
        slice_of(run, Slice(moves=1))
    guess = run.exchanges.get(answer_json__contains="I guess")
    assert not guess.remembered
    assert run.exchanges.filter(remembered=True).exists()


def test_without_the_cache_the_script_goes_on_where_it_was() -> None:
    run = work(
        launch(think("search", q="a"), think("send", to="bob"), think("send", to="eve"), FINAL, cache=False)
    )
    actions.rewind(run, to=transitions(run, "continue")[0], by=None)
    assert slice_of(run).calls == ["decision"]
    assert pending(run).args == {"to": "eve"}
    assert (run.model_calls, run.cached_model_calls) == (3, 0)
    decide(run, "reject")
    assert work(run).status == "succeeded"


def test_a_rewind_of_a_rewind() -> None:
    run = work(launch(think("search", q="a"), think("search", q="b"), think("send", to="bob"), FINAL))
    late, early = transitions(run, "continue")[1], transitions(run, "continue")[0]
    actions.rewind(run, to=late, by=None)
    actions.rewind(run, to=early, by=None)
    work(run)
    actions.rewind(run, to=early, by=None)
    with pytest.raises(actions.NotPossible, match="not a live transition"):
        actions.rewind(run, to=late, by=None)
    assert work(run).status == "waiting"


@pytest.mark.parametrize("to", [0, 1, 999])
def test_a_rewind_to_what_is_no_live_transition_is_refused(to: int) -> None:
    run = asking()
    with pytest.raises(actions.NotPossible):
        actions.rewind(run, to=to, by=None)
    assert "rewind" not in kinds(run)


def test_a_rewind_in_the_middle_of_a_call_fences_its_worker() -> None:
    run = launch(think("search", q="a"), think("send", to="bob"), FINAL, FINAL, rules=ALLOW)

    def back() -> None:
        actions.rewind(run, to=transitions(run, "continue")[0], by=None)

    with pytest.raises(errors.Fenced):
        slice_of(run, before=back, only="send")
    assert run.exchanges.get(name="send").status == "answered"
    run.refresh_from_db()
    assert run.tool_calls == 2
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 3)


def test_a_rewind_while_paused_stays_paused() -> None:
    run = asking()
    actions.pause(run, by=None)
    actions.rewind(run, to=transitions(run)[0], by=None)
    assert work(run).status == "paused"
    actions.resume(run, by=None)
    assert work(run).status == "waiting"


def test_going_back_makes_the_same_call_count_anew() -> None:
    rules = [{"when": {"same_call": 2}, "do": "ask"}, *ALLOW]
    run = work(launch(think("search", q="a"), think("search", q="a"), FINAL, rules=rules))
    assert pending(run).why.endswith("the same call 2 times")
    actions.rewind(run, to=transitions(run, "continue")[0], by=None)
    work(run)
    decide(run, "approve")
    assert (work(run).status, run.tool_calls) == ("succeeded", 2)


# --- who may ------------------------------------------------------------------------------------------------------


def test_who_may_do_what() -> None:
    alice = person("alice", "add_run")
    bob = person("bob", "view_run", "decide_interrupt")
    charlie, dora = stranger("charlie"), stranger("dora", "decide_interrupt")
    run = launch(think("send", to="bob"), FINAL, owner=alice)
    assert [actions.may_launch(who) for who in (alice, bob, charlie, None)] == [True, False, False, True]
    everybody = (alice, bob, charlie, dora, None)
    assert [actions.may_steer(who, run) for who in everybody] == [True, False, False, False, True]
    assert [actions.may_decide(who, run) for who in everybody] == [False, True, False, False, True]


def test_the_owner_steers_a_reviewer_decides_and_a_stranger_does_neither() -> None:
    alice, bob, charlie = (
        person("alice", "add_run"),
        person("bob", "view_run", "decide_interrupt"),
        stranger("charlie"),
    )
    run = work(launch(think("send", to="bob"), FINAL, owner=alice))
    question = pending(run)
    for who in (alice, charlie):
        with pytest.raises(actions.NotAllowed):
            actions.decide(question.pk, verdict="approve", by=who, channel="web")
    for who in (bob, charlie):
        for move in (actions.pause, actions.resume, actions.abort):
            with pytest.raises(actions.NotAllowed):
                move(run, by=who)
        with pytest.raises(actions.NotAllowed):
            actions.rewind(run, to=2, by=who)
    with pytest.raises(actions.NotAllowed):
        launch(FINAL, owner=charlie)
    actions.pause(run, by=alice)
    actions.resume(run, by=alice)
    decision = actions.decide(question.pk, verdict="approve", by=bob, channel="web")
    assert (decision.by, decision.by_name) == (bob, "bob")
    assert work(run).status == "succeeded"


def test_a_decider_who_may_not_see_the_run_may_not_decide_it() -> None:
    """Nor where there are other runs that they may see: one of their own would open everybody's questions."""
    dora = stranger("dora", "decide_interrupt")
    run = work(launch(think("send", to="bob"), FINAL))
    assert not actions.may_decide(dora, run)
    with pytest.raises(actions.NotAllowed):
        actions.decide(pending(run).pk, verdict="approve", by=dora, channel="web")
    assert actions.may_decide(dora, Run.objects.get(owner=dora))


def test_a_note_and_a_reason_may_have_just_so_many_characters() -> None:
    run = asking()
    for move in (actions.pause, actions.abort):
        with pytest.raises(actions.TooLong, match="at most 500 characters; this one has 501"):
            move(run, by=None, message="x" * (actions.MAX_NOTE + 1))
    actions.pause(run, by=None, message="x" * actions.MAX_NOTE)
    assert len(facts(run, "run.paused")[0]["message"]) == actions.MAX_NOTE


def test_keeping_answers_in_a_rollback_is_deciding_and_needs_its_right() -> None:
    owner = person("alice", "add_run")
    run = work(launch(*(think("send", to=name) for name in ("bob", "eve")), FINAL, owner=owner))
    decide(run, "approve")
    work(run)
    to = transitions(run)[0]
    head = Run.objects.get(pk=run.pk).head
    with pytest.raises(actions.NotAllowed, match="needs the right to decide"):
        actions.rewind(run, to=to, by=owner, answers="keep")
    run.refresh_from_db()
    assert run.head == head
    both = person("olga", "change_run", "view_run", "decide_interrupt")
    actions.rewind(run, to=to, by=both, answers="keep")
    assert len(facts(run, "run.answers.kept")[0]["answers"]) == 1
    actions.rewind(run, to=to, by=owner)  # to be asked again; that is hers to want


# --- answers given beforehand -------------------------------------------------------------------------------------


def test_answers_given_at_launch_are_applied_in_order() -> None:
    answers = [{"verdict": "reject", "message": "no"}, {"verdict": "edit", "args": {"to": "eve"}}]
    run = work(launch(think("send", to="bob"), think("send", to="bob"), FINAL, answers=answers))
    assert run.status == "succeeded"
    given = Decision.objects.order_by("pk")
    assert [(one.verdict, one.channel) for one in given] == [("reject", "settings"), ("edit", "settings")]
    assert json.loads(run.exchanges.get(name="send").request_json)["args"] == {"to": "eve"}


def test_answers_that_run_out_leave_the_run_waiting() -> None:
    answers = [{"verdict": "approve"}]
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL, answers=answers))
    assert (run.status, run.tool_calls) == ("waiting", 1)
    assert pending(run).args == {"to": "eve"}


def test_a_given_answer_that_does_not_fit_leaves_the_run_waiting_and_says_so_in_its_log() -> None:
    run = work(launch(think("send", to="bob"), FINAL, answers=[{"verdict": "resume"}]))
    assert run.status == "waiting"
    note = run.steps.get(kind="note")
    assert "resume is not an answer to this question (tool_call)" in note.facts_json
    assert decisions.unfit_answer(pending(run)).startswith(
        "resume is not an answer to this question (tool_call)"
    )
    decide(run, "approve")
    assert work(run).status == "succeeded"


def test_a_given_answer_that_does_not_fit_ends_a_run_in_this_process_with_the_reason() -> None:
    run = launch(think("send", to="bob"), FINAL, answers=[{"verdict": "resume"}])
    with pytest.raises(driver.BadAnswer, match="resume is not an answer to this question"):
        driver.drive_inline(run.pk)


def model() -> ModelProfile:
    return actions.register_model(name="real", base_url="http://127.0.0.1:9/v1", model_id="m")


@pytest.mark.parametrize(
    "settings",
    [
        {"answers": [{"verdict": "approve"}]},
        {
            "subgraphs": {
                "inner": {
                    "machine": "ruled",
                    "settings": {"model": "real", "answers": [{"verdict": "approve"}]},
                }
            }
        },
    ],
)
def test_answers_for_a_real_model_need_the_right_to_decide(settings: dict[str, Any]) -> None:
    model()
    alice = person("alice", "add_run")
    with pytest.raises(actions.BadLaunch) as caught:
        actions.start_run(machine="ruled", goal="x", settings={"model": "real", **settings}, owner=alice)
    assert caught.value.problems[0].path.endswith("answers")
    assert not Run.objects.exists()
    dora = person("dora", "add_run", "decide_interrupt")
    actions.start_run(machine="ruled", goal="x", settings={"model": "real", **settings}, owner=dora)


# --- launching ----------------------------------------------------------------------------------------------------


def test_a_child_without_a_model_of_its_own_takes_that_of_its_parent() -> None:
    model()
    settings = {"model": "real", "subgraphs": {"inner": {"machine": "ruled", "settings": {}}}}
    run = actions.start_run(machine="ruled", goal="x", settings=settings, owner=None)
    assert run.model == "real"


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"limits": {"cost_usd": -1}}, "settings.limits.cost_usd"),
        ({"max_step": 3}, "settings.max_step"),
        ({"tools": ["nope"]}, "settings.tools.0"),
        ({"subgraphs": {"inner": {"machine": "nope"}}}, "settings.subgraphs.inner.machine"),
        (
            {"subgraphs": {"inner": {"machine": "ruled", "settings": {"max_steps": 0}}}},
            "settings.subgraphs.inner.settings.max_steps",
        ),
        (
            {"subgraphs": {"inner": {"machine": "ruled", "settings": {"tools": ["nope"]}}}},
            "settings.subgraphs.inner.settings.tools.0",
        ),
        ({"answers": [{"verdict": "maybe"}]}, "settings.answers.0.verdict"),
        ([], "settings"),
    ],
)
def test_a_bad_setting_is_named_by_its_path(settings: Any, path: str) -> None:
    with pytest.raises(actions.BadLaunch) as caught:
        actions.start_run(machine="ruled", goal="x", settings=settings, owner=None, script=script(FINAL))
    assert path in [problem.path for problem in caught.value.problems]
    assert all(
        problem.message.endswith((".", "?")) or "not" in problem.message for problem in caught.value.problems
    )
    assert not Run.objects.exists()


def test_everything_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(actions.BadLaunch) as caught:
        actions.start_run(machine="nope", goal=" ", settings={}, owner=None, script={"replies": 5})
    assert [problem.path for problem in caught.value.problems] == ["machine", "goal", "script"]


def test_of_a_script_that_can_not_be_read_only_that_is_said() -> None:
    """Whether a model is needed is not known before."""
    with pytest.raises(actions.BadLaunch) as caught:
        actions.start_run(machine="ruled", goal="x", settings={}, owner=None, script={"replies": 5})
    assert {problem.path for problem in caught.value.problems} == {"script"}


def test_without_a_model_and_a_script_it_says_which_models_there_are() -> None:
    model()
    with pytest.raises(actions.BadLaunch, match="Models: real"):
        actions.start_run(machine="ruled", goal="x", settings={}, owner=None)


def test_a_model_that_was_switched_off_ends_the_run_with_a_reason() -> None:
    model()
    run = actions.start_run(machine="ruled", goal="x", settings={"model": "real"}, owner=None)
    ModelProfile.objects.update(enabled=False)
    work(run)
    assert (run.status, run.exit_reason) == ("failed", "model_error")


def _key_of_another_site() -> None:
    ModelProfile.objects.update(sealed_key=seal("sk-1", "the secret key before the restore"))


def _address_that_is_none() -> None:
    ModelProfile.objects.update(base_url="nowhere")


@pytest.mark.parametrize(
    ("damage", "remedy"),
    [
        (_key_of_another_site, "Enter the secret again"),
        (_address_that_is_none, "Correct its profile, base_url"),
    ],
)
def test_a_model_that_can_not_be_called_ends_the_run_with_that_reason_and_begins_none(
    damage: Callable[[], None], remedy: str
) -> None:
    model()
    run = actions.start_run(machine="ruled", goal="x", settings={"model": "real"}, owner=None)
    damage()
    work(run)
    assert (run.status, run.exit_reason) == ("failed", "model_error")
    said = run.steps.get(kind="stop").facts_json
    assert "The model 'real' can't be called." in said and remedy in said and "fork this run" in said
    with pytest.raises(actions.BadLaunch, match=remedy) as caught:
        actions.start_run(machine="ruled", goal="x", settings={"model": "real"}, owner=None)
    assert [problem.path for problem in caught.value.problems] == ["settings.model"]


def test_foreign_characters_in_a_launch_survive_both_databases() -> None:
    run = work(
        actions.start_run(
            machine="ruled",
            goal="nul \x00 and a lone \ud800 surrogate, 潮汐",
            settings={"rules": [{"when": {"tool": "x\x00"}, "do": "deny", "name": "n\ud800"}]},
            owner=None,
            script=script({"thought": "FINAL ANSWER: \x00\ud800 潮", "action": None}),
        )
    )
    assert run.status == "succeeded"
    assert "潮" in (run.answer or "")


def test_a_script_of_any_width_is_stored_whole() -> None:
    """What a person wrote is taken whole or refused; a script of 5,000,000 characters may hold many values."""
    wide = script(think("search", q="tides", more=list(range(30_000))), "x" * 500_000, FINAL)
    run = actions.start_run(machine="ruled", goal="x", settings={}, owner=None, script=wide)
    assert json.loads(run.script_json)["replies"] == wide["replies"]


def test_a_model_of_kind_script_plays_its_script() -> None:
    ModelProfile.objects.create(name="demo", kind="script", script_json=json.dumps(script(FINAL)))
    run = actions.start_run(machine="ruled", goal="x", settings={"model": "demo"}, owner=None)
    assert (work(run).status, run.model) == ("succeeded", "demo")


def test_site_rules_come_before_the_runs_own() -> None:
    SiteRule.objects.create(rule_json=json.dumps({"when": {"tool": "send"}, "do": "deny"}))
    run = work(launch(think("send", to="bob"), FINAL, rules=ALLOW))
    assert (run.status, run.tool_calls) == ("succeeded", 0)


def test_nobody_who_is_not_signed_in_sees_a_run() -> None:
    launch(FINAL)
    assert not Run.objects.for_user(AnonymousUser()).exists()


@pytest.fixture
def own_defaults(settings: Any) -> None:
    """A site that has values of its own for `planned`; one of them is the usual one."""
    settings.MACHINE_DEFAULTS = {"planned": {"retry_buffer": 7, "replan_failure_threshold": 2}}


@pytest.mark.usefixtures("own_defaults")
def test_a_launch_that_names_no_value_is_given_the_sites() -> None:
    played = {"replies": {"decision": [{"tool": "final_answer", "args": {"answer": "42"}}]}}

    def started(**given: Any) -> Run:
        return actions.start_run(machine="planned", goal="x", settings=given, owner=None, script=played)

    run = started(plan=[])
    assert run.settings == {"plan": [], "retry_buffer": 7}
    assert started(plan=[], retry_buffer=1).settings["retry_buffer"] == 1
    assert work(run).budgets.get(name="attempts").limit == 7


@pytest.mark.usefixtures("own_defaults")
def test_a_subgraph_is_given_the_sites_values_too() -> None:
    child = {"machine": "planned"}
    run = launch(FINAL, subgraphs={"planner": child, "other": {"machine": "ruled", "settings": {}}})
    assert run.settings["subgraphs"] == {
        "planner": child | {"settings": {"retry_buffer": 7}},
        "other": {"machine": "ruled", "settings": {}},
    }
