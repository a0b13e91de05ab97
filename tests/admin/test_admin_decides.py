"""Deciding in the admin: the card of the pages, every verdict of every kind, and the same refusals."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from runs.models import Budget, Decision, Exchange, Interrupt, ModelProfile, Run, SiteRule, Skill
from runs.store import backups
from tests.asking import ASKS, LOST, PLAN, asking
from tests.cast import ROLES, administrator, alice, cast_member, signed_in
from tests.launching import FINAL, launch, think
from tests.pages import form_to
from tests.running import decide, pending, transitions, work

pytestmark = [pytest.mark.django_db]

EVERY = [(kind, verdict) for kind, asks in ASKS.items() for verdict in asks.verdicts]
RECORDS = ("run", "step", "exchange", "interrupt", "decision", "budget", "compaction")


def rita() -> User:
    """She is staff, and in the group `reviewers` only."""
    return cast_member("rita", "reviewers", is_staff=True)


def olga() -> User:
    """She is staff, and in the group `operators` only."""
    return cast_member("olga", "operators", is_staff=True)


def page_of(question: Interrupt) -> str:
    return reverse("admin:runs_interrupt_change", args=[question.pk])


def filled(client: Client, question: Interrupt, **changed: str) -> tuple[str, dict[str, str]]:
    """The admin's form as a browser fills it, and what a person changes in it."""
    form = form_to(client.get(page_of(question)).text, "/decide/")
    assert form.method == "post"
    return form.action, form.fields | changed


def answers(run: Run, verdict: str) -> dict[str, str]:
    """What a person fills in for the verdict."""
    tick = {"verdict": verdict, "sure": "yes"}
    match verdict:
        case "respond":
            return tick | {"answer": "They are at noon."}
        case "reject":
            return tick | {"reason": "Not now."}
        case "top_up":
            return tick | {"amount.cost_usd": "0.5"}
        case "rollback":
            row = str(transitions(run)[-1])
            return tick | {"to_step": row, "stays_done": row}
        case "edit" if pending(run).kind == "plan":
            return tick | {"arg.plan": str(PLAN[1:]).replace("'", '"'), "verdict": "approve"}
        case "edit":
            return tick | {"arg.to": "ann", "verdict": "approve"}
    return tick


@pytest.mark.parametrize(("kind", "verdict"), EVERY)
def test_a_reviewer_who_is_staff_gives_every_verdict(kind: str, verdict: str) -> None:
    run, client = asking(kind), signed_in(rita())
    if verdict == "rollback" and not transitions(run):  # a step to go back to
        decide(run, ASKS[kind].verdicts[0], message="Those of the North Sea." if kind == "question" else "")
        work(run)
    question = pending(run)
    assert (question.kind, set(question.verdicts)) == (kind, set(ASKS[kind].verdicts))
    address, form = filled(client, question, **answers(run, verdict))
    answer = client.post(address, form, follow=True)
    assert answer.redirect_chain == [(page_of(question), 302)], answer.text
    assert "Recorded: " in answer.text
    decision = Decision.objects.get(interrupt=question)
    assert (decision.verdict, decision.channel, decision.by_name) == (verdict, "admin", "rita")
    assert (decision.revision_seen, decision.fingerprint_seen) == (question.revision, question.fingerprint)
    assert work(run).status != "waiting" or pending(run).pk != question.pk


@pytest.mark.parametrize("kind", ASKS)
def test_the_card_is_the_one_of_the_pages(kind: str) -> None:
    client, question = signed_in(rita()), pending(asking(kind))
    cards = [
        re.sub(r' action="[^"]*"', "", found[0])
        for address in (page_of(question), reverse("interrupt", args=[question.pk]))
        if (found := re.search(r'<section class="card.*?</section>', client.get(address).text, re.S))
    ]
    assert len(cards) == 2
    assert cards[0] == cards[1]


def test_looking_decides_nothing() -> None:
    client, question = signed_in(rita()), pending(asking("tool_call"))
    assert client.get(page_of(question)).status_code == 200
    decide_at = reverse("admin:runs_interrupt_decide", args=[question.pk])
    answer = client.get(decide_at, {"verdict": "approve", "sure": "yes"})
    assert (answer.status_code, answer["Location"]) == (302, page_of(question))
    assert not Decision.objects.exists()


def test_the_list_offers_no_action_on_several_questions() -> None:
    asking("tool_call")
    for user in (rita(), administrator()):
        page = signed_in(user).get(reverse("admin:runs_interrupt_changelist"))
        assert page.context["cl"].result_count == 1
        assert 'name="action"' not in page.text


def test_the_list_begins_with_what_is_open_and_says_what_runs() -> None:
    done, waits = asking("tool_call"), asking("tool_call")
    decide(done, "reject")
    page = signed_in(rita()).get(reverse("admin:runs_interrupt_changelist"))
    assert [row.run_id for row in page.context["cl"].result_list] == [waits.pk, done.pk]
    assert "to=&quot;bob&quot;)?</a>" in page.text


# --- what is refused comes back -----------------------------------------------------------------------------------


def test_a_conflict_says_who_decided_what_and_keeps_the_text() -> None:
    run, client = asking("tool_call"), signed_in(rita())
    address, form = filled(client, pending(run), verdict="reject", reason="I am not sure of it.")
    decide(run, "respond", message="Noon.")
    answer = client.post(address, form)
    assert answer.status_code == 409
    assert "the operator answered this" in answer.text
    assert "I am not sure of it." in answer.text
    assert Decision.objects.get().verdict == "respond"


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"verdict": "approve"}, "It can’t be undone."),
        ({"verdict": "approve", "sure": "yes", "arg.n": "many"}, "Not recorded"),
        ({"verdict": "respond", "answer": " "}, "Write the answer."),
        ({"verdict": "rollback"}, "Choose a step to roll back to."),
        ({"verdict": "approve", "sure": "yes", "revision": "²"}, "names no question"),
        ({"verdict": "approve", "sure": "yes", "fingerprint": ""}, "names no question"),
        ({"verdict": "shrug"}, "is not an answer to this question"),
    ],
)
def test_what_can_not_be_taken_comes_back_as_it_was_typed(changed: dict[str, str], sentence: str) -> None:
    client, question = signed_in(rita()), pending(asking("tool_call"))
    typed = {"arg.text": "Nothing is well.", "reason": "A reason of some length."}
    address, form = filled(client, question, **typed | changed)
    answer = client.post(address, form)
    assert answer.status_code == 422
    assert sentence in answer.text
    again = form_to(answer.text, "/decide/").fields
    assert typed.items() <= again.items()
    assert not Decision.objects.exists()


def test_a_rollback_tells_first_what_stays_done() -> None:
    letters = [think("send", to=name) for name in ("ann", "bob")]
    run, client = work(launch(*letters, FINAL)), signed_in(rita())
    decide(run, "approve")
    work(run)
    question, row = pending(run), str(transitions(run)[0])
    address, form = filled(client, question, verdict="rollback", to_step=row)
    answer = client.post(address, form)
    assert answer.status_code == 422
    assert "stay, and may be repeated" in answer.text
    assert not Decision.objects.filter(interrupt=question).exists()
    assert client.post(address, form | {"stays_done": row}).status_code == 302
    assert Decision.objects.get(interrupt=question).to_step == int(row)


def test_a_page_of_before_a_restore_decides_nothing() -> None:
    client, question = signed_in(rita()), pending(asking("tool_call"))
    address, form = filled(client, question, verdict="approve", sure="yes")
    backups.mark_restored("another")
    assert client.post(address, form).status_code == 412
    assert not Decision.objects.exists()


# --- who may what -------------------------------------------------------------------------------------------------


def test_a_reviewer_looks_at_the_records_and_changes_no_table() -> None:
    run = asking("limit", alice())
    decide(run, "top_up", args={"cost_usd": 1})
    work(run)
    ModelProfile.objects.create(name="tiny", base_url="http://127.0.0.1:9/v1", model_id="tiny")
    SiteRule.objects.create(rule_json='{"when": {"tool": "send_*"}, "do": "ask"}')
    Skill.objects.create(name="terse", text="Be terse.")
    client = signed_in(rita())
    for name in RECORDS:
        table = client.get(reverse(f"admin:runs_{name}_changelist"))
        assert table.status_code == 200, name
        for row in table.context["cl"].result_list[:1]:
            address = reverse(f"admin:runs_{name}_change", args=[row.pk])
            assert client.get(address).status_code == 200, name
            if name != "compaction":
                assert client.post(address, {"status": "failed"}).status_code == 403, name
            assert client.post(reverse(f"admin:runs_{name}_delete", args=[row.pk])).status_code == 403, name
        assert client.get(reverse(f"admin:runs_{name}_add")).status_code == 403, name
    for model in (ModelProfile, SiteRule, Skill, User, Group):
        about = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        first = model._default_manager.first()
        assert first is not None
        assert client.get(reverse(f"{about}_changelist")).status_code == 403
        assert client.post(reverse(f"{about}_add"), {}).status_code == 403
        assert client.post(reverse(f"{about}_change", args=[first.pk]), {}).status_code == 403
        assert client.post(reverse(f"{about}_delete", args=[first.pk]), {"post": "yes"}).status_code == 403


def test_an_operator_who_is_staff_sees_their_own_runs_only_and_decides_nothing() -> None:
    owner = olga()
    mine, others = asking("limit", owner), asking("limit", alice())
    client = signed_in(owner)
    for name in ("run", "step", "exchange", "interrupt", "budget"):
        rows = client.get(reverse(f"admin:runs_{name}_changelist")).context["cl"].result_list
        assert {row.pk if name == "run" else row.run_id for row in rows} == {mine.pk}, name
        kept = {"run": Run, "interrupt": Interrupt, "exchange": Exchange, "budget": Budget}.get(name)
        if kept is not None:
            first = kept._default_manager.filter(**{"pk" if name == "run" else "run": others.pk})[0]
            answer = client.get(reverse(f"admin:runs_{name}_change", args=[first.pk]))
            assert answer.status_code == 302, name
    assert "<form" not in client.get(page_of(pending(mine))).text.partition("data-card")[2]
    for run, status in ((mine, 403), (others, 404)):
        question = pending(run)
        form = {"revision": "1", "fingerprint": question.fingerprint, "verdict": "finish"}
        address = reverse("admin:runs_interrupt_decide", args=[question.pk])
        assert client.post(address, form).status_code == status
    assert not Decision.objects.exists()


def test_the_groups_got_the_right_to_look_by_a_migration() -> None:
    for group in Group.objects.filter(name__in=("operators", "reviewers")):
        kept = set(group.permissions.values_list("codename", flat=True))
        looks = {f"view_{name}" for name in RECORDS if name != "run"}
        assert looks <= kept == set(ROLES[group.name]), group.name
        changes = {name for name in kept if name.split("_")[0] in ("add", "change", "delete")}
        assert changes == ({"add_run"} if group.name == "operators" else {"change_compaction"})
    assert Permission.objects.filter(codename="view_budget").exists()


# --- budgets ------------------------------------------------------------------------------------------------------


def test_a_budget_is_shown_with_what_is_used_and_leads_to_its_question() -> None:
    run, client = asking("limit"), signed_in(rita())
    page = client.get(reverse("admin:runs_run_change", args=[run.pk])).text
    assert "$0.002 of $0.0015 used" in page
    for address in (
        reverse("admin:runs_run_change", args=[run.pk]),
        f"{reverse('admin:runs_budget_changelist')}?run={run.pk}",
    ):
        assert f'<a href="{page_of(pending(run))}">Raise limit</a>' in client.get(address).text
    address, form = filled(client, pending(run), **answers(run, "top_up"))
    client.post(address, form)
    page = client.get(reverse("admin:runs_run_change", args=[run.pk])).text
    assert "$0.002 of $0.501 used" in page
    assert "Raise limit" not in page


def test_the_admin_and_the_pages_lead_to_each_other() -> None:
    run, client = asking("tool_call"), signed_in(rita())
    question = pending(run)
    there = reverse("interrupt", args=[question.pk])
    assert page_of(question) in client.get(there).text
    assert there in client.get(page_of(question)).text
    assert reverse("admin:runs_run_change", args=[run.pk]) in client.get(page_of(question)).text
    decide(run, "approve")
    assert (
        reverse("admin:runs_decision_change", args=[Decision.objects.get().pk])
        in client.get(page_of(question)).text
    )
    assert page_of(question) in client.get(reverse("admin:runs_decision_changelist")).text


def test_a_call_that_may_have_happened_is_not_made_again_without_a_tick() -> None:
    run, client = asking(LOST), signed_in(rita())
    address, form = filled(client, pending(run), verdict="approve")
    form.pop("sure", None)
    answer = client.post(address, form)
    assert answer.status_code == 422
    assert 'id="sure-wrong"' in answer.text
    assert not Decision.objects.exists()
