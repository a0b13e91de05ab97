"""Who sees which page, what stands on it, and that looking changes nothing."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs import actions
from runs.adapters.folder import RunFolder
from runs.models import Decision, Interrupt, ModelProfile, Run, Step
from runs.reading.panels import PANELS
from runs.store import after_row, backups
from runs.store.creating import folder_of
from tests.cast import alice, bob, cast_member, charlie, signed_in
from tests.compact import compact
from tests.compacting import RIGHT, compacted_run
from tests.compacting import newest as newest_summary
from tests.families import INNER_ANSWER, child_of, family
from tests.launching import (
    ALL_WELL,
    ALLOW,
    FINAL,
    LETTER,
    SEARCH,
    launch,
    launched,
    run_with_letter,
    script,
    think,
)
from tests.pages import folds_of
from tests.running import decide, pending, transitions, work
from tests.workers import slice_of

pytestmark = [pytest.mark.django_db]


def addresses(run: Run) -> list[str]:
    """Every page about a run."""
    question = run.interrupts.get().pk
    return [
        reverse("run", args=[run.pk]),
        reverse("step", args=[run.pk, 2]),
        reverse("rows", args=[run.pk]) + "?before=3",
        reverse("rows", args=[run.pk]) + "?after=1",
        reverse("run-export", args=[run.pk]),
        reverse("interrupt", args=[question]),
    ]


# --- who may see --------------------------------------------------------------------------------------------------


def test_nobody_sees_anything_without_signing_in() -> None:
    run = run_with_letter(alice())
    client = Client()
    for address in [*addresses(run), "/runs/", "/runs/new/", "/needs-you/", f"/runs/{run.pk}/rewind/?to=2"]:
        answer = client.get(address)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/sign-in/?next=")


def test_a_run_that_may_not_be_seen_is_not_there() -> None:
    run = run_with_letter(alice())
    client = signed_in(charlie())
    question = run.interrupts.get().pk
    for address in addresses(run):
        assert client.get(address).status_code == 404
    for name in ("abort", "pause", "resume", "rewind"):
        assert client.post(reverse(name, args=[run.pk]), {"to": "2"}).status_code == 404
    assert client.post(reverse("decision", args=[question]), {"verdict": "approve"}).status_code == 404
    assert Interrupt.objects.get().status == "pending"


@pytest.mark.parametrize("who", [alice, bob])
def test_owner_and_reviewer_see_every_page_of_a_run(who: object) -> None:
    owner = alice()
    run = run_with_letter(owner)
    client = signed_in(owner if who is alice else bob())
    for address in addresses(run):
        assert client.get(address).status_code == 200, address


def test_looking_changes_nothing() -> None:
    run = run_with_letter(alice())
    before = (Step.objects.count(), Decision.objects.count(), Run.objects.get().epoch)
    client = signed_in(bob())
    for address in addresses(run):
        client.get(address)
    for name in ("abort", "pause", "resume"):
        assert client.get(reverse(name, args=[run.pk])).status_code == 302
    assert (
        client.get(reverse("decision", args=[run.interrupts.get().pk]) + "?verdict=approve").status_code
        == 302
    )
    assert (Step.objects.count(), Decision.objects.count(), Run.objects.get().epoch) == before


def test_a_post_without_the_pages_token_is_refused() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob(), csrf=True)
    assert (
        client.post(reverse("decision", args=[run.interrupts.get().pk]), {"verdict": "approve"}).status_code
        == 403
    )
    assert Interrupt.objects.get().status == "pending"


# --- signing in ---------------------------------------------------------------------------------------------------


def test_the_sign_in_page_says_what_is_wrong_and_keeps_the_name() -> None:
    alice()
    answer = Client().post("/sign-in/", {"username": "alice", "password": "wrong"})
    assert "Both are case-sensitive" in answer.text
    assert 'value="alice"' in answer.text


def test_signing_in_and_out() -> None:
    alice()
    client = Client()
    answer = client.post("/sign-in/", {"username": "alice", "password": "pw", "next": "/needs-you/"})
    assert answer["Location"] == "/needs-you/"
    assert client.get("/runs/").status_code == 200
    assert client.get("/sign-out/")["Location"] == "/runs/"
    assert client.get("/runs/").status_code == 200
    client.post("/sign-out/")
    assert client.get("/runs/").status_code == 302


def test_sign_in_leads_to_this_site_only() -> None:
    alice()
    answer = Client().post(
        "/sign-in/", {"username": "alice", "password": "pw", "next": "https://example.com/"}
    )
    assert answer["Location"] == "/"


@pytest.mark.parametrize(
    ("sent_from", "next_page"),
    [
        ("http://testserver/runs/7/fork/?at=3&how=rerun", "/runs/7/fork/?at=3&how=rerun"),
        ("http://testserver/runs/7/?step=2", "/runs/7/?step=2"),
        ("https://evil.example/runs/7/fork/?at=3", "/runs/7/fork/?at=9"),
        ("", "/runs/7/fork/?at=9"),
    ],
)
def test_who_sends_a_form_signed_out_is_led_back_to_the_page_with_the_form(
    sent_from: str, next_page: str
) -> None:
    answer = Client().post("/runs/7/fork/?at=9", {"at": "9"}, headers={"referer": sent_from})
    assert answer.status_code == 302
    way = urlsplit(answer["Location"])
    assert (way.path, parse_qs(way.query)["next"]) == ("/sign-in/", [next_page])
    said = "You were signed out, so nothing was sent."
    assert said in Client().get(answer["Location"]).text
    assert said not in Client().get("/sign-in/?next=/runs/").text


def test_a_fork_that_is_sent_signed_out_leads_back_to_its_row() -> None:
    owner = alice()
    run = run_with_letter(owner)
    address = f"{reverse('fork', args=[run.pk])}?at=2&how=rerun"
    page = signed_in(owner).get(address).text
    (action,) = re.findall(r'class="launch" method="post" action="([^"]+)"', page)
    answer = Client().post(unescape(action), {})
    assert parse_qs(urlsplit(answer["Location"]).query)["next"] == [address]


def test_only_who_is_signed_in_is_known_to_be() -> None:
    assert signed_in(charlie()).get(reverse("signed-in")).status_code == 204
    assert Client().get(reverse("signed-in")).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_health_needs_no_signing_in() -> None:
    assert Client().get("/healthz").content == b"ok\n"


# --- the list -----------------------------------------------------------------------------------------------------


def test_an_empty_list_invites_the_first_launch() -> None:
    page = signed_in(alice()).get("/runs/").text
    assert "No runs yet" in page
    assert "/runs/new/?demonstration" in page
    assert "operators" in signed_in(cast_member("dan")).get("/runs/").text


def test_filters_stand_in_the_address_and_narrow_the_list() -> None:
    owner = alice()
    waits, done = run_with_letter(owner), launched(owner, ALL_WELL)
    client = signed_in(owner)
    assert _listed(client, "?status=succeeded") == {done.pk}
    assert _listed(client, "?status=active") == {waits.pk}
    assert _listed(client, f"?q=%23{done.pk}") == {done.pk}
    assert _listed(client, "?q=tell the board") == {waits.pk, done.pk}
    assert _listed(client, "?q=nothing like it") == set()
    assert _listed(client, "?machine=ruled&status=nonsense&before=x") == {waits.pk, done.pk}


def _listed(client: Client, query: str) -> set[int]:
    page = client.get(f"/runs/{query}").context["page"]
    return {item.run.pk for item in (*page.waiting, *page.runs)}


def test_the_list_asks_as_much_for_many_runs_as_for_one() -> None:
    owner = alice()
    client = signed_in(owner)
    counts = []
    for _ in range(2):
        launched(owner, ALL_WELL)
        with CaptureQueriesContext(connection) as asked:
            client.get("/runs/")
        counts.append(len(asked))
    assert counts[0] == counts[1]


# --- the run page -------------------------------------------------------------------------------------------------


def test_the_run_page_is_whole_without_scripts() -> None:
    owner = alice()
    run = run_with_letter(owner)
    page = signed_in(bob()).get(f"/runs/{run.pk}/?step=2").text
    for piece in (
        'data-panel="header"',
        'data-panel="gauges"',
        'data-panel="needs"',
        'id="step-1"',
        'data-graph="ruled"',
    ):
        assert piece in page
    assert 'name="revision" value="1"' in page
    assert f'name="fingerprint" value="{run.interrupts.get().fingerprint}"' in page
    assert "Tell the board how &lt;b&gt;things&lt;/b&gt; are" in page
    assert "<b>things</b>" not in page
    assert "Prompt as sent" in page


def test_no_page_has_scripts_or_styles_inside() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    for address in [*addresses(run), "/runs/", "/needs-you/", "/sign-in/"]:
        page = client.get(address, follow=True).text
        assert " style=" not in page, address
        assert "<style" not in page
        assert " onclick" not in page
        assert "<script>" not in page


def test_the_count_of_what_needs_me_is_on_every_page_and_in_its_title() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    for address in ("/runs/", f"/runs/{run.pk}/", "/needs-you/", "/nowhere/"):
        page = client.get(address).text
        assert "<title>(1) " in page
        assert 'data-inbox-count="1"' in page
    assert "<title>Runs" in signed_in(charlie()).get("/runs/").text


def test_only_the_newest_rows_are_painted_and_older_ones_are_a_click_away() -> None:
    owner = alice()
    run = launched(
        owner, *[think("send_mail", **LETTER)] * 40, ALL_WELL, rules=ALLOW, max_steps=60, ruleset=[]
    )
    client = signed_in(owner)
    page = client.get(f"/runs/{run.pk}/").text
    assert page.count('<li class="row') == 200
    first = run.head - 199
    assert f"?before={first}" in page
    older = client.get(f"/runs/{run.pk}/rows/?before={first}").text
    assert older.count('<li class="row') == first - 1


def test_the_run_page_asks_as_much_for_a_long_run_as_for_a_short_one() -> None:
    owner = alice()
    client = signed_in(owner)
    counts = []
    for times in (1, 20):
        run = launched(
            owner, *[think("send_mail", **LETTER)] * times, ALL_WELL, rules=ALLOW, max_steps=60, ruleset=[]
        )
        client.get(f"/runs/{run.pk}/")
        with CaptureQueriesContext(connection) as asked:
            client.get(f"/runs/{run.pk}/")
        counts.append(len(asked))
    assert counts[0] == counts[1]


def test_newer_rows_come_as_the_socket_would_have_sent_them() -> None:
    run = run_with_letter(alice())
    found = signed_in(bob()).get(f"/runs/{run.pk}/rows/?after=2").json()
    assert found["head"] == run.head
    assert found["status"] == "waiting"
    assert [row["seq"] for row in found["rows"]] == list(range(3, run.head + 1))
    assert set(found["panels"]) == set(PANELS) | {"machine"}


def test_the_children_that_a_page_names_come_with_its_panels() -> None:
    run, client = family(think("search", q="tides"), INNER_ANSWER), signed_in(bob())

    def named() -> list[int]:
        """By the panel that an open page is sent; one that is painted anew has the same in it."""
        panel = client.get(f"/runs/{run.pk}/rows/?after=1").json()["panels"]["children"]
        assert f'<span data-panel="children">{compact(panel)}</span>' in client.get(f"/runs/{run.pk}/").text
        return [int(pk) for pk in re.findall(r'href="/runs/(\d+)/"', panel)]

    assert named() == []
    slice_of(run)
    first = child_of(run)
    assert named() == [first.pk]
    actions.rewind(run, to=transitions(run)[0], by=None)
    slice_of(run)
    second = run.children.exclude(pk=first.pk).get()
    assert named() == [first.pk, second.pk]


def test_a_page_that_was_painted_before_a_restore_is_given_no_rows() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    page = client.get(f"/runs/{run.pk}/").text
    found = re.search(r'data-life="([^"]*)"', page)
    assert found is not None
    rows = f"/runs/{run.pk}/rows/?after=2&life={found[1]}"
    assert client.get(rows).status_code == 200
    backups.mark_restored("another")
    refused = client.get(rows)
    assert refused.status_code == 412
    assert "Reload the page" in refused.text
    assert 'data-life="another"' in client.get(f"/runs/{run.pk}/").text


def test_a_step_is_a_page_of_its_own_and_a_piece_for_scripts() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    whole = client.get(f"/runs/{run.pk}/steps/2/")
    piece = client.get(f"/runs/{run.pk}/steps/2/", headers={"X-Requested-With": "fetch"})
    assert "<html" in whole.text
    assert piece.text.startswith("<article")
    assert client.get(f"/runs/{run.pk}/steps/999/").status_code == 404
    assert client.get(f"/runs/{run.pk}/?step=999").status_code == 404


LARGEST_INSPECTOR = 60_000


def long_run(owner: User, calls: int, result: str) -> Run:
    """A run whose last prompt has the results of many calls."""
    search = {**SEARCH, "params": {"q": "string"}, "results": [{"output": result}]}
    played = script(*(think("search", q=f"{n}") for n in range(calls)), FINAL, tools={"search": search})
    return work(launch(owner=owner, played=played, max_steps=calls + 1))


def whole_texts(page: str) -> list[str]:
    """The addresses of the texts that a page has in part."""
    return re.findall(r'<a href="([^"]*\.txt)"', page)


@pytest.mark.parametrize(("calls", "characters"), [(60, 1_000), (2, 5_000)])
def test_the_inspector_is_small_and_leads_to_each_whole_text(calls: int, characters: int) -> None:
    owner = alice()
    result = "".join(f"<{n}>" for n in range(characters // 4))
    run = long_run(owner, calls, result)
    last = run.exchanges.filter(kind="model_call").latest("seq")
    client = signed_in(owner)
    page = client.get(f"/runs/{run.pk}/steps/{last.seq}/", headers={"X-Requested-With": "fetch"})
    assert len(page.content) <= LARGEST_INSPECTOR
    texts = [client.get(address) for address in whole_texts(page.text)]
    assert any(result in text.text for text in texts)
    assert {text.headers["Content-Type"] for text in texts} == {"text/plain; charset=utf-8"}
    assert f"/runs/{run.pk}/context/?step={last.seq}" in page.text


def test_a_short_text_stands_whole_in_the_inspector() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    page = client.get(f"/runs/{run.pk}/steps/2/")
    assert whole_texts(page.text) == []
    state = client.get(reverse("step-text", args=[run.pk, 2, "state"]))
    assert unescape(page.text).count(state.text) == 1


def test_a_text_of_a_step_is_for_those_who_see_the_run() -> None:
    run = run_with_letter(alice())
    address = reverse("step-text", args=[run.pk, 2, "state"])
    assert signed_in(charlie()).get(address).status_code == 404
    client = signed_in(bob())
    assert client.get(reverse("step-text", args=[run.pk, 2, "nothing"])).status_code == 404
    assert client.get(reverse("step-text", args=[run.pk, 999, "state"])).status_code == 404


def test_the_answer_keeps_its_lines_and_hurts_nobody() -> None:
    owner = alice()
    run = launched(owner, {"thought": "FINAL ANSWER: a\n  <img src=x onerror=alert(1)>", "action": None})
    page = signed_in(owner).get(f"/runs/{run.pk}/").text
    assert "a<br>&lt;img src=x onerror=alert(1)&gt;" in page


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_is_saved_and_never_shown() -> None:
    owner = alice()
    run = launched(owner, ALL_WELL)
    RunFolder(folder_of(run.pk)).write("notes/über.html", b"<script>alert(1)</script>")
    client = signed_in(owner)
    assert "notes/über.html" in client.get(f"/runs/{run.pk}/").text
    answer = client.get(f"/runs/{run.pk}/files/notes/über.html")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment; filename*=utf-8''%C3%BCber.html")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer["Content-Security-Policy"]
    assert signed_in(charlie()).get(f"/runs/{run.pk}/files/notes/über.html").status_code == 404


@pytest.mark.parametrize(
    "name", ["../../secret_key", "..%2f..%2fsecret_key", "/etc/passwd", ".hidden", "a//b", "nothing.txt"]
)
def test_a_name_does_not_leave_the_runs_folder(name: str) -> None:
    owner = alice()
    run = launched(owner, ALL_WELL)
    (settings.DATA_DIR / "secret_key").touch()
    assert signed_in(owner).get(f"/runs/{run.pk}/files/{name}").status_code == 404


# --- steering -----------------------------------------------------------------------------------------------------


def test_the_owner_pauses_resumes_and_stops_her_run() -> None:
    owner = alice()
    run = run_with_letter(owner)
    client = signed_in(owner)
    for deed, status in (("pause", "paused"), ("resume", "waiting"), ("abort", "cancelled")):
        answer = client.post(reverse(deed, args=[run.pk]), {"note": "Enough."}, follow=True)
        assert answer.status_code == 200
        run.refresh_from_db()
        assert run.status == status
    assert "Enough. (alice)" in run.steps.order_by("-seq")[0].facts_json


ASKS_FIRST = "Cancel run… This ends the run and its children for good. A call in flight can’t be undone."


def test_cancelling_a_run_asks_first_in_the_menu_and_on_the_card() -> None:
    owner = alice()
    run = run_with_letter(owner)
    client = signed_in(owner)
    in_menu = folds_of(client.get(reverse("run", args=[run.pk])).text, "Cancel run")
    assert [fold.removesuffix(" Why (optional)") for fold in in_menu] == [ASKS_FIRST]
    reviewer = signed_in(bob())
    for page in (reverse("run", args=[run.pk]), reverse("interrupt", args=[pending(run).pk])):
        assert folds_of(reviewer.get(page).text, "Cancel run") == [ASKS_FIRST]


def test_the_page_of_a_cancelled_run_says_cancelled() -> None:
    owner = alice()
    run = run_with_letter(owner)
    answer = signed_in(owner).post(reverse("abort", args=[run.pk]), {"note": "Enough."}, follow=True)
    assert "<span>Cancelled.</span>" in answer.text and "Stopped." not in answer.text


SHORT_ENOUGH = "A reason has at most 500 characters; this one has 501; nothing was done."


def test_a_reason_that_is_too_long_stops_nothing_and_is_kept() -> None:
    owner, much = alice(), "n" * 501
    run = run_with_letter(owner)
    answer = signed_in(owner).post(reverse("abort", args=[run.pk]), {"note": much})
    assert answer.status_code == 422
    assert SHORT_ENOUGH in answer.text and f'value="{much}"' in answer.text
    with pytest.raises(actions.NotPossible, match="at most 500"):
        actions.pause(run, by=owner, message=much)
    assert Run.objects.get(pk=run.pk).status == "waiting"


def test_a_reason_that_is_too_long_goes_back_nowhere_and_is_kept() -> None:
    owner, much = alice(), "n" * 501
    run = run_with_letter(owner)
    to = transitions(run)[0]
    fields = {"to": str(to), "seen": after_row.rollback_mark(run, to), "note": much}
    answer = signed_in(owner).post(reverse("rewind", args=[run.pk]), fields)
    assert answer.status_code == 422
    assert SHORT_ENOUGH in answer.text and f'value="{much}"' in answer.text
    assert not run.steps.filter(kind="rewind").exists()


def test_no_field_cuts_a_text_without_a_word() -> None:
    root = cast_member("root", is_superuser=True, is_staff=True)
    run, client = run_with_letter(root), signed_in(root)
    question = run.interrupts.get().pk
    forms = [
        *addresses(run),
        reverse("launch"),
        reverse("halt"),
        reverse("context", args=[run.pk]),
        reverse("context", args=[compacted_run().pk]),
        reverse("fork", args=[run.pk]) + "?at=0",
        reverse("rewind", args=[run.pk]) + f"?to={transitions(run)[0]}",
        reverse("compare-choose", args=[run.pk]),
        reverse("admin:runs_interrupt_change", args=[question]),
    ]
    assert [address for address in forms if "maxlength" in client.get(address).text] == []


def test_what_is_not_possible_is_said_on_the_run_page() -> None:
    owner = alice()
    run = launched(owner, ALL_WELL)
    answer = signed_in(owner).post(reverse("pause", args=[run.pk]), follow=True)
    assert "has ended already" in answer.text


def test_a_reviewer_may_not_steer_somebody_elses_run() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    assert "Roll back to here" not in client.get(f"/runs/{run.pk}/?step=2").text
    assert client.post(reverse("abort", args=[run.pk])).status_code == 403
    assert client.get(reverse("rewind", args=[run.pk]) + "?to=2").status_code == 403


def test_before_going_back_the_page_lists_what_stays_done() -> None:
    owner = alice()
    run = run_with_letter(owner)
    decide(run, "approve")
    run = work(run)
    run = launched(
        owner,
        think("send_mail", **LETTER),
        think("send_mail", **LETTER),
        ALL_WELL,
        rules=[{"when": {"args": {"to": {"like": "*"}}}, "do": "allow"}],
        interrupt_every=2,
    )
    target = transitions(run)[0]
    client = signed_in(owner)
    page = client.get(reverse("rewind", args=[run.pk]) + f"?to={target}").text
    assert "Side effects after that step stay, and may be repeated:" in page
    assert page.count("<code>send_mail(") >= 2
    fields = {"to": str(target), "seen": after_row.rollback_mark(run, target), "note": "Once is enough."}
    answer = client.post(reverse("rewind", args=[run.pk]), fields)
    assert answer.status_code == 302
    run.refresh_from_db()
    assert run.steps.filter(kind="rewind").count() == 1
    assert run.steps.filter(live=False).count() > 0


def test_before_going_back_the_page_lists_what_people_did_to_the_context_that_counts_no_more() -> None:
    owner = alice()
    run = compacted_run(owner)
    seq, row, target = newest_summary(run).seq, transitions(run, "executed")[-1], transitions(run)[-1]
    address = reverse("rewind", args=[run.pk]) + f"?to={target}"
    client = signed_in(owner)
    told = "Changes to the context after that step are rolled back:"
    assert told not in client.get(address).text
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A <digit>.", by=bob())
    actions.pin(run, path=f"st:{row}", by=None)
    page = client.get(address).text
    assert told in page and "No side effects after that step." in page
    corrected = f"step {seq}, version 2, by bob: “A &lt;digit&gt;.” (step {run.head + 1})"
    assert f"Summary corrected</span> {corrected}</li>" in page
    assert f"Pinned for the model</span> step {row} by the operator (step {run.head + 2})</li>" in page
    earlier = transitions(run)[0]
    page = client.get(reverse("rewind", args=[run.pk]) + f"?to={earlier}").text
    assert earlier < min(seq, row) and told not in page, "there it goes with its summary, and with its row"


def test_only_the_live_end_of_a_step_can_be_gone_back_to() -> None:
    owner = alice()
    run = run_with_letter(owner)
    client = signed_in(owner)
    ask = run.steps.filter(kind="ask").first()
    assert ask is not None
    assert "can’t roll back" in client.get(reverse("rewind", args=[run.pk]) + f"?to={ask.seq}").text
    answer = client.post(reverse("rewind", args=[run.pk]), {"to": str(ask.seq)}, follow=True)
    assert "not a live transition" in answer.text
    assert client.get(reverse("rewind", args=[run.pk]) + "?to=nonsense").status_code == 404


# --- the queue ----------------------------------------------------------------------------------------------------


def test_the_queue_has_the_least_time_left_first_and_decided_ones_apart() -> None:
    late, soon, done = run_with_letter(None), run_with_letter(None), run_with_letter(None)
    Interrupt.objects.filter(run=soon).update(deadline=timezone.now() + timedelta(minutes=5))
    decide(done, "reject", message="no")
    answer = signed_in(bob()).get("/needs-you/")
    assert [card["interrupt"].run_id for card in answer.context["cards"]] == [soon.pk, late.pk]
    assert [item["interrupt"].run_id for item in answer.context["decided"]] == [done.pk]


def test_the_queue_says_each_call_and_each_limit_in_a_line() -> None:
    owner = alice()
    run_with_letter(owner)
    limited = [launched(owner, think("send_mail", **LETTER), limits={"cost_usd": 0.0005}) for _ in range(2)]
    client = signed_in(bob())
    page = client.get("/needs-you/").text
    assert (
        "Run send_mail(body=&quot;Dear board,\\nall is well.&quot;, copies=1, to=&quot;board@example.com&quot;"
        in page
    )
    assert (
        page.count("Cost limit reached: $0.001 of $0.0005 used") == 4
    )  # what is asked, and the button's name
    assert "cost_usd" not in page
    question = client.get(reverse("interrupt", args=[limited[0].interrupts.get().pk])).text
    assert "Cost limit reached: $0.001 of $0.0005 used" in question
    decide(limited[0], "abort")
    assert "Cost limit reached: $0.001 of $0.0005 used</a>" in client.get("/needs-you/").text


def test_an_empty_queue_says_so() -> None:
    assert "Nothing is waiting for you" in signed_in(bob()).get("/needs-you/").text
    assert "reviewers" in signed_in(charlie()).get("/needs-you/").text


def test_an_owner_who_may_decide_has_her_own_runs_in_the_queue_only() -> None:
    dora = cast_member("dora", "operators")
    dora.user_permissions.add(Permission.objects.get(codename="decide_interrupt"))
    mine = run_with_letter(dora)
    run_with_letter(alice())
    answer = signed_in(dora).get("/needs-you/")
    assert [card["interrupt"].run_id for card in answer.context["cards"]] == [mine.pk]
    assert pending(mine).pk


def test_a_site_without_models_says_how_to_get_one() -> None:
    page = signed_in(alice()).get("/runs/new/").text
    assert "No model is set up." in page
    ModelProfile.objects.create(name="tiny", base_url="http://127.0.0.1:1/v1", model_id="tiny")
    assert "No model is set up." not in signed_in(bob_with_launch()).get("/runs/new/").text


def bob_with_launch() -> User:
    return cast_member("bea", "operators")
