"""Subgraphs: a child is a run of its own; its parent waits without a worker, and gets its answer and its cost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import actions, driver, tasks
from runs.driver import Slice
from runs.engine.effects import ModelReplied, Usage
from runs.feeds.reads import look
from runs.management.going_back import told_of_going_back
from runs.models import Run, Step
from runs.reading.rollback import Again, again, staying
from runs.reading.rows import row_views
from runs.store import errors, leases, log, verifying
from tests.cast import cast_member, person, signed_in
from tests.families import CALL, INNER_ANSWER, child_of, family
from tests.launching import ALLOW, FINAL, TOOLS, USAGE, launch, script, think
from tests.pages import forms_of
from tests.replaying import check_replay
from tests.running import decide, kinds, lose_worker, pending, transitions, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def step_of_result(run: Run) -> Step:
    step = run.steps.filter(edge="executed").order_by("seq").first()
    assert step is not None
    return step


def result_of(run: Run) -> dict[str, Any]:
    facts = json.loads(step_of_result(run).facts_json)
    found: dict[str, Any] = next(fact for fact in facts if fact["kind"] == "react.tool.result")
    return found


def test_a_parent_parks_its_child_runs_and_the_parent_goes_on_with_its_answer() -> None:
    run = family(think("search", q="tides"), INNER_ANSWER)
    slice_of(run)
    child = child_of(run)
    assert (run.status, run.worker) == ("waiting", "")
    assert (child.status, child.goal, child.child_name) == ("queued", "Look up the tides", "inner")
    assert child.parent_seq == run.exchanges.get(kind="child_run").seq
    assert driver.drive(run.pk) == []
    assert driver.drive(child.pk) == [run.pk]
    child.refresh_from_db()
    run.refresh_from_db()
    assert (child.status, child.answer) == ("succeeded", "the inner answer")
    assert run.status == "queued"
    work(run)
    assert run.status == "succeeded"
    assert result_of(run)["value"] == "the inner answer"


def test_what_a_child_did_outside_is_told_before_its_parent_goes_back() -> None:
    """Of a grandchild too: a send is as irreversible there."""
    deep = {"inmost": {"machine": "ruled", "settings": {"rules": ALLOW}}}
    inner = [think("send", to="ann"), think("agent.inmost", goal="x"), INNER_ANSWER]
    inmost_part = {"replies": {"decision": [think("send", to="bob"), INNER_ANSWER]}}
    played = script(CALL, FINAL, subgraphs={"inner": {"replies": {"decision": inner}}, "inmost": inmost_part})
    settings = {"rules": ALLOW, "subgraphs": deep}
    run = work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": settings}}))
    child = child_of(run)
    inmost = child_of(child)
    found = again(run, 0)
    told = [(one.run, one.code, one.of_child) for one in found.outside]
    assert told == [(child, 'send(to="ann")', True), (inmost, 'send(to="bob")', True)]
    assert (found.model_calls, found.tool_calls) == (2 + 3 + 2, 4)
    assert found.cost_usd == pytest.approx(run.cost_usd)
    assert found.sentence.endswith("4 tool calls, 2 of them with side effects.")
    assert again(run, run.head) == Again(0, 0, 0, 0, 0, (), (), (), "")
    sent = f'sends send(to="ann") in step {found.outside[0].seq} of the child run {child.pk}'
    assert sent in told_of_going_back(found, 0)


def test_what_a_child_went_back_over_stays_done_and_is_not_counted_as_coming_again() -> None:
    """A grandchild of a row that the child went back over is among it."""
    deep = {"inmost": {"machine": "ruled", "settings": {"rules": ALLOW}}}
    inner = [think("search", q="a"), think("send", to="ann"), think("agent.inmost", goal="x"), INNER_ANSWER]
    inmost_part = {"replies": {"decision": [think("send", to="bob"), INNER_ANSWER]}}
    played = script(CALL, FINAL, subgraphs={"inner": {"replies": {"decision": inner}}, "inmost": inmost_part})
    settings = {"rules": ALLOW, "subgraphs": deep, "interrupt_every": 3}
    run = work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": settings}}))
    child = child_of(run)
    assert pending(child).kind == "every_n_steps"
    before = again(run, 0)
    actions.rewind(child, to=transitions(child, "executed")[0], by=None)
    found = again(run, 0)
    assert found.outside == before.outside != ()
    assert (before.model_calls, before.tool_calls, before.outside_calls) == (1 + 3 + 2, 4, 2)
    assert (found.model_calls, found.tool_calls, found.outside_calls) == (1 + 1, 1, 0)
    assert found.sentence == "2 model calls (240 tokens, $0.002), 1 tool call."


SENDING = think("send", to="bob")


def test_what_a_child_did_before_the_copy_is_told_in_the_copy_as_in_its_run() -> None:
    """In a copy of the copy too, and in a replay of it, whose children are replays."""
    after = (think("search", q="a"), think("search", q="b"), FINAL)
    run = work(family(SENDING, INNER_ANSWER, settings={"rules": ALLOW}, after=after))
    copy = work(actions.fork(run, at=transitions(run)[-4], by=None))
    further = work(actions.rerun(copy, at=transitions(copy)[-2], by=None))
    replayed, _ = actions.replay(further, by=None)
    before = again(run, 0)
    assert [(one.run, one.code) for one in before.outside] == [(child_of(run), 'send(to="bob")')]
    for one in (copy, further, replayed):
        assert not one.children.exists()
        assert again(one, 0) == before
        assert told_of_going_back(again(one, 0), 0) == told_of_going_back(before, 0)
        called = run.exchanges.get(kind="child_run").seq
        assert again(one, called).outside == ()
    itself, _ = actions.replay(run, by=None)
    assert [one.run for one in again(itself, 0).outside] == [child_of(itself)]


def test_a_copy_tells_what_was_done_on_rows_that_were_gone_back_over() -> None:
    after = (think("send", to="ann"), think("search", q="a"), FINAL)
    run = work(family(SENDING, INNER_ANSWER, settings={"rules": ALLOW}, after=after))
    actions.rewind(run, to=transitions(run)[0], by=None)
    decide(work(run), "approve")
    assert (work(run).status, run.children.count()) == ("succeeded", 2)
    copy = work(actions.fork(run, at=transitions(run)[-2], by=None))
    for one in (run, copy):
        found = again(one, 0)
        assert [effect.code for effect in found.outside] == ['send(to="ann")', *['send(to="bob")'] * 2]
        assert (found.outside_calls, found.tool_calls) == (2, 4)


def test_rolling_a_copy_back_has_to_be_confirmed_for_what_a_child_did_before_it() -> None:
    run = work(
        family(SENDING, INNER_ANSWER, settings={"rules": ALLOW}, after=(think("send", to="ann"), FINAL))
    )
    copy = work(actions.fork(run, at=transitions(run, "executed")[0], by=None))
    found = staying(pending(copy), transitions(copy)[0])
    assert found is not None
    assert [one.run for one in found.outside] == [child_of(run)]
    actions.rewind(copy, to=transitions(copy)[0], by=None)
    assert (again(copy, 0).outside, again(copy, 0).outside_calls) == (found.outside, 0)


def test_many_children_are_told_with_as_many_queries_as_two() -> None:
    def looks(count: int) -> int:
        calls = [think("agent.inner", goal=f"Part {number}") for number in range(count)]
        inner = {"inner": {"replies": {"decision": [SENDING, INNER_ANSWER]}}}
        settings = {"inner": {"machine": "ruled", "settings": {"rules": ALLOW}}}
        run = work(launch(played=script(*calls, FINAL, subgraphs=inner), subgraphs=settings, max_steps=50))
        with CaptureQueriesContext(connection) as asked:
            found = again(run, 0)
        assert (len(found.outside), found.outside_calls, run.children.count()) == (count, count, count)
        return len(asked)

    assert looks(2) == looks(12)


def test_of_a_child_only_the_cost_is_added() -> None:
    run = work(family(think("search", q="tides"), INNER_ANSWER))
    child = child_of(run)
    assert (child.model_calls, child.tool_calls, child.cost_usd) == (2, 1, 0.002)
    assert (run.model_calls, run.tool_calls, run.cost_usd) == (2, 1, 0.004)
    assert (run.input_tokens, run.output_tokens) == (200, 40)
    state = json.loads(run.steps.exclude(state_json=None).order_by("-seq")[0].state_json or "")
    assert state["metadata"]["total_cost"] == 0.004


def test_what_is_charged_beside_a_child_at_work_comes_to_its_parent_once() -> None:
    run = family(think("search", q="tides"), INNER_ANSWER)
    slice_of(run)
    log.charge(child_of(run).pk, ModelReplied(text="", usage=Usage(cost_usd=0.25)))
    work(child_of(run))
    work(run)
    assert child_of(run).cost_usd == pytest.approx(0.252)
    assert run.cost_usd == pytest.approx(0.254)


def test_a_family_runs_inline_in_one_process() -> None:
    run = driver.drive_inline(family(think("search", q="tides"), INNER_ANSWER).pk)
    assert (run.status, run.cost_usd) == ("succeeded", 0.004)
    assert kinds(child_of(run)).count("transition") == 10


def test_inline_with_delays_in_the_child() -> None:
    run = driver.drive_inline(family({"$error": "transient"}, INNER_ANSWER).pk)
    assert run.status == "succeeded"
    assert child_of(run).exchanges.filter(kind="model_call").count() == 2


@pytest.mark.parametrize(
    ("inner", "settings", "status"),
    [
        ([], {}, "failed"),
        (["no", "no", "no"], {}, "failed"),
        ([think("search", q="a")], {"max_steps": 1}, "stopped"),
    ],
)
def test_a_child_without_an_answer_is_an_error_that_the_parent_goes_on_from(
    inner: list[Any], settings: dict[str, Any], status: str
) -> None:
    run = work(family(*inner, settings=settings))
    assert child_of(run).status == status
    assert run.status == "succeeded"
    assert "error" in result_of(run)
    assert result_of(run)["error"]


@pytest.mark.parametrize(
    ("inner", "settings", "told"),
    [
        (["no", "no", "no"], {}, "failed (fatal_error): 3 replies in a row could not be read."),
        ([], {}, "failed (model_error): script exhausted (role decision, call 1)"),
        ([think("search", q="a")], {"max_steps": 1}, "stopped without an answer (max_steps)."),
        (
            [think("search", q="a")],
            {"ruleset": [{"type": "max_depth", "value": 0}]},
            "stopped without an answer (rule_violation): Step 1 is past the 0 that are allowed.",
        ),
    ],
)
def test_the_error_of_a_child_names_its_run_and_its_cause(
    inner: list[Any], settings: dict[str, Any], told: str
) -> None:
    run = work(family(*inner, settings=settings))
    child = child_of(run)
    assert result_of(run)["error"].startswith(f"Child run {child.pk} {told}")
    shown = [row.summary for row in row_views(run) if row.seq == step_of_result(run).seq]
    assert [f"Child run {child.pk} {told[:20]}" in summary for summary in shown] == [True]
    check_replay(run)


def test_a_cause_that_was_changed_in_the_record_is_found() -> None:
    run = work(family("no", "no", "no"))
    (asked,) = run.exchanges.filter(kind="child_run")
    kept = asked.answer_json or ""
    for was, forged in (("fatal_error", "max_steps"), ("3 replies", "2 replies")):
        assert was in kept
        run.exchanges.filter(pk=asked.pk).update(answer_json=kept.replace(was, forged))
        misfit = verifying.verify(Run.objects.get(pk=run.pk), driver.tool_specs(run))
        assert misfit is not None and misfit.seq in (asked.seq, step_of_result(run).seq)
    run.exchanges.filter(pk=asked.pk).update(answer_json=kept)


def test_what_a_failed_child_says_counts_as_read_from_it() -> None:
    run = work(family("no", "no", "no"))
    facts = json.loads(step_of_result(run).facts_json)
    assert [fact["tool"] for fact in facts if fact["kind"] == "run.read"] == ["agent.inner"]


def test_a_cause_that_the_childs_earlier_slice_wrote_is_told_too() -> None:
    """The step that names the cause may have been committed before the one that ends the run."""
    checklist = {"machine": "checklist", "settings": {"max_consecutive_violations": 0}}
    played = script(CALL, FINAL, subgraphs={"inner": {"replies": {"decision": ["prose"]}}})
    run = launch(played=played, subgraphs={"inner": checklist})
    slice_of(run)
    child = child_of(run)
    while not child.finished:
        slice_of(child, Slice(moves=1))
    error = result_of(work(run))["error"]
    assert error.startswith(f"Child run {child.pk} stopped without an answer (protocol_violation)")


def test_the_error_of_a_child_that_a_person_cancelled_says_so() -> None:
    run = family(think("send", to="bob"))
    work(run)
    work(child_of(run))
    actions.abort(child_of(run), by=None, message="Not today.")
    error = result_of(work(run))["error"]
    assert error.startswith(f"Child run {child_of(run).pk} was cancelled (aborted): Not today.")


def test_a_child_that_was_stopped_with_an_answer_gives_it() -> None:
    settings = {"limits": {"cost_usd": 0.001}, "answers": [{"verdict": "finish"}]}
    played = script(
        CALL,
        FINAL,
        subgraphs={
            "inner": {"replies": {"decision": [think("search", q="a")], "fallback": ["As far as I got."]}}
        },
    )
    run = work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": settings}}))
    child = child_of(run)
    assert (child.status, child.exit_reason, child.answer_source) == ("stopped", "cost_limit", "fallback")
    assert result_of(run)["value"] == "As far as I got."
    assert (child.cost_usd, run.cost_usd) == (0.002, 0.004)


def test_a_child_that_is_cancelled_is_an_error_and_its_cost_counts() -> None:
    run = family(think("send", to="bob"), INNER_ANSWER)
    work(run)
    child = child_of(run)
    assert (run.status, child.status) == ("waiting", "waiting")
    actions.abort(child, by=None)
    run.refresh_from_db()
    assert run.status == "queued"
    work(run)
    assert run.status == "succeeded"
    assert result_of(run)["error"]
    assert run.cost_usd == 0.003


def test_a_question_of_the_child_is_answered_and_the_family_goes_on() -> None:
    run = work(family(think("send", to="bob"), INNER_ANSWER))
    child = child_of(run)
    decide(child, "approve")
    work(child)
    work(run)
    assert (run.status, child.tool_calls) == ("succeeded", 1)


def test_an_abort_of_the_parent_stops_the_child_and_adds_its_cost() -> None:
    run = work(family(think("send", to="bob"), INNER_ANSWER))
    child = child_of(run)
    actions.abort(run, by=None, message="enough")
    run.refresh_from_db()
    child.refresh_from_db()
    assert (run.status, child.status) == ("cancelled", "cancelled")
    assert run.cost_usd == 0.002
    assert child.interrupts.get().status == "superseded"
    assert work(child).status == "cancelled"
    assert tasks.sweep() == 0


def test_an_abort_of_the_parent_while_the_child_works_fences_its_worker() -> None:
    run = family(think("search", q="tides"), INNER_ANSWER)
    slice_of(run)
    child = child_of(run)
    with pytest.raises(errors.Fenced):
        slice_of(child, before=lambda: actions.abort(run, by=None), only="search")
    child.refresh_from_db()
    assert (child.status, child.tool_calls) == ("cancelled", 1)


def test_a_rewind_of_the_parent_stops_the_child_and_a_new_one_is_started() -> None:
    run = work(family(think("send", to="bob"), INNER_ANSWER))
    old = child_of(run)
    actions.rewind(run, to=transitions(run)[0], by=None)
    old.refresh_from_db()
    run.refresh_from_db()
    assert (old.status, run.status, run.cost_usd) == ("cancelled", "queued", 0.002)
    work(run)
    new = Run.objects.exclude(pk=old.pk).get(parent=run)
    assert new.status == "waiting"
    assert json.loads(run.steps.get(kind="rewind").state_json or "")["metadata"]["total_cost"] == 0.002
    decide(new, "approve")
    work(new)
    work(run)
    assert (run.status, run.cost_usd) == ("succeeded", 0.005)


def test_a_parent_that_is_paused_while_its_child_ends_goes_on_when_resumed() -> None:
    run = family(INNER_ANSWER)
    slice_of(run)
    actions.pause(run, by=None)
    work(child_of(run))
    assert Run.objects.get(pk=run.pk).status == "paused"
    assert actions.resume(run, by=None).status == "queued"
    assert work(run).status == "succeeded"


def test_a_parent_that_is_paused_and_resumed_waits_on_for_its_child() -> None:
    run = family(INNER_ANSWER)
    slice_of(run)
    actions.pause(run, by=None)
    assert actions.resume(run, by=None).status == "waiting"
    work(child_of(run))
    assert work(run).status == "succeeded"


def test_children_of_children() -> None:
    played = script(
        think("agent.outer", goal="Ask further"),
        FINAL,
        subgraphs={
            "outer": {"replies": {"decision": [think("agent.inner", goal="Look"), INNER_ANSWER]}},
            "inner": {"replies": {"decision": [think("search", q="a"), INNER_ANSWER]}},
        },
    )
    nested = {"machine": "ruled", "settings": {"subgraphs": {"inner": {"machine": "ruled", "settings": {}}}}}
    for drive in (work, lambda run: driver.drive_inline(run.pk)):
        run = drive(launch(played=played, subgraphs={"outer": nested}))
        outer = child_of(run)
        inner = child_of(outer)
        assert (run.status, outer.status, inner.status) == ("succeeded", "succeeded", "succeeded")
        assert (inner.cost_usd, outer.cost_usd, run.cost_usd) == (0.002, 0.004, 0.006)


def test_children_belong_to_the_owner_and_to_the_family_of_the_first_run() -> None:
    """Whoever sees and steers the first run does so with all of them, and its limit holds for all of them."""
    owner = person("alice", "add_run")
    searches = [think("search", q=str(number)) for number in range(9)]
    played = script(
        think("agent.outer", goal="Ask further"),
        FINAL,
        subgraphs={
            "outer": {"replies": {"decision": [think("agent.inner", goal="Look"), INNER_ANSWER]}},
            "inner": {"replies": {"decision": [*searches, INNER_ANSWER]}},
        },
    )
    nested = {"machine": "ruled", "settings": {"subgraphs": {"inner": {"machine": "ruled", "settings": {}}}}}
    run = work(launch(played=played, subgraphs={"outer": nested}, limits={"cost_usd": 0.005}, owner=owner))
    outer = child_of(run)
    inner = child_of(outer)
    assert [(one.owner, one.root_id) for one in (outer, inner)] == [(owner, run.pk)] * 2
    assert pending(inner).kind == "limit"
    assert run.cost_usd + outer.cost_usd + inner.cost_usd == pytest.approx(0.005)


def test_an_abort_at_the_top_reaches_the_last_child_and_every_cost_comes_up() -> None:
    played = script(
        think("agent.outer", goal="Ask further"),
        FINAL,
        subgraphs={
            "outer": {"replies": {"decision": [think("agent.inner", goal="Look"), INNER_ANSWER]}},
            "inner": {"replies": {"decision": [think("send", to="bob"), INNER_ANSWER]}},
        },
    )
    nested = {"machine": "ruled", "settings": {"subgraphs": {"inner": {"machine": "ruled", "settings": {}}}}}
    run = work(launch(played=played, subgraphs={"outer": nested}))
    inner = child_of(child_of(run))
    assert inner.status == "waiting"
    actions.abort(run, by=None)
    inner.refresh_from_db()
    run.refresh_from_db()
    assert (inner.status, run.cost_usd) == ("cancelled", 0.003)


def test_a_child_plays_the_parents_script_from_the_start_where_it_has_none_of_its_own() -> None:
    played = script(CALL, FINAL, tools=TOOLS)
    settings: dict[str, Any] = {"subgraphs": {}}
    run = work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": settings}}))
    child = child_of(run)
    first = json.loads(child.exchanges.order_by("seq")[0].answer_json or "")
    assert "agent.inner" in first["text"]
    assert (child.status, child.answer, run.status) == ("succeeded", "42", "succeeded")
    assert USAGE["input_tokens"] == 100


def answers_of_children(run: Run) -> list[str | None]:
    return [child.answer for child in Run.objects.filter(parent=run).order_by("pk")]


def each_child_its_part(*replies: Any, **settings: Any) -> Run:
    """A family whose first three children play parts of their own."""
    first, *then = [
        {"replies": {"decision": [{"thought": f"FINAL ANSWER: {answer}", "action": None}]}}
        for answer in ("first", "second", "third")
    ]
    played = script(*replies, FINAL, subgraphs={"inner": first | {"then": then}})
    return work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}}, **settings))


def test_a_fork_after_a_childs_answer_plays_the_part_of_the_next_one() -> None:
    run = each_child_its_part(CALL, CALL, CALL)
    first, second, *_ = transitions(run, "executed")
    assert answers_of_children(work(actions.fork(run, at=first, by=None))) == ["second", "third"]
    fork = work(actions.fork(run, at=second, by=None))
    assert answers_of_children(fork) == ["third"]
    assert answers_of_children(work(actions.fork(fork, at=second, by=None))) == ["third"]
    assert answers_of_children(work(actions.fork(run, at=0, by=None))) == ["first", "second", "third"]


def test_after_a_rollback_the_next_part_is_played_in_the_run_and_in_its_fork() -> None:
    run = each_child_its_part(CALL, CALL, think("send", to="bob"), CALL, cache=False)
    decide(run, "rollback", to_step=transitions(run, "executed")[0])
    work(run)
    assert answers_of_children(run) == ["first", "second", "third"]
    after = next(seq for seq in transitions(run) if seq > run.steps.get(kind="rewind").seq)
    assert answers_of_children(work(actions.fork(run, at=after, by=None))) == ["third"]


def test_a_child_with_tools_of_its_own_has_those() -> None:
    own = {"inner_tool": {"effects": "none", "results": [{"output": "own"}]}}
    part = {"replies": {"decision": [think("inner_tool"), INNER_ANSWER]}, "tools": own}
    played = script(CALL, FINAL, subgraphs={"inner": part})
    run = work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}}))
    assert result_of(child_of(run))["value"] == "own"


def test_a_child_call_can_be_held_edited_and_refused() -> None:
    rules = [{"when": {"tool": "agent.*"}, "do": "ask"}]
    run = work(family(INNER_ANSWER, rules=rules))
    assert (pending(run).tool, pending(run).args) == ("agent.inner", {"goal": "Look up the tides"})
    decide(run, "edit", args={"goal": "Look up the moon"})
    work(run)
    assert (run.status, child_of(run).goal) == ("succeeded", "Look up the moon")
    other = work(family(INNER_ANSWER, rules=rules))
    decide(other, "reject", message="no")
    work(other)
    assert (other.status, other.tool_calls) == ("succeeded", 0)
    assert not Run.objects.filter(parent=other).exists()


def test_a_child_without_a_goal_is_not_started() -> None:
    run = work(launch(played=script(think("agent.inner"), FINAL), subgraphs={"inner": {"machine": "ruled"}}))
    assert run.status == "succeeded"
    assert not Run.objects.filter(parent=run).exists()
    assert result_of(run)["error"]


def test_a_worker_that_dies_before_the_child_is_written_leaves_no_child() -> None:
    run = family(INNER_ANSWER)
    lease = leases.claim(run.pk, "doomed")
    assert lease is not None
    lose_worker(run)
    work(run)
    assert Run.objects.filter(parent=run).count() == 1
    assert run.status == "succeeded"


def test_rules_of_the_site_hold_for_children() -> None:
    from runs.models import SiteRule

    SiteRule.objects.create(rule_json=json.dumps({"when": {"tool": "search"}, "do": "deny"}))
    run = work(family(think("search", q="a"), INNER_ANSWER, rules=ALLOW))
    assert (run.status, child_of(run).tool_calls) == ("succeeded", 0)


@pytest.mark.parametrize("deep", [1, 2])
def test_a_childs_question_is_asked_and_decided_on_its_parents_page(deep: int) -> None:
    letter, part = think("send", to="bob"), {"machine": "ruled"}
    inner = [letter, INNER_ANSWER] if deep == 1 else [think("agent.inmost", goal="x"), INNER_ANSWER]
    inmost = {"replies": {"decision": [letter, INNER_ANSWER]}}
    played = script(CALL, FINAL, subgraphs={"inner": {"replies": {"decision": inner}}, "inmost": inmost})
    settings = {"subgraphs": {"inmost": part}} if deep == 2 else {}
    run = work(launch(played=played, subgraphs={"inner": {**part, "settings": settings}}))
    asker = child_of(run) if deep == 1 else child_of(child_of(run))
    client = signed_in(cast_member("root", is_superuser=True))
    page = client.get(f"/runs/{run.pk}/").text
    assert f"#{asker.pk}" in page and "Asked by the child run" in page
    form = next(form for form in forms_of(page) if "verdict" in form.names)
    assert str(pending(asker).pk) in form.action
    before = look(run.pk, None).moment
    decided = client.post(form.action, {**form.fields, "verdict": "approve", "sure": "yes"})
    assert decided.status_code == 302
    assert look(run.pk, None).moment != before, "pages that are open are painted anew"
    work(asker)
    assert "Asked by" not in client.get(f"/runs/{run.pk}/").text
    assert Run.objects.get(pk=asker.pk).status == "succeeded"
