"""Directly before a deed the site's rules of that moment hold, and the right of whoever approved it.

Where either has changed a person is asked anew, and the row says why. See docs/runtime.md, "Questions".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection

from runs import actions, driver, tasks
from runs.driver import Slice
from runs.models import Decision, Interrupt, Run, SiteRule
from runs.reading import exporting
from runs.reading.as_test import pytest_file
from runs.reading.rows import row_view
from runs.store import leases
from tests.cast import person
from tests.launching import ALLOW, FINAL, SEND, launch, script, think
from tests.replaying import outcome_of
from tests.running import decide, in_threads, kinds, make_due, pending, work
from tests.workers import Deed, die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies", "no_glances")]

TO_BOB = think("send", to="bob")
ASK = {"when": {"tool": "send"}, "do": "ask"}
DENY = {"when": {"tool": "send"}, "do": "deny"}


def reviewer(name: str = "bob") -> User:
    """Somebody who may see all runs and decide; they own a run of their own, as does everybody here."""
    return owning(person(name, "view_run", "decide_interrupt", "add_run"))


def operator(name: str = "alice") -> User:
    """Somebody who may launch runs, and decide nothing."""
    return owning(person(name, "add_run"))


def owning(user: User) -> User:
    work(launch(FINAL, owner=user))
    return user


def site_rule(rule: dict[str, Any]) -> None:
    SiteRule.objects.create(rule_json=json.dumps(rule))


def said_in(run: Run, seq: int) -> str:
    """The row in words."""
    view = row_view(run, seq)
    assert view is not None
    return view.line.plain


def approve(run: Run, by: User | None, verdict: str = "approve", **parts: Any) -> None:
    channel = "web" if by is not None else "command"
    actions.decide(pending(run).pk, verdict=verdict, by=by, channel=channel, **parts)


def lose_right(user: User) -> None:
    user.user_permissions.remove(Permission.objects.get(codename="decide_interrupt"))


def be_deactivated(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def be_deleted(user: User) -> None:
    User.objects.get(pk=user.pk).delete()


def lose_sight(user: User) -> None:
    user.user_permissions.remove(Permission.objects.get(codename="view_run"))


WITHDRAWN = [lose_right, be_deactivated, be_deleted, lose_sight]


def sent(run: Run) -> int:
    """How many letters were sent."""
    return run.exchanges.filter(name="send", answer_json__contains="tool_returned").count()


def replays(run: Run) -> bool:
    _, difference = actions.replay(run, by=None)
    assert difference is None, str(difference)
    return True


# --- who approved it may decide no longer ---------------------------------------------------------------------------


@pytest.mark.parametrize("withdrawn", WITHDRAWN)
def test_an_approval_by_one_who_may_no_longer_decide_is_asked_for_anew(
    withdrawn: Callable[[User], None],
) -> None:
    bob, carol = reviewer(), reviewer("carol")
    run = work(launch(TO_BOB, FINAL, owner=operator()))
    approve(run, bob)
    withdrawn(bob)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    asked = pending(run)
    assert asked.why.startswith("Approved by bob, who may no longer decide.")
    assert (asked.kind, asked.tool, asked.args) == ("tool_call", "send", {"to": "bob"})
    approve(run, carol)
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


@pytest.mark.parametrize("withdrawn", WITHDRAWN)
def test_a_top_up_that_lets_a_call_go_counts_as_long_as_its_giver_may_decide(
    withdrawn: Callable[[User], None],
) -> None:
    bob, carol = reviewer(), reviewer("carol")
    dear = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.2}
    played = script(TO_BOB, FINAL, usage=dear)
    run = work(launch(played=played, owner=operator(), rules=ALLOW, limits={"cost_usd": 0.1}))
    assert (pending(run).kind, pending(run).tool) == ("limit", "send")
    approve(run, bob, "top_up", args={"cost_usd": 1.0})
    withdrawn(bob)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert pending(run).why.startswith("The limit was raised by bob, who may no longer decide.")
    approve(run, carol, "top_up", args={"cost_usd": 1.0})
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


def test_the_row_of_the_new_question_says_whose_approval_lapsed() -> None:
    bob = reviewer()
    run = work(launch(TO_BOB, FINAL))
    approve(run, bob)
    lose_right(bob)
    work(run)
    row = run.steps.get(seq=pending(run).seq)
    (fact,) = json.loads(row.facts_json)
    assert (fact["kind"], fact["by"]) == ("run.approval.lapsed", "bob")
    assert "bob, who may no longer decide" in said_in(run, row.seq)


def test_the_right_that_is_withdrawn_between_the_answer_and_the_deed_is_noticed() -> None:
    """The worker has heard the approval and written the ask; the deed waits, for the site is halted."""
    bob = reviewer()
    run = work(launch(TO_BOB, FINAL))
    approve(run, bob)
    make_due(run.pk)
    lease = leases.claim(run.pk, "alpha")
    assert lease is not None
    actions.halt_site(by=None, reason="a look")
    slice_by(lease)
    assert run.exchanges.get(name="send").status == "asked"
    actions.unhalt_site(by=None)
    lose_right(bob)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert pending(run).why.startswith("Approved by bob, who may no longer decide.")
    approve(run, reviewer("carol"))
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


def slice_by(lease: leases.Lease) -> None:
    from runs.driver.holds import held
    from runs.driver.worker import Worker

    with held(lease) as hold:
        try:
            Worker(hold).drive(Slice())
        finally:
            leases.let_go(lease)


def test_changed_arguments_are_asked_about_again_as_they_were_changed() -> None:
    """A retry of a call that was approved with changes: the person who did so is gone by then."""
    bob = reviewer()
    once = SEND | {"results": [{"error": "busy", "kind": "transient"}, {"output": "sent"}]}
    run = work(launch(played=script(TO_BOB, FINAL, tools={"send": once})))
    approve(run, bob, "edit", args={"to": "eve"})
    make_due(run.pk)
    slice_of(run, after=lambda: be_deactivated(bob), only="send")
    work(run)
    asked = pending(run)
    assert asked.args == {"to": "eve"}
    assert asked.why.startswith("Approved by bob, who may no longer decide.")
    approve(run, reviewer("carol"))
    assert work(run).status == "succeeded"
    assert replays(run)


def test_an_approval_by_one_who_may_still_decide_is_used_once() -> None:
    bob = reviewer()
    run = work(launch(TO_BOB, TO_BOB, FINAL))
    approve(run, bob)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 1)
    approve(run, bob)
    assert (work(run).status, sent(run)) == ("succeeded", 2)


def test_the_operator_and_the_deadline_have_no_right_to_lose() -> None:
    run = work(launch(TO_BOB, FINAL))
    approve(run, None)
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    timed = [{**ASK, "deadline_s": 0.001, "on_timeout": "approve"}]
    other = work(launch(TO_BOB, FINAL, rules=timed))
    tasks.sweep()
    assert Decision.objects.get(interrupt__run=other).channel == "deadline"
    assert (work(other).status, sent(other)) == ("succeeded", 1)


def test_an_approval_in_a_child_lapses_like_any_other() -> None:
    bob = reviewer()
    played = script(think("agent.inner", goal="write"), FINAL)
    played["subgraphs"] = {"inner": {"replies": {"decision": [TO_BOB, FINAL]}}}
    run = work(launch(played=played, subgraphs={"inner": {"machine": "ruled"}}))
    child = Run.objects.get(parent=run)
    approve(child, bob)
    lose_right(bob)
    work(child)
    assert (child.status, sent(child)) == ("waiting", 0)
    approve(child, reviewer("carol"))
    work(child)
    assert sent(child) == 1
    assert work(run).status == "succeeded"


def test_an_approval_of_a_call_that_only_reads_lapses_too() -> None:
    bob = reviewer()
    run = work(launch(think("search", q="tides"), FINAL, rules=[{"when": {"tool": "search"}, "do": "ask"}]))
    approve(run, bob)
    lose_right(bob)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)


def test_the_start_of_a_child_that_was_approved_is_asked_about_anew() -> None:
    bob = reviewer()
    run = work(
        launch(
            think("agent.inner", goal="look"),
            FINAL,
            subgraphs={"inner": {"machine": "ruled"}},
            rules=[{"when": {"tool": "agent.*"}, "do": "ask"}],
        )
    )
    approve(run, bob)
    lose_right(bob)
    work(run)
    assert run.status == "waiting"
    assert not Run.objects.filter(parent=run).exists()


def test_a_plan_that_was_approved_by_one_who_may_no_longer_decide_is_asked_about_anew() -> None:
    bob = reviewer()
    run = work(launch(FINAL, rules=[{"when": {"first_step": True}, "do": "ask"}]))
    approve(run, bob)
    lose_right(bob)
    work(run)
    assert (run.status, pending(run).kind) == ("waiting", "plan")
    approve(run, reviewer("carol"))
    assert work(run).status == "succeeded"
    assert replays(run)


def test_a_call_that_may_have_happened_is_asked_about_as_such_again() -> None:
    bob = reviewer()
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    die_in(run, after=kill, only="send")
    work(run)
    assert pending(run).kind == "may_have_happened"
    approve(run, bob)
    lose_right(bob)
    work(run)
    asked = pending(run)
    assert asked.kind == "may_have_happened"
    assert asked.why.startswith("Approved by bob, who may no longer decide.")
    approve(run, reviewer("carol"))
    assert work(run).status == "succeeded"
    assert replays(run)


# --- the site's rules are those of the moment -----------------------------------------------------------------------


def test_a_site_rule_that_came_after_the_approval_asks_anew() -> None:
    run = work(launch(TO_BOB, FINAL, owner=operator()))
    approve(run, reviewer())
    site_rule(ASK)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert "ask when tool send" in pending(run).why
    decide(run, "approve")
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


def test_a_site_rule_that_came_after_the_launch_comes_before_the_runs_own() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    site_rule(ASK)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert replays(run)


def test_a_site_rule_that_denies_now_refuses_what_was_approved() -> None:
    run = work(launch(TO_BOB, FINAL))
    approve(run, reviewer())
    site_rule(DENY)
    work(run)
    assert (run.status, sent(run)) == ("succeeded", 0)
    told = [fact for text in run.steps.values_list("facts_json", flat=True) for fact in json.loads(text)]
    (refused,) = [fact for fact in told if fact["kind"] == "react.tool.result"]
    assert "Refused by a rule: deny when tool send" in refused["error"]
    assert replays(run)


def test_a_site_rule_that_was_changed_is_another_rule() -> None:
    site_rule(ASK)
    rule = SiteRule.objects.get()
    run = work(launch(TO_BOB, FINAL))
    approve(run, reviewer())
    rule.rule_json = json.dumps({**ASK, "name": "Two people look at letters"})
    rule.save()
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert "Two people look at letters" in pending(run).why
    decide(run, "approve")
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


def test_a_site_rule_that_only_moved_or_has_a_neighbour_is_the_same_rule() -> None:
    site_rule(ASK)
    rule = SiteRule.objects.get()
    run = work(launch(TO_BOB, FINAL))
    approve(run, reviewer())
    SiteRule.objects.filter(pk=rule.pk).update(position=200)
    site_rule({"when": {"tool": "other"}, "do": "deny"})
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


def test_a_site_rule_that_is_gone_asks_nobody_any_more() -> None:
    site_rule(ASK)
    rule = SiteRule.objects.get()
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    rule.delete()
    assert (work(run).status, sent(run)) == ("succeeded", 1)


@pytest.mark.parametrize(("rule", "status"), [(ASK, "waiting"), (DENY, "succeeded")])
def test_a_rule_that_is_added_while_the_worker_is_in_the_model_call_holds(
    rule: dict[str, Any], status: str
) -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    slice_of(run, after=once(lambda: site_rule(rule)), only="decision")
    work(run)
    assert (run.status, sent(run)) == (status, 0)
    assert replays(run)


def once(deed: Deed) -> Deed:
    done: list[None] = []

    def only_once() -> None:
        if not done:
            done.append(None)
            deed()

    return only_once


def test_each_attempt_looks_again() -> None:
    busy = SEND | {"results": [{"error": "busy", "kind": "transient"}, {"output": "sent"}]}
    run = launch(played=script(TO_BOB, FINAL, tools={"send": busy}), rules=ALLOW)
    slice_of(run, after=once(lambda: site_rule(ASK)), only="send")
    work(run)
    assert run.status == "waiting"
    assert run.exchanges.filter(name="send", answer_json__isnull=False).count() == 1
    assert pending(run).kind == "may_have_happened"
    decide(run, "approve")
    assert work(run).status == "succeeded"
    assert replays(run)


def test_a_paused_run_that_is_resumed_looks_again() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    actions.halt_site(by=None, reason="a look")
    actions.unhalt_site(by=None)
    slice_of(run, Slice(moves=1, seconds=60))
    actions.pause(run, by=None)
    site_rule(ASK)
    actions.resume(run, by=None)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)


def test_a_call_that_only_reads_and_waited_is_looked_at_again() -> None:
    busy = {**SEARCHED, "results": [{"error": "busy", "kind": "transient"}, {"output": "found"}]}
    run = launch(played=script(think("search", q="a"), FINAL, tools={"search": busy}))
    slice_of(run, after=once(lambda: site_rule({"when": {"tool": "search"}, "do": "deny"})), only="search")
    work(run)
    assert (run.status, run.exchanges.filter(name="search", answer_json__isnull=False).count()) == (
        "succeeded",
        1,
    )
    assert replays(run)


SEARCHED = {"params": {"q": "string"}, "required": ["q"], "effects": "read"}


def test_a_rule_on_steps_that_comes_later_is_asked_at_the_next_one() -> None:
    run = launch(think("search", q="a"), think("search", q="b"), FINAL)
    slice_of(run, Slice(moves=3, seconds=60))
    site_rule({"when": {"every_n_steps": 1}, "do": "ask"})
    work(run)
    assert (run.status, pending(run).kind) == ("waiting", "every_n_steps")
    decide(run, "resume")
    work(run)
    assert replays(run)


def test_a_rule_on_equal_calls_that_comes_later_counts_the_calls_before_it() -> None:
    run = work(launch(TO_BOB, TO_BOB, FINAL))
    approve(run, reviewer())
    work(run)
    site_rule({"when": {"same_call": 2}, "do": "ask"})
    decide(run, "approve")
    work(run)
    assert "the same call 2 times" in pending(run).why
    decide(run, "approve")
    assert (work(run).status, sent(run)) == ("succeeded", 2)
    assert replays(run)


def test_a_site_rule_that_can_not_be_read_asks() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    SiteRule.objects.create(rule_json='{"do": "perhaps"}')
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert "can't be read" in pending(run).why


def test_the_log_says_when_the_sites_rules_changed() -> None:
    run = launch(TO_BOB, FINAL, rules=ALLOW)
    assert kinds(run) == []
    site_rule(ASK)
    work(run)
    noted = run.steps.get(kind="note")
    assert json.loads(noted.facts_json) == [{"kind": "run.site_rules", "rules": [ASK]}]
    assert "ask when tool send" in said_in(run, noted.seq)
    assert exporting.export(run)["steps"][noted.seq - 1]["facts"][0]["kind"] == "run.site_rules"


def test_rules_that_did_not_change_are_not_noted() -> None:
    site_rule(ASK)
    run = work(launch(TO_BOB, FINAL))
    decide(run, "approve")
    work(run)
    assert not run.steps.filter(kind="note").exists()


def test_a_rollback_does_not_bring_back_the_rules_of_then() -> None:
    run = launch(think("search", q="a"), TO_BOB, TO_BOB, FINAL, rules=ALLOW)
    slice_of(run, Slice(moves=3, seconds=60))
    site_rule(ASK)
    work(run)
    decide(run, "approve")
    work(run)
    first = run.steps.filter(kind="transition").order_by("seq").values_list("seq", flat=True)[0]
    actions.rewind(run, to=first, by=None)
    work(run)
    assert (run.status, sent(run)) == ("waiting", 1)
    assert pending(run).tool == "send"
    decide(run, "approve")
    work(run)
    assert run.steps.filter(kind="note").count() == 1
    assert replays(run)


def test_todays_rules_do_not_spoil_the_replay_of_a_run_of_yesterday() -> None:
    run = work(launch(TO_BOB, FINAL, rules=ALLOW))
    site_rule(DENY)
    assert replays(run)
    made = actions.replay(run, by=None)[0]
    assert replays(made)


def test_a_rollback_that_is_heard_after_the_rules_changed_goes_over_their_row_too() -> None:
    run = launch(think("search", q="a"), TO_BOB, FINAL)
    work(run)
    first = run.steps.filter(kind="transition").earliest("seq").seq
    decide(run, "rollback", to_step=first)
    site_rule(ASK)
    work(run)
    assert (run.status, run.steps.get(kind="note").live) == ("waiting", False)
    assert "ask when tool send" in pending(run).why
    decide(run, "approve")
    assert work(run).status == "succeeded"
    assert replays(run)


def test_a_run_is_told_as_a_test_with_the_rules_that_changed(tmp_path: Path) -> None:
    run = work(launch(TO_BOB, FINAL))
    approve(run, reviewer())
    site_rule(ASK)
    work(run)
    decide(run, "approve")
    work(run)
    result = outcome_of(pytest_file(run), tmp_path)
    assert result.returncode == 0, result.stdout


def test_a_fork_goes_by_the_rules_of_today() -> None:
    run = work(launch(TO_BOB, FINAL, rules=ALLOW))
    site_rule(ASK)
    forked = work(actions.fork(run, at=0, by=None))
    assert (forked.status, forked.tool_calls) == ("waiting", 0)


def test_two_things_that_change_at_once_are_both_looked_at() -> None:
    bob = reviewer()
    run = work(launch(TO_BOB, FINAL))
    approve(run, bob)
    lose_right(bob)
    site_rule({"when": {"tool": "other"}, "do": "deny"})
    work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert pending(run).why.startswith("Approved by bob, who may no longer decide.")
    assert replays(run) if run.finished else True


def test_a_right_that_is_withdrawn_while_the_intent_is_written_is_noticed() -> None:
    bob = reviewer()
    run = work(launch(TO_BOB, FINAL))
    approve(run, bob)
    with at_the_commit_after(run, lambda: lose_right(bob)):
        work(run)
    assert (run.status, sent(run)) == ("waiting", 0)
    assert pending(run).why.startswith("Approved by bob, who may no longer decide.")
    approve(run, reviewer("carol"))
    assert (work(run).status, sent(run)) == ("succeeded", 1)
    assert replays(run)


@pytest.mark.parametrize(("rule", "status"), [(ASK, "waiting"), (DENY, "succeeded")])
def test_a_rule_that_is_saved_while_the_intent_is_written_is_noticed(
    rule: dict[str, Any], status: str
) -> None:
    run = work(launch(TO_BOB, FINAL))
    approve(run, reviewer())
    with at_the_commit_after(run, lambda: site_rule(rule)):
        work(run)
    assert (run.status, sent(run)) == (status, 0)
    assert replays(run)


@contextmanager
def at_the_commit_after(run: Run, deed: Deed) -> Iterator[None]:
    """`deed` is done when the run's next rows are written: the answer is heard by then, and the deed not begun."""
    only_once = once(deed)

    def meddle(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001
        if sql.startswith("INSERT INTO runs_step"):
            only_once()
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meddle):
        yield


def test_no_letter_goes_out_once_the_right_is_withdrawn() -> None:
    """A race: whatever the order, the letter went out by a good approval, or a person is asked anew."""
    for number in range(4):
        bob = reviewer(f"bob{number}")
        run = work(launch(TO_BOB, FINAL))
        approve(run, bob)
        make_due(run.pk)

        def deed(which: int, run: Run = run, bob: User = bob) -> Any:
            return lose_right(bob) if which == 0 else driver.drive(run.pk)

        in_threads(2, deed)
        work(run)
        lapsed = Interrupt.objects.filter(run=run, why__startswith="Approved by").count()
        assert (sent(run), lapsed) in ((1, 0), (0, 1))


def test_a_rollback_that_is_heard_after_the_rules_changed_meets_no_fault() -> None:
    run = work(launch(think("search", q="a"), TO_BOB, FINAL))
    decide(run, "rollback", to_step=run.steps.filter(kind="transition").earliest("seq").seq)
    site_rule(ASK)
    slice_of(run)
    assert (run.status, run.steps.filter(kind="note").count()) == ("waiting", 1)


def test_a_rule_that_does_not_concern_the_call_that_waits_is_noted_once() -> None:
    busy = {**SEARCHED, "results": [{"error": "busy", "kind": "transient"}, {"output": "found"}]}
    run = launch(played=script(think("search", q="a"), FINAL, tools={"search": busy}))
    slice_of(run)
    site_rule(ASK)
    slice_of(run)
    assert (run.status, run.steps.filter(kind="note").count()) == ("succeeded", 1)
