"""The admin: looking at the log, deciding, models with keys that never come out, rules that are checked."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from runs.adapters.secrets import unseal
from runs.models import Decision, ModelProfile, SiteRule
from tests.cast import administrator, alice, cast_member, signed_in
from tests.launching import run_with_letter
from tests.running import decide, pending, work
from tests.served import PROFILE

pytestmark = [pytest.mark.django_db, pytest.mark.database]


def staff_with(*permissions: str) -> User:
    user = cast_member("stan", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="runs", codename__in=permissions)
    )
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize(
    "name", ["run", "step", "exchange", "interrupt", "decision", "modelprofile", "siterule"]
)
def test_every_table_can_be_looked_at(name: str) -> None:
    run = run_with_letter(None)
    decide(run, "approve")
    work(run)
    ModelProfile.objects.create(name="tiny", base_url="http://127.0.0.1:9/v1", model_id="tiny")
    SiteRule.objects.create(rule_json='{"when": {"tool": "send_*"}, "do": "ask"}')
    client = signed_in(administrator())
    table = client.get(reverse(f"admin:runs_{name}_changelist"))
    assert table.status_code == 200
    first = table.context["cl"].result_list[0]
    assert client.get(reverse(f"admin:runs_{name}_change", args=[first.pk])).status_code == 200


@pytest.mark.parametrize("name", ["run", "step", "exchange", "decision", "interrupt"])
def test_the_log_can_not_be_changed_by_hand(name: str) -> None:
    run = run_with_letter(None)
    decide(run, "approve")
    client = signed_in(administrator())
    assert client.get(reverse(f"admin:runs_{name}_add")).status_code == 403
    first = client.get(reverse(f"admin:runs_{name}_changelist")).context["cl"].result_list[0]
    assert client.get(reverse(f"admin:runs_{name}_delete", args=[first.pk])).status_code == 403
    assert (
        client.post(reverse(f"admin:runs_{name}_change", args=[first.pk]), {"status": "failed"}).status_code
        == 403
    )


def test_runs_link_to_their_pages() -> None:
    run = run_with_letter(None)
    page = signed_in(administrator()).get(reverse("admin:runs_run_changelist")).text
    assert f'href="/runs/{run.pk}/"' in page


# --- interrupts ---------------------------------------------------------------------------------------------------


def send(client: Client, question: Any, verdict: str, **changed: str) -> Any:
    seen = {"revision": str(question.revision), "fingerprint": question.fingerprint, "sure": "yes"}
    fields = seen | {"verdict": verdict}
    return client.post(
        reverse("admin:runs_interrupt_decide", args=[question.pk]), fields | changed, follow=True
    )


def test_a_message_that_is_too_long_decides_nothing_and_is_kept() -> None:
    question, client, much = pending(run_with_letter(None)), signed_in(administrator()), "m" * 4001
    page = send(client, question, "reject", reason=much).text
    assert "at most 4000 characters; this one has 4001; nothing was decided." in page
    assert f"{much}</textarea>" in page
    assert not Decision.objects.exists()
    assert much not in client.get(reverse("admin:runs_interrupt_change", args=[question.pk])).text


def test_an_interrupt_is_approved_or_rejected_with_a_message() -> None:
    run = run_with_letter(None)
    client = signed_in(administrator())
    question = pending(run)
    page = client.get(reverse("admin:runs_interrupt_change", args=[question.pk])).text
    assert 'value="approve"' in page
    assert "Recorded: rejected." in send(client, question, "reject", reason="Not now.").text
    decision = Decision.objects.get()
    assert (decision.verdict, decision.message, decision.channel, decision.by_name) == (
        "reject",
        "Not now.",
        "admin",
        "ada",
    )
    page = client.get(reverse("admin:runs_interrupt_change", args=[question.pk])).text
    assert 'value="approve"' not in page


@pytest.mark.parametrize("seen", [{"revision": "nine"}, {"fingerprint": ""}])
def test_an_answer_that_names_no_question_decides_nothing(seen: dict[str, str]) -> None:
    run = run_with_letter(None)
    answer = send(signed_in(administrator()), pending(run), "approve", **seen)
    assert "names no question" in answer.text
    assert not Decision.objects.exists()


def test_a_risky_call_is_not_approved_without_a_second_step() -> None:
    run = run_with_letter(None)
    question = pending(run)
    client = signed_in(administrator())
    assert "send_mail(" in client.get(reverse("admin:runs_interrupt_change", args=[question.pk])).text
    seen = {"revision": str(question.revision), "fingerprint": question.fingerprint, "verdict": "approve"}
    answer = client.post(reverse("admin:runs_interrupt_decide", args=[question.pk]), seen, follow=True)
    assert "tick the box" in answer.text
    assert not Decision.objects.exists()


def test_the_admin_hears_of_a_conflict_too() -> None:
    run = run_with_letter(None)
    question = pending(run)
    decide(run, "approve")
    assert "the operator approved this" in send(signed_in(administrator()), question, "reject").text
    assert Decision.objects.get().verdict == "approve"


def test_staff_without_the_right_may_look_and_not_decide() -> None:
    run = run_with_letter(None)
    question = pending(run)
    client = signed_in(staff_with("view_interrupt", "view_run"))
    page = client.get(reverse("admin:runs_interrupt_change", args=[question.pk])).text
    assert 'value="approve"' not in page
    assert send(client, question, "approve").status_code == 403
    assert not Decision.objects.exists()


def test_staff_without_the_right_to_a_table_are_told_that_they_lack_it() -> None:
    answer = signed_in(staff_with("view_run")).get(reverse("admin:auth_user_changelist"))
    assert answer.status_code == 403
    assert "You don’t have permission for this." in answer.text
    assert "too long" not in answer.text


def test_people_who_are_no_staff_do_not_get_in() -> None:
    question = pending(run_with_letter(None))
    send(signed_in(alice()), question, "approve")
    assert not Decision.objects.exists()
    assert (
        signed_in(staff_with("view_interrupt", "view_run", "decide_interrupt"))
        .get(reverse("admin:runs_interrupt_decide", args=[question.pk]))
        .status_code
        == 302
    )


# --- models -------------------------------------------------------------------------------------------------------


def test_a_key_goes_in_sealed_and_never_comes_out() -> None:
    client = signed_in(administrator())
    add, secret = reverse("admin:runs_modelprofile_add"), "sk-very-secret"
    assert client.post(add, PROFILE | {"new_key": secret}).status_code == 302
    profile = ModelProfile.objects.get()
    assert secret not in profile.sealed_key
    assert unseal(profile.sealed_key, settings.SECRET_KEY) == secret
    change = reverse("admin:runs_modelprofile_change", args=[profile.pk])
    page = client.get(change).text
    assert "A key is stored." in page
    assert secret not in page
    assert profile.sealed_key not in page


def test_a_key_stays_until_it_is_replaced_or_forgotten() -> None:
    client = signed_in(administrator())
    client.post(reverse("admin:runs_modelprofile_add"), PROFILE | {"new_key": "one"})
    profile = ModelProfile.objects.get()
    change = reverse("admin:runs_modelprofile_change", args=[profile.pk])
    client.post(change, PROFILE | {"timeout_s": "30"})
    profile.refresh_from_db()
    assert (profile.timeout_s, unseal(profile.sealed_key, settings.SECRET_KEY)) == (30.0, "one")
    client.post(change, PROFILE | {"new_key": "two"})
    profile.refresh_from_db()
    assert unseal(profile.sealed_key, settings.SECRET_KEY) == "two"
    client.post(change, PROFILE | {"forget_key": "on"})
    profile.refresh_from_db()
    assert profile.sealed_key == ""


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"base_url": ""}, "needs the server&#x27;s address"),
        ({"model_id": ""}, "needs the name that the server has"),
        ({"kind": "script"}, "needs the script that it plays"),
        ({"kind": "script", "script_json": "{"}, "The script is not right"),
        ({"new_key": "x", "forget_key": "on"}, "not both"),
    ],
)
def test_a_model_that_can_not_work_is_not_saved(fields: dict[str, str], sentence: str) -> None:
    answer = signed_in(administrator()).post(reverse("admin:runs_modelprofile_add"), PROFILE | fields)
    assert answer.status_code == 200
    assert sentence in answer.text
    assert not ModelProfile.objects.exists()


# --- rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("{", "Invalid JSON"),
        ('{"when": {"tool": "x"}}', "do: Field required"),
        ('{"when": {"colour": 1}, "do": "ask"}', "when.colour"),
        ('{"when": {"tool": "x", "first_step": true}, "do": "ask"}', "can never hold"),
    ],
)
def test_a_broken_rule_is_not_saved_and_the_text_stays(rule: str, sentence: str) -> None:
    fields = {"position": "1", "rule_json": rule, "enabled": "on"}
    answer = signed_in(administrator()).post(reverse("admin:runs_siterule_add"), fields)
    assert answer.status_code == 200
    assert sentence in answer.text
    assert not SiteRule.objects.exists()


def test_a_rule_is_saved_and_reads_as_words() -> None:
    client = signed_in(administrator())
    rule = '{"when": {"tool": "send_*"}, "do": "deny"}'
    client.post(reverse("admin:runs_siterule_add"), {"position": "1", "rule_json": rule, "enabled": "on"})
    assert SiteRule.objects.get().rule_json == rule
    assert "deny when tool send_*" in client.get(reverse("admin:runs_siterule_changelist")).text
