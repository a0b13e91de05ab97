"""Answers given at launch decide nothing that their launcher may not decide.

Without the right to decide they count in a script, for tools behind which there is nothing real, and for no rule of
the site. See docs/commands.md, "Scripts".
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command

from runs import actions
from runs.driver import Slice
from runs.models import Decision, Run, SiteRule
from tests.cast import person, signed_in
from tests.launching import FINAL, SEND, launch, script, think
from tests.running import decide, pending, transitions, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

WRITE = think("write_file", name="a.txt", content="x")
APPROVE = {"verdict": "approve"}
REAL: dict[str, Any] = {"tools": ["write_file"], "answers": [APPROVE]}
ASK_SEND = {"when": {"tool": "send"}, "do": "ask"}


def owning(user: User) -> User:
    """Everybody here owns a run of their own."""
    work(launch(FINAL, owner=user))
    return user


def operator(name: str = "alice", *more: str) -> User:
    return owning(person(name, "add_run", *more))


def reviewer(name: str = "bob") -> User:
    return owning(person(name, "add_run", "view_run", "decide_interrupt"))


def site_rule(rule: dict[str, Any]) -> None:
    SiteRule.objects.create(rule_json=json.dumps(rule))


def refused(
    owner: User | None, settings: dict[str, Any], played: dict[str, Any] | None = None
) -> tuple[str, str]:
    """Where such a launch is refused, and with what words; nothing is written."""
    before = Run.objects.count()
    with pytest.raises(actions.BadLaunch) as caught:
        launch(played=script(WRITE, FINAL) if played is None else played, owner=owner, **settings)
    assert Run.objects.count() == before
    (problem,) = caught.value.problems
    return problem.path, problem.message


# --- at the launch --------------------------------------------------------------------------------------------------


def test_an_operator_can_not_let_a_real_tool_pass_beforehand() -> None:
    place, why = refused(operator(), REAL)
    assert place == "settings.answers"
    assert why == (
        "These answers could let write_file run, which is a real tool. You have no right to decide. "
        "Take out the answers or the tool, or let the script play it."
    )


@pytest.mark.parametrize("tool", ["write_file", "read_file", "fetch_url", "list_files"])
def test_that_goes_for_every_tool_that_does_something(tool: str) -> None:
    place, why = refused(operator(), {"tools": [tool], "answers": [APPROVE]})
    assert (place, tool in why) == ("settings.answers", True)


def test_who_may_decide_may_do_so_beforehand() -> None:
    for owner in (reviewer(), None):
        run = work(launch(WRITE, FINAL, owner=owner, **REAL))
        assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_scripted_tools_can_be_let_pass_by_anybody_who_launches() -> None:
    run = work(launch(think("send", to="bob"), FINAL, owner=operator(), answers=[APPROVE]))
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_real_tool_that_the_script_plays_is_none() -> None:
    played = script(WRITE, FINAL, tools={"write_file": SEND | {"params": {"name": "string"}, "required": []}})
    run = work(launch(played=played, owner=operator(), **REAL))
    assert run.status == "succeeded"


@pytest.mark.parametrize("deep", [1, 2])
def test_a_childs_answers_are_looked_at_too(deep: int) -> None:
    settings: dict[str, Any] = REAL
    for _ in range(deep):
        settings = {"subgraphs": {"inner": {"machine": "ruled", "settings": settings}}}
    place, _ = refused(operator(), settings)
    assert place == f"settings{'.subgraphs.inner.settings' * deep}.answers"


def test_a_tool_that_only_one_of_a_childs_scripts_plays_is_real_in_the_others() -> None:
    played = script(FINAL, tools={"write_file": SEND})
    played["subgraphs"] = {"inner": {"replies": {}, "then": [{"tools": {}}]}}
    inner: dict[str, Any] = {"subgraphs": {"inner": {"machine": "ruled", "settings": REAL}}}
    assert refused(operator(), inner, played)[0] == "settings.subgraphs.inner.settings.answers"
    del played["subgraphs"]["inner"]["then"]
    launch(played=played, owner=operator("eve"), **inner)


def test_the_form_says_so_and_keeps_what_was_typed() -> None:
    alice = operator()
    fields = {
        "goal": "Write",
        "machine": "ruled",
        "model": "script",
        "script": json.dumps(script(WRITE, FINAL)),
        "tools": ["write_file"],
        "asks": "writes",
        "more": json.dumps({"answers": [APPROVE]}),
    }
    answer = signed_in(alice).post("/runs/new/", fields)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "could let write_file run" in text and "verdict" in text
    assert Run.objects.filter(owner=alice).count() == 1


def test_the_installations_operator_may_by_the_command() -> None:
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command(
            "launch",
            machine="ruled",
            goal="Write",
            run_settings=json.dumps(REAL),
            script=json.dumps(script(WRITE, FINAL)),
            inline=True,
            stdout=out,
        )
    assert Run.objects.latest("pk").tool_calls == 1


# --- another way ----------------------------------------------------------------------------------------------------


def test_a_fork_does_not_bring_the_answers_of_one_who_may_decide_to_one_who_may_not() -> None:
    run = work(launch(WRITE, WRITE, FINAL, owner=reviewer(), **{**REAL, "answers": [APPROVE, APPROVE]}))
    alice = operator("alice", "view_run")
    for begin in (actions.fork, actions.rerun):
        with pytest.raises(actions.BadLaunch) as caught:
            begin(run, at=0, by=alice)
        assert [problem.path for problem in caught.value.problems] == ["settings.answers"]
    forked = work(actions.fork(run, at=0, by=alice, settings={"answers": None}))
    assert (forked.status, forked.tool_calls) == ("waiting", 0)


def test_a_fork_can_not_give_answers_for_a_real_tool() -> None:
    alice = operator()
    run = work(launch(WRITE, FINAL, owner=alice, tools=["write_file"]))
    with pytest.raises(actions.BadLaunch) as caught:
        actions.fork(run, at=0, by=alice, settings={"answers": [APPROVE]})
    assert [problem.path for problem in caught.value.problems] == ["settings.answers"]


def test_a_replay_lets_nothing_pass() -> None:
    run = work(launch(WRITE, FINAL, owner=reviewer(), **REAL))
    made, difference = actions.replay(run, by=operator("alice", "view_run"))
    assert difference is None
    assert made.finished


# --- when a question opens ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "kind", "verdict"),
    [
        (ASK_SEND, "tool_call", "approve"),
        ({"when": {"first_step": True}, "do": "ask"}, "plan", "approve"),
        ({"when": {"every_n_steps": 1}, "do": "ask"}, "every_n_steps", "resume"),
        ({"when": {"same_call": 1}, "do": "ask"}, "tool_call", "approve"),
    ],
)
def test_a_question_of_the_site_is_not_answered_by_who_launched_the_run(
    rule: dict[str, Any], kind: str, verdict: str
) -> None:
    site_rule(rule)
    own: dict[str, Any] = (
        {}
        if kind == "tool_call" and "tool" in rule["when"]
        else {"rules": [{"when": {"tool": "send"}, "do": "allow"}]}
    )
    answers = [{"verdict": verdict}] * 3
    run = work(launch(think("send", to="bob"), FINAL, owner=operator(), answers=answers, **own))
    assert (run.status, pending(run).kind) == ("waiting", kind)
    assert not Decision.objects.filter(interrupt__run=run).exists()
    free = work(launch(think("send", to="bob"), FINAL, owner=reviewer(), answers=answers, **own))
    assert free.status == "succeeded"


def test_a_rule_of_the_site_that_came_after_the_launch_is_not_answered_either() -> None:
    run = launch(think("send", to="bob"), FINAL, owner=operator(), answers=[APPROVE])
    site_rule(ASK_SEND)
    work(run)
    assert run.status == "waiting"
    actions.decide(pending(run).pk, verdict="approve", by=reviewer(), channel="web")
    assert work(run).status == "succeeded"


def test_a_question_of_the_site_in_a_child_is_not_answered_by_the_childs_answers() -> None:
    site_rule(ASK_SEND)
    played = script(think("agent.inner", goal="write"), FINAL)
    played["subgraphs"] = {"inner": {"replies": {"decision": [think("send", to="bob"), FINAL]}}}
    inner = {"inner": {"machine": "ruled", "settings": {"answers": [APPROVE]}}}
    run = work(launch(played=played, owner=operator(), subgraphs=inner))
    assert Run.objects.get(parent=run).status == "waiting"


@pytest.mark.parametrize("gone", ["right", "active", "person"])
def test_answers_of_a_launcher_who_may_decide_no_longer_do_not_count(gone: str) -> None:
    bob = reviewer()
    run = launch(think("search", q="a"), WRITE, FINAL, owner=bob, **REAL)
    match gone:
        case "right":
            bob.user_permissions.remove(Permission.objects.get(codename="decide_interrupt"))
        case "active":
            User.objects.filter(pk=bob.pk).update(is_active=False)
        case "person":
            bob.delete()
    work(run)
    assert (run.status, run.exchanges.filter(name="write_file").count()) == ("waiting", 0)


def test_an_answer_that_was_given_and_a_right_that_is_lost_before_the_deed() -> None:
    bob = reviewer()
    run = launch(WRITE, FINAL, owner=bob, **REAL)
    slice_of(run, Slice(moves=40, seconds=60))
    assert Decision.objects.get(interrupt__run=run).channel == "settings"
    assert run.exchanges.filter(name="write_file").count() == 0
    bob.user_permissions.remove(Permission.objects.get(codename="decide_interrupt"))
    work(run)
    assert (run.status, run.tool_calls) == ("waiting", 0)
    assert pending(run).why.startswith("Approved by an answer given at launch, which may not answer this.")
    decide(run, "approve")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_an_answer_that_is_kept_counts_as_long_as_who_kept_it_may_decide() -> None:
    bob = reviewer()
    run = work(launch(think("send", to="bob"), FINAL, owner=bob))
    actions.decide(pending(run).pk, verdict="approve", by=bob, channel="web")
    work(run)
    kept = actions.fork(run, at=0, by=bob, answers="keep")
    bob.user_permissions.remove(Permission.objects.get(codename="decide_interrupt"))
    work(kept)
    assert (kept.status, kept.tool_calls) == ("waiting", 0)


def test_an_operator_can_not_keep_what_a_reviewer_answered() -> None:
    alice, bob = operator(), reviewer()
    run = work(launch(think("send", to="bob"), think("send", to="eve"), FINAL, owner=alice))
    actions.decide(pending(run).pk, verdict="approve", by=bob, channel="web")
    work(run)
    with pytest.raises(actions.NotAllowed):
        actions.rewind(run, to=transitions(run)[0], by=alice, answers="keep")
    with pytest.raises(actions.NotAllowed):
        actions.fork(run, at=0, by=alice, answers="keep")
    with pytest.raises(actions.NotAllowed):
        actions.fork(run, at=0, by=alice, decision={"verdict": "approve"})


def test_answers_add_nothing_to_a_limit_that_is_another_persons() -> None:
    bob, alice = reviewer(), operator("alice", "view_run")
    run = work(launch(think("search", q="a"), FINAL, owner=bob, limits={"cost_usd": 0.002}))
    top_up = [{"verdict": "top_up", "args": {"cost_usd": 5}}]
    forked = work(actions.fork(run, at=0, by=alice, settings={"answers": top_up}))
    assert (forked.status, pending(forked).kind) == ("waiting", "limit")
    own = work(launch(think("search", q="a"), FINAL, owner=alice, limits={"cost_usd": 0.001}, answers=top_up))
    assert own.status == "succeeded"
