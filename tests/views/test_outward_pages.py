"""Hosts on the pages and in commands: named in a form, shown on the card, allowed with a tick."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from runs.models import Run, SiteHost
from tests.cast import administrator, alice, bob, cast_member, signed_in
from tests.commands import told
from tests.launching import ALL_WELL, script
from tests.outward import AGAIN, GO, OTHER, PLAYED, READ, launched, visited
from tests.pages import post_fork, post_launch, posted_settings
from tests.running import pending, work

pytestmark = [pytest.mark.django_db]

RISK = "Risk: the agent can send anything it has read to any server, without approval."


def asking(owner: User, *replies: Any, **settings: Any) -> Run:
    return work(launched(READ, *(replies or (GO, AGAIN, OTHER)), owner=owner, **settings))


# --- the launch -----------------------------------------------------------------------------------------------------


def test_hosts_are_named_by_line_or_comma_and_any_host_is_a_choice_with_its_risk() -> None:
    assert posted_settings({"hosts": " API.test, *.b.test\r\n\r\nc.test:8443 "}) == {
        "tools": [],
        "hosts": ["api.test", "*.b.test", "c.test:8443"],
    }
    Run.objects.all().delete()
    User.objects.all().delete()
    assert posted_settings({"hosts": "api.test", "any_host": "yes"})["hosts"] == ["*", "api.test"]


def test_the_form_says_what_happens_which_hosts_the_site_names_and_which_tools_contact_others() -> None:
    SiteHost.objects.create(host="*.site.test")
    page = signed_in(alice()).get("/runs/new/").text
    assert RISK in page
    assert "hosts not listed here need approval" in page
    assert "The site allows: *.site.test." in page
    tools = [line for line in page.split("<li>") if "tool__name" in line]
    contacting = [line.split('tool__name">')[1].split("<")[0] for line in tools if "contacts hosts" in line]
    assert contacting == ["fetch_url", "http_request", "send_mail"]
    assert page.count("contacts hosts") == len(contacting)


def test_what_is_no_host_is_said_beside_the_field_and_the_text_is_kept() -> None:
    answer = post_launch(signed_in(alice()), hosts="ok.test\nhttps://api.test/x", any_host="yes")
    assert answer.status_code == 422
    assert "&#x27;https://api.test/x&#x27; is not a host. Write a host like example.com" in answer.text
    assert 'id="hosts-wrong"' in answer.text and "ok.test\nhttps://api.test/x</textarea>" in answer.text
    assert 'name="any_host" value="yes" checked' in answer.text
    assert not Run.objects.exists()


def test_a_launch_like_another_names_the_same_hosts() -> None:
    owner = alice()
    run = launched(READ, owner=owner, hosts=["*", "api.test"])
    page = signed_in(owner).get(f"/runs/new/?like={run.pk}").text
    assert "\napi.test</textarea>" in page and 'name="any_host" value="yes" checked' in page
    assert "&quot;hosts&quot;" not in page


# --- the fork -------------------------------------------------------------------------------------------------------


def forker() -> User:
    return cast_member("dora", "operators", "reviewers")


@pytest.mark.parametrize(
    ("typed", "hosts"),
    [({}, ["api.test"]), ({"hosts": "other.test"}, ["other.test"]), ({"hosts": ""}, None)],
)
def test_a_fork_keeps_the_hosts_or_names_others(typed: dict[str, str], hosts: list[str] | None) -> None:
    dora = forker()
    run = asking(dora, OTHER, hosts=["api.test"])
    at = run.steps.filter(kind="transition").order_by("-seq")[0].seq
    answer = post_fork(signed_in(dora), run, at, **typed)
    assert answer.status_code == 302, answer.text
    assert Run.objects.latest("pk").settings.get("hosts") == hosts


def test_a_fork_says_what_is_no_host_beside_the_field() -> None:
    dora = forker()
    run = asking(dora)
    at = run.steps.filter(kind="transition").order_by("-seq")[0].seq
    answer = post_fork(signed_in(dora), run, at, hosts="a b/c")
    assert answer.status_code == 422
    assert "&#x27;b/c&#x27; is not a host." in answer.text and "a b/c</textarea>" in answer.text


def test_what_gates_decide_by_is_no_field_of_a_fork() -> None:
    dora = forker()
    run = asking(dora)
    at = run.steps.filter(kind="transition").order_by("-seq")[0].seq
    page = signed_in(dora).get(reverse("fork", args=[run.pk]), {"at": str(at)}).text
    assert "state-turn" in page or "state-" in page
    assert "state-data_read" not in page and "state-hosts_allowed" not in page


# --- the card -------------------------------------------------------------------------------------------------------


def answer(client: Client, run: Run, verdict: str, **more: str) -> Any:
    question = pending(run)
    seen = {"revision": str(question.revision), "fingerprint": question.fingerprint}
    fields = {"arg.url": question.args["url"], "verdict": verdict}
    return client.post(reverse("decision", args=[question.pk]), seen | fields | more)


def test_the_card_shows_the_host_and_what_would_be_carried_and_offers_it_for_the_run() -> None:
    run = asking(alice())
    card = signed_in(bob()).get(reverse("interrupt", args=[pending(run).pk])).text
    assert "contacts api.test" in card
    assert "This run has read private data (diary, step 4)." in card
    assert 'name="allow_host" value="yes">' in card  # nothing is ticked beforehand
    assert "allow <code>api.test</code> for the rest of this run" in card


def test_other_questions_offer_no_host() -> None:
    run = asking(alice(), GO, hosts=["*"], rules=[{"when": {"tool": "visit"}, "do": "ask"}])
    card = signed_in(bob()).get(reverse("interrupt", args=[pending(run).pk])).text
    assert "allow_host" not in card


def test_a_tick_allows_the_host_for_the_run_and_the_page_says_so() -> None:
    run = asking(alice())
    question = pending(run)
    client = signed_in(bob())
    assert answer(client, run, "approve", allow_host="yes").status_code == 302
    assert pending(work(run)).host == "other.test"
    assert visited(run) == ["https://api.test/?d=1", "https://api.test/2"]
    assert (
        "<code>api.test</code> is allowed for the rest of this run."
        in client.get(reverse("interrupt", args=[question.pk])).text
    )
    assert "the host for the rest of this run" in client.get(reverse("run", args=[run.pk])).text
    for fact, words in (("run.host.allowed", "for the rest of this run"), ("run.read", "Has read")):
        step = run.steps.filter(facts_json__contains=f'"{fact}"').order_by("seq")[0]
        assert words in client.get(reverse("step", args=[run.pk, step.seq])).text


def test_without_the_tick_the_next_call_asks_again_and_a_tick_beside_a_rejection_says_nothing() -> None:
    run = asking(alice())
    client = signed_in(bob())
    answer(client, run, "approve")
    assert pending(work(run)).args == {"url": "https://api.test/2"}
    assert answer(client, run, "reject", allow_host="yes", reason="No.").status_code == 302
    work(run)
    assert not run.steps.filter(facts_json__contains='"run.host.allowed"').exists()


def test_a_card_that_comes_back_keeps_the_tick() -> None:
    run = asking(alice())
    again = answer(signed_in(bob()), run, "approve", allow_host="yes", revision="7")
    assert again.status_code == 409
    assert 'name="allow_host" value="yes" checked' in again.text


# --- commands and the admin -----------------------------------------------------------------------------------------


def test_a_host_is_allowed_by_command() -> None:
    run = asking(alice())
    said = told("decide", str(run.pk), "--verdict", "approve", "--allow-host")
    assert said == (f"Recorded: approve on run {run.pk}.\n", 0)
    assert pending(work(run)).host == "other.test"


def test_who_launches_by_command_is_told_how_to_allow_the_host() -> None:
    played = ("--script", json.dumps(script(READ, GO, ALL_WELL, tools=PLAYED)), "--inline", "--wait")
    said, code = told("launch", "--machine", "ruled", "--goal", "g", *played)
    assert code == 6
    assert said.endswith("  --allow-host lets it contact api.test for the rest of the run\n")


def test_an_administrator_names_a_host_in_its_one_spelling() -> None:
    client = signed_in(administrator())
    client.post(reverse("admin:runs_sitehost_add"), {"host": "API.Test."})
    assert [one.host for one in SiteHost.objects.all()] == ["api.test"]
    for text, sentence in (("https://x.test/", "is not a host"), ("api.test", "already exists")):
        refused = client.post(reverse("admin:runs_sitehost_add"), {"host": text})
        assert refused.status_code == 200 and sentence in refused.text
    assert "api.test" in client.get(reverse("admin:runs_sitehost_changelist")).text
