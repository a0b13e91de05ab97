"""What the gates have asked already is theirs: no fork sets it, and none passes a site rule by it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.urls import reverse

from runs import actions
from runs.engine.machine import Terms
from runs.engine.rules import carried_over
from runs.engine.settings import Settings
from runs.engine.states import control_values
from runs.forms.copying import ForkForm
from runs.machines import CATALOGUE
from runs.models import Run, SiteRule
from runs.store import loading
from tests.cast import person, signed_in
from tests.launching import ALLOW, FINAL, TOOLS, launch, think
from tests.running import decide, pending, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

FIRST = {"when": {"first_step": True}, "do": "ask"}
EVERY = {"when": {"every_n_steps": 2}, "do": "ask"}
SEARCHES = [think("search", q=str(number)) for number in range(6)]


def operator(name: str = "alice") -> User:
    """Somebody who launches runs and decides nothing."""
    return person(name, "add_run", "view_run")


def site_rule(rule: dict[str, Any]) -> None:
    SiteRule.objects.create(rule_json=json.dumps(rule))


def waiting_for_the_plan(owner: User | None) -> Run:
    """A run that a rule of the site holds before its first step."""
    site_rule(FIRST)
    run = work(launch(*SEARCHES, FINAL, owner=owner, rules=ALLOW))
    assert pending(run).kind == "plan"
    return run


def refused(run: Run, at: int, **parts: Any) -> list[actions.Problem]:
    with pytest.raises(actions.BadLaunch) as caught:
        actions.fork(run, at=at, **parts)
    return list(caught.value.problems)


@pytest.mark.parametrize("asked", [{"rule:1": 1}, {}, {"settings": 99}, None, "x"])
def test_what_the_rules_have_asked_can_not_be_set(asked: Any) -> None:
    alice = operator()
    run = waiting_for_the_plan(alice)
    (problem,) = refused(run, 0, by=alice, state={"interrupts_asked": asked})
    assert problem.path == "state.interrupts_asked"
    assert (
        problem.message == "The run itself keeps interrupts_asked, which counts the questions of its rules."
    )
    assert Run.objects.count() == 1


@pytest.mark.parametrize("machine", list(CATALOGUE))
def test_no_machine_offers_it(machine: str) -> None:
    assert "interrupts_asked" not in control_values(CATALOGUE[machine])


def test_the_command_refuses_it_too() -> None:
    run = waiting_for_the_plan(None)
    with pytest.raises(CommandError, match="The run itself keeps interrupts_asked"):
        call_command("fork", str(run.pk), "--at", "0", "--state", '{"interrupts_asked": {"rule:1": 1}}')
    assert Run.objects.count() == 1


def test_the_page_refuses_it_and_keeps_what_was_typed() -> None:
    alice = operator()
    run = waiting_for_the_plan(alice)
    assert "state-interrupts_asked" not in ForkForm(run, 0).fields
    typed = {"at": "0", "message": "my reason", "state-interrupts_asked": '{"rule:1": 1}'}
    answer = signed_in(alice).post(reverse("fork", args=[run.pk]), typed)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "The run itself keeps interrupts_asked" in text and "my reason" in text
    assert Run.objects.count() == 1


def test_a_fork_that_says_it_has_taken_a_step_is_asked_before_its_first_one() -> None:
    alice = operator()
    run = waiting_for_the_plan(alice)
    forked = work(actions.fork(run, at=0, by=alice, state={"steps": 1}))
    assert (forked.status, pending(forked).kind, forked.model_calls) == ("waiting", "plan", 0)


def test_a_fork_with_another_plan_than_the_one_that_was_approved_is_asked_about_it() -> None:
    site_rule(FIRST)
    rows = [{"tool": "search", "args": {"q": "a"}}, {"tool": "search", "args": {"q": "b"}}]
    settings: dict[str, Any] = {"plan": rows, "tools": ["search"], "rules": ALLOW}
    played = {
        "replies": {"decision": [*rows, {"tool": "final_answer", "args": {"answer": "x"}}]},
        "tools": TOOLS,
    }
    run = work(launch(machine="planned", goal="Look", played=played, **settings))
    decide(run, "approve")
    work(run)
    at = transitions(run, "planned")[0]
    other = [{"tool": "search", "args": {"q": "something else"}}]
    forked = work(actions.fork(run, at=at, by=operator(), state={"plan": other}))
    assert (forked.status, pending(forked).kind) == ("waiting", "plan")
    assert pending(forked).args["plan"][0]["args"] == {"q": "something else"}


def test_a_fork_that_changes_nothing_is_not_asked_again_what_was_answered() -> None:
    run = waiting_for_the_plan(None)
    decide(run, "approve")
    work(run)
    forked = work(actions.rerun(run, at=transitions(run)[0], by=None))
    assert forked.status == "succeeded"


def test_fewer_steps_are_no_way_past_a_rule_on_every_n_steps() -> None:
    site_rule(EVERY)
    run = work(launch(*SEARCHES, FINAL, rules=ALLOW))
    assert pending(run).kind == "every_n_steps"
    decide(run, "resume")
    work(run)
    at = run.steps.filter(kind="transition", live=True, seq__gt=run.interrupts.earliest("seq").seq)
    forked = actions.fork(run, at=at.earliest("seq").seq, by=operator(), state={"steps": 0})
    work(forked)
    asked = pending(forked)
    assert asked.kind == "every_n_steps"
    assert loading.state_at(
        forked, CATALOGUE["ruled"], loading.terms_of(forked, {}), asked.seq
    ).interrupts_asked == {"rule:1": 2}


def test_a_rule_that_stands_where_another_was_answered_is_not_answered() -> None:
    """The run's own rule was asked as rule 1; then the site has one, which is rule 1 of the fork."""
    run = work(launch(*SEARCHES, FINAL, rules=[{**EVERY, "name": "my own"}, *ALLOW]))
    decide(run, "resume")
    work(run)
    at = run.steps.filter(kind="transition", live=True, seq__lt=run.interrupts.earliest("seq").seq).latest(
        "seq"
    )
    again = work(actions.fork(run, at=at.seq, by=operator("a"), settings={"rules": ALLOW}))
    assert again.status == "succeeded"
    after = run.steps.filter(kind="transition", live=True, seq__gt=run.interrupts.earliest("seq").seq)
    site_rule({**EVERY, "name": "the site's"})
    forked = actions.fork(run, at=after.earliest("seq").seq, by=operator("b"))
    state = loading.state_at(forked, CATALOGUE["ruled"], loading.terms_of(forked, {}), forked.head)
    assert state.interrupts_asked == {"rule:2": 2}


# --- what carries over, by itself -----------------------------------------------------------------------------------


def terms(*rules: dict[str, Any], **settings: Any) -> Terms:
    return Terms(goal="x", settings=Settings.model_validate({"rules": rules} | settings))


def test_the_same_rule_carries_over_wherever_it_stands() -> None:
    before, after = terms(EVERY, FIRST), terms({"do": "deny", "when": {"tool": "x"}}, FIRST, EVERY)
    asked = {"rule:1": 4, "rule:2": 1}
    assert carried_over(before, after, asked, 5, changed=False) == {"rule:2": 1, "rule:3": 4}


def test_a_rule_of_the_site_that_came_later_carries_over_by_its_content() -> None:
    from runs.engine.rules import named

    before = terms(FIRST)
    name = named(before, terms(EVERY).settings.rules)[0].name
    assert name.startswith("site:")
    assert carried_over(before, terms(EVERY), {name: 2}, 3, changed=False) == {"rule:1": 2}


def test_no_rule_counts_as_asked_beyond_the_steps_that_there_are() -> None:
    rules = terms(EVERY, interrupt_every=3)
    asked = {"rule:1": 6, "settings": 6}
    assert carried_over(rules, rules, asked, 5, changed=True) == {"settings": 3, "rule:1": 4}


def test_the_setting_carries_over_only_where_it_is_still_set() -> None:
    assert carried_over(terms(interrupt_every=3), terms(), {"settings": 3}, 4, changed=True) == {}
