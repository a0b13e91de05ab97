"""Deciding in the browser: what is sent, what is taken, and what comes back when it can't be taken."""

from __future__ import annotations

import json
import re

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse
from django.utils.dateformat import format as date_text

from runs import actions, driver
from runs.models import Decision, Interrupt, Run
from runs.reading.exporting import export
from runs.store import backups
from tests.cast import alice, bob, cast_member, signed_in
from tests.compact import compact
from tests.compacting import RIGHT, compacted_run, newest
from tests.launching import (
    ALL_WELL,
    ALLOW,
    LETTER,
    MAIL,
    SEND,
    launch,
    launched,
    run_with_letter,
    script,
    think,
)
from tests.pages import card_form, send_card
from tests.running import decide, pending, transitions, work
from tests.workers import die_in, kill

pytestmark = [pytest.mark.django_db]


def decided(run: Run) -> Decision:
    return Decision.objects.get(interrupt__run=run)


def test_an_approval_is_recorded_and_leads_back_to_the_run() -> None:
    run = run_with_letter(alice())
    answer = send_card(signed_in(bob()), run, "approve")
    assert answer["Location"] == f"/runs/{run.pk}/"
    decision = decided(run)
    assert (decision.verdict, decision.args_json, decision.by_name, decision.channel) == (
        "approve",
        None,
        "bob",
        "web",
    )
    assert work(run).status == "succeeded"


def test_a_page_of_before_a_restore_decides_nothing() -> None:
    run = run_with_letter(alice())
    client, interrupt = signed_in(bob()), pending(run)
    pages = (f"/runs/{run.pk}/", reverse("interrupt", args=[interrupt.pk]))
    lives = [
        re.findall(r'name="life" value="([^"]*)" form="needs-form"', client.get(page).text) for page in pages
    ]
    ((life,), (other,)) = lives
    assert life == other
    backups.mark_restored("another")
    answer = send_card(client, run, "approve", life=life)
    assert answer.status_code == 412
    assert "Nothing was done" in answer.text
    assert not Decision.objects.exists()
    assert send_card(client, run, "approve", life="another").status_code == 302
    assert decided(run).verdict == "approve"


@pytest.mark.parametrize("deed", ["pause", "resume", "abort", "replay"])
def test_a_page_of_before_a_restore_steers_nothing(deed: str) -> None:
    owner = alice()
    run, client = run_with_letter(owner), signed_in(owner)
    page = client.get(f"/runs/{run.pk}/").text
    form = re.search(rf'action="/runs/{run.pk}/{deed}/">(.*?)</form>', page, re.S)
    assert form is not None
    found = re.search(r'name="life" value="([^"]*)"', form[1])
    assert found is not None
    backups.mark_restored("another")
    before = export(run)
    answer = client.post(reverse(deed, args=[run.pk]), {"life": found[1]})
    assert answer.status_code == 412
    assert '<h1 class="empty__title">This page is out of date</h1>' in answer.text
    assert export(run) == before
    assert Run.objects.count() == 1


def test_an_approval_with_changes_is_an_edit_with_typed_arguments() -> None:
    run = run_with_letter(alice())
    send_card(
        signed_in(bob()),
        run,
        "approve",
        **{"arg.copies": "3", "arg.ratio": "0.5", "arg.tags": '["a"]', "note": "x"},
    )
    decision = decided(run)
    assert decision.verdict == "edit"
    assert json.loads(decision.args_json or "") == {**LETTER, "copies": 3, "ratio": 0.5, "tags": ["a"]}
    assert work(run).status == "succeeded"


def test_a_box_that_is_not_ticked_is_false_and_not_left_out() -> None:
    run = run_with_letter(alice())
    interrupt = pending(run)
    fields = card_form(interrupt, verdict="edit")
    del fields["arg.urgent"]
    signed_in(bob()).post(reverse("decision", args=[interrupt.pk]), fields)
    assert json.loads(decided(run).args_json or "")["urgent"] is False


def test_an_edit_that_changes_nothing_is_an_approval() -> None:
    run = run_with_letter(alice())
    send_card(signed_in(bob()), run, "edit")
    assert decided(run).verdict == "approve"


def test_what_can_not_be_read_comes_back_beside_its_field_with_all_that_was_typed() -> None:
    run = run_with_letter(alice())
    answer = send_card(
        signed_in(bob()), run, "approve", **{"arg.copies": "many", "arg.body": "My own <words>"}
    )
    assert answer.status_code == 422
    assert "copies must be a whole number." in answer.text
    assert 'value="many"' in answer.text
    assert "My own &lt;words&gt;" in answer.text
    assert not Decision.objects.exists()


def test_what_the_tool_does_not_take_is_said_beside_the_field() -> None:
    run = run_with_letter(alice())
    answer = send_card(signed_in(bob()), run, "approve", **{"arg.tags": '"no list"'})
    assert answer.status_code == 422
    assert "tags must be an array" in answer.text


def test_a_risky_call_wants_a_second_look() -> None:
    run = run_with_letter(alice())
    interrupt = pending(run)
    fields = card_form(interrupt, verdict="approve")
    del fields["sure"]
    answer = signed_in(bob()).post(reverse("decision", args=[interrupt.pk]), fields)
    assert answer.status_code == 422
    assert "tick the box" in answer.text
    assert not Decision.objects.exists()


def test_a_rejection_carries_its_reason_to_the_model() -> None:
    run = run_with_letter(alice())
    send_card(signed_in(bob()), run, "reject", reason="Not to\r\nthe board.")
    assert decided(run).message == "Not to\nthe board."
    facts = "".join(work(run).steps.values_list("facts_json", flat=True))
    assert "Not to\\nthe board." in facts


def test_a_reason_that_is_too_long_is_refused_in_a_sentence_and_kept_on_the_card() -> None:
    run = run_with_letter(alice())
    much = "no " * 2000
    answer = send_card(signed_in(bob()), run, "reject", reason=much)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "at most 4000 characters; this one has 5999; nothing was decided" in page and much.strip() in page
    assert not Decision.objects.exists()


def test_an_answer_stands_in_place_of_the_result() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    answer = send_card(client, run, "respond", answer=" ")
    assert answer.status_code == 422
    assert "Write the answer." in answer.text
    send_card(client, run, "respond", answer="I sent it myself.")
    assert decided(run).message == "I sent it myself."


def test_a_second_decision_says_who_decided_and_keeps_the_text() -> None:
    run = run_with_letter(alice())
    decide(run, "approve")
    answer = send_card(signed_in(bob()), run, "reject", reason="Please <do not>.")
    assert answer.status_code == 409
    when = f"{decided(run).at:%H:%M} UTC</time> ({decided(run).at:%-d %b})."
    assert "<strong>the operator approved this at <time" in answer.text and when in compact(answer.text)
    assert "Your answer was not recorded; your text is kept below." in compact(answer.text)
    assert "already decided" not in answer.text and "on the web" not in answer.text
    assert "Please &lt;do not&gt;." in answer.text
    assert "Approved" in answer.text
    assert decided(run).verdict == "approve"


def test_amounts_and_a_row_that_came_too_late_are_kept() -> None:
    client = signed_in(bob())
    limited = launched(alice(), ALL_WELL, limits={"cost_usd": 0})
    decide(limited, "top_up", args={"cost_usd": 2})
    late = send_card(client, limited, "top_up", **{"amount.cost_usd": "0.37", "amount.tokens": ""})
    assert late.status_code == 409
    assert kept(late.text) == [("Amount in USD", "0.37")]
    otherwise = send_card(client, limited, "finish", **{"amount.cost_usd": "0.37"})
    assert "your text is kept below" not in otherwise.text, (
        "the form proposed that amount to all who answered"
    )
    run = run_with_letter(None)
    target = str(transitions(run)[0])
    decide(run, "reject")
    assert kept(send_card(client, run, "rollback", to_step=target).text) == [("Roll back to step", target)]


def test_who_wrote_nothing_is_not_told_that_it_is_kept() -> None:
    run = run_with_letter(alice())
    decide(run, "reject")
    late = send_card(signed_in(bob()), run, "approve").text
    assert "Your answer was not recorded." in late
    assert ("your text is kept below" in late, kept(late)) == (False, [])


def kept(page: str) -> list[tuple[str, str]]:
    """What the card keeps of an answer that was not taken."""
    _, _, box = page.partition('<div class="kept">')
    assert bool(box) == ("your text is kept below." in page)
    return re.findall(
        r'<p class="card__label">([^<]*)</p><pre[^>]*>([^<]*)</pre>', box.partition("</div>")[0]
    )


def boxes(page: str) -> list[tuple[str, list[str]]]:
    """Each list of arguments of a card: what stands right above it, and its values."""
    found = re.findall(r'([^<>]*)</(?:p|div)>\s*<dl class="facts">(.*?)</dl>', page, re.DOTALL)
    assert len(found) == page.count('<dl class="facts">')
    return [(head, re.findall(r'<pre class="value">(.*?)</pre>', box, re.DOTALL)) for head, box in found]


def test_who_was_late_sees_what_was_approved_and_what_was_shown_each_under_its_heading() -> None:
    run = run_with_letter(alice())
    decide(run, "edit", args={**LETTER, "copies": 7})
    page = send_card(signed_in(bob()), run, "approve", **{"arg.copies": "3"}).text
    (approved, now), (shown, before) = boxes(page)
    assert (approved, shown) == ("Approved with these arguments", "You saw these arguments")
    assert ("7" in now, "1" in before) == (True, True)
    assert [a for a, b in zip(now, before, strict=True) if a != b] == ["7"]
    assert LETTER["to"] in now and "{&quot;" not in page


@pytest.mark.parametrize(
    ("verdict", "said"),
    [("approve", "Approved with these arguments"), ("reject", "Arguments")],
)
def test_the_arguments_of_a_closed_question_say_what_was_decided_about_them(verdict: str, said: str) -> None:
    """Whether the call ran is another matter: here nothing runs any more."""
    run = run_with_letter(alice())
    actions.halt_site(by=None, reason="Look first.")
    decide(run, verdict)
    driver.drive(run.pk)
    run.refresh_from_db()
    assert run.tool_calls == 0
    page = signed_in(bob()).get(reverse("interrupt", args=[run.interrupts.get().pk])).text
    assert [head for head, _ in boxes(page)] == [said]


def test_the_amounts_that_were_added_have_their_names_and_units() -> None:
    run = launched(alice(), ALL_WELL, limits={"cost_usd": 0})
    decide(run, "top_up", args={"cost_usd": 2})
    page = signed_in(bob()).get(reverse("interrupt", args=[run.interrupts.get().pk])).text
    assert boxes(page) == [("Added", ["$2.00"])]


def test_the_same_decision_twice_is_one() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    assert send_card(client, run, "approve").status_code == 302
    assert send_card(client, run, "approve").status_code == 302
    assert Decision.objects.count() == 1


@pytest.mark.parametrize("seen", [{"revision": "2"}, {"fingerprint": "0123456789abcdef"}])
def test_a_card_that_is_out_of_date_decides_nothing(seen: dict[str, str]) -> None:
    run = run_with_letter(alice())
    answer = send_card(signed_in(bob()), run, "approve", **seen)
    assert answer.status_code == 409
    assert "Read it again before you decide." in answer.text
    assert not Decision.objects.exists()


@pytest.mark.parametrize(
    "seen", [{"revision": ""}, {"revision": "abc"}, {"revision": "9" * 40}, {"fingerprint": ""}]
)
def test_an_answer_that_names_no_question_decides_nothing(seen: dict[str, str]) -> None:
    run = run_with_letter(alice())
    answer = send_card(signed_in(bob()), run, "approve", **seen)
    assert answer.status_code == 422
    assert "names no question" in answer.text
    assert not Decision.objects.exists()


def test_the_decision_keeps_what_was_seen() -> None:
    run = run_with_letter(alice())
    send_card(signed_in(bob()), run, "approve")
    seen = Decision.objects.get()
    assert (seen.revision_seen, seen.fingerprint_seen) == (1, seen.interrupt.fingerprint)


def test_a_question_of_a_run_that_ended_is_a_conflict() -> None:
    run = run_with_letter(alice())
    actions.abort(run, by=None)
    answer = send_card(signed_in(bob()), run, "approve")
    assert answer.status_code == 409
    assert "no longer open" in answer.text


def test_the_owner_may_not_decide_and_is_told_so() -> None:
    owner = alice()
    run = run_with_letter(owner)
    answer = send_card(signed_in(owner), run, "approve")
    assert answer.status_code == 403
    assert "A reviewer can." in answer.text


def test_rolling_back_needs_a_step() -> None:
    run = run_with_letter(alice())
    client = signed_in(bob())
    assert "Choose a step" in send_card(client, run, "rollback").text
    target = transitions(run)[0]
    send_card(client, run, "rollback", to_step=str(target))
    assert decided(run).to_step == target
    assert work(run).steps.filter(kind="rewind").exists()


STAYS_DONE = "Side effects after that step stay, and may be repeated:"


def run_with_a_letter_sent(owner: User) -> Run:
    """One letter is out, and the next waits for somebody who lets it."""
    run = launched(owner, *[think("send_mail", **LETTER)] * 2, ALL_WELL)
    decide(run, "approve")
    return work(run)


def test_rolling_back_past_what_stays_done_shows_it_first_and_wants_a_tick() -> None:
    run = run_with_a_letter_sent(alice())
    client, target = signed_in(bob()), transitions(run)[0]
    answer = send_card(client, run, "rollback", to_step=str(target), **{"arg.body": "Not yet."})
    assert answer.status_code == 422
    assert STAYS_DONE in answer.text and "Estimated to add: $0.001 (1 model call," in answer.text
    assert f'name="stays_done" value="{target}"' in answer.text and "Not yet." in answer.text
    assert '<details class="reveal reveal--more" id="card-more" open>' in answer.text
    assert f'<option value="{target}" selected>' in answer.text
    assert pending(run).status == "pending"
    agreed = {"to_step": str(target), "stays_done": str(target)}
    assert send_card(client, run, "rollback", **agreed).status_code == 302
    assert Decision.objects.get(interrupt__run=run, verdict="rollback").to_step == target
    assert send_card(client, run, "rollback", **agreed).status_code == 302


def test_a_tick_for_one_row_lets_nobody_go_back_to_another() -> None:
    run = run_with_a_letter_sent(alice())
    client, (first, other) = signed_in(bob()), transitions(run)[:2]
    answer = send_card(client, run, "rollback", to_step=str(first), stays_done=str(other))
    assert (answer.status_code, f'name="stays_done" value="{first}"' in answer.text) == (422, True)
    assert pending(run).status == "pending"


COUNTS_NO_MORE = "Changes to the context after that step are rolled back:"


def test_rolling_back_past_what_people_did_to_the_context_shows_it_first_and_wants_a_tick() -> None:
    run = compacted_run(alice())
    seq, target, reviewer = newest(run).seq, transitions(run)[-1], bob()
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
    actions.pin(run, path=f"su:{seq}", by=reviewer)
    client = signed_in(reviewer)
    answer = send_card(client, run, "rollback", to_step=str(target))
    assert answer.status_code == 422
    assert COUNTS_NO_MORE in answer.text and STAYS_DONE not in answer.text
    assert f"step {seq}, version 2, by the operator: “A digit.” (step {run.head + 1})" in answer.text
    assert f"the summary of step {seq} by bob (step {run.head + 2})" in answer.text
    assert 'aria-describedby="stays_done-wrong counts-no-more likely"' in answer.text
    assert f'name="stays_done" value="{target}"' in answer.text
    assert pending(run).status == "pending"
    assert send_card(client, run, "rollback", to_step=str(target), stays_done=str(target)).status_code == 302
    assert decided(run).to_step == target


def test_what_stays_done_and_what_counts_no_more_are_told_in_one() -> None:
    run = compacted_run(alice())
    seq, target = newest(run).seq, transitions(run)[-1]
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=None)
    decide(run, "approve")
    work(run)
    answer = send_card(signed_in(bob()), run, "rollback", to_step=str(target))
    assert STAYS_DONE in answer.text and COUNTS_NO_MORE in answer.text
    assert 'aria-describedby="stays_done-wrong stays-done counts-no-more likely"' in answer.text


def test_going_back_over_nothing_done_outside_is_one_click() -> None:
    run = run_with_a_letter_sent(alice())
    target = transitions(run)[-1]
    assert send_card(signed_in(bob()), run, "rollback", to_step=str(target)).status_code == 302
    assert Decision.objects.get(interrupt__run=run, verdict="rollback").to_step == target


@pytest.mark.parametrize("seen", [{"revision": "2"}, {"fingerprint": "0123456789abcdef"}])
def test_a_rollback_from_a_card_that_is_out_of_date_is_a_conflict_at_once(seen: dict[str, str]) -> None:
    run = run_with_a_letter_sent(alice())
    client, target = signed_in(bob()), str(transitions(run)[0])
    for agreed in ({}, {"stays_done": target}):
        answer = send_card(client, run, "rollback", to_step=target, **agreed, **seen)
        assert (answer.status_code, STAYS_DONE in answer.text) == (409, False)
    assert pending(run).status == "pending"


def test_who_may_not_decide_is_asked_for_no_tick() -> None:
    owner = alice()
    run = run_with_a_letter_sent(owner)
    answer = send_card(signed_in(owner), run, "rollback", to_step=str(transitions(run)[0]))
    assert (answer.status_code, "A reviewer can." in answer.text) == (403, True)


def test_a_row_that_can_not_be_gone_back_to_is_refused_before_any_tick() -> None:
    run = run_with_a_letter_sent(alice())
    answer = send_card(signed_in(bob()), run, "rollback", to_step="1")
    assert (answer.status_code, "not a live transition" in answer.text) == (422, True)
    assert STAYS_DONE not in answer.text


def test_a_made_up_verdict_is_refused_with_the_possible_ones() -> None:
    run = run_with_letter(alice())
    answer = send_card(signed_in(bob()), run, "shrug")
    assert answer.status_code == 422
    assert "Possible: approve" in answer.text


def test_a_limit_is_raised_by_a_number() -> None:
    run = launched(
        alice(), *[think("send_mail", **LETTER)] * 3, ALL_WELL, limits={"cost_usd": 0.001, "tokens": 10**6}
    )
    client = signed_in(bob())
    page = client.get(f"/runs/{run.pk}/").text
    assert "Raise limit" in page
    assert 'name="amount.cost_usd"' in page
    answer = send_card(client, run, "top_up", **{"amount.cost_usd": "-1"})
    assert (answer.status_code, "Add a number above 0." in answer.text) == (422, True)
    assert "Enter the amount" in send_card(client, run, "top_up", **{"amount.cost_usd": ""}).text
    for name, text, sentence in (
        ("tokens", "1.5", "Add a whole number of tokens."),
        ("tokens", "1e15", "Add at most 999,999,999,999."),
        ("cost_usd", "inf", "Add at most 999,999,999,999."),
        ("cost_usd", "nan", "Add a number above 0."),
    ):
        answer = send_card(client, run, "top_up", **{f"amount.{name}": text})
        assert (answer.status_code, sentence in answer.text) == (422, True)
        assert not Decision.objects.exists()
    assert send_card(client, run, "top_up", **{"amount.cost_usd": "0.5"}).status_code == 302
    assert run.budgets.get(name="cost_usd").limit == pytest.approx(0.501)


@pytest.mark.parametrize(("limit", "name", "least"), [(0.0, "cost_usd", "0.000001"), (1, "tokens", "")])
def test_a_raise_that_leaves_the_limit_reached_is_refused_with_the_least_that_does_not(
    limit: float, name: str, least: str
) -> None:
    run = launched(alice(), *[think("send_mail", **LETTER)] * 3, ALL_WELL, rules=ALLOW, limits={name: limit})
    client = signed_in(bob())
    small = {"cost_usd": "0.0000000000001", "tokens": "1"}[name]
    refused = send_card(client, run, "top_up", **{f"amount.{name}": small})
    found = re.search(rf"{name}: add at least ([\d.]+); less leaves the limit reached", refused.text)
    assert (refused.status_code, found is not None) == (422, True)
    assert found is not None and (not least or found[1] == least)
    assert not Decision.objects.exists()
    assert send_card(client, run, "top_up", **{f"amount.{name}": found[1]}).status_code == 302


def test_a_run_at_its_limit_can_be_told_to_finish() -> None:
    run = launched(alice(), think("send_mail", **LETTER), limits={"cost_usd": 0.001})
    assert send_card(signed_in(bob()), run, "finish").status_code == 302
    assert work(run).exit_reason == "cost_limit"


def test_a_checkpoint_goes_on() -> None:
    run = launched(
        alice(),
        think("send_mail", **LETTER),
        ALL_WELL,
        rules=[{"when": {}, "do": "allow"}],
        interrupt_every=1,
    )
    client = signed_in(bob())
    assert "1 turn done. Continue?" in client.get(f"/runs/{run.pk}/").text
    send_card(client, run, "resume")
    assert work(run).status == "succeeded"


def test_a_draft_is_judged_with_a_message() -> None:
    guess = {"thought": "I guess so", "action": None}
    run = launched(alice(), *[guess] * 4, ALL_WELL, cache=False)
    send_card(signed_in(bob()), run, "reject", reason="Look it up.")
    run = work(run)
    assert run.status == "succeeded"
    assert "Look it up." in "".join(run.steps.values_list("facts_json", flat=True))


def test_long_and_odd_texts_survive_the_round_trip() -> None:
    odd = {**LETTER, "body": '\n  first\r\nsecond\u2028"quoted" & <tag> \U0001f600\n'}
    run = launched(alice(), think("send_mail", **odd), ALL_WELL)
    client = signed_in(bob())
    interrupt = pending(run)
    send_as_painted(client, interrupt)
    assert decided(run).verdict == "approve"


def send_as_painted(client: Client, interrupt: Interrupt) -> HttpResponse:
    """Send the form as a browser would that was given the page and changed nothing."""
    from html.parser import HTMLParser

    class Form(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.fields: dict[str, str] = {}
            self.area = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            given = {name: value or "" for name, value in attrs}
            if tag == "textarea":
                self.area = given["name"]
                self.fields[self.area] = ""
            if tag == "input" and "name" in given and (given.get("type") != "checkbox" or "checked" in given):
                self.fields[given["name"]] = given.get("value", "")

        def handle_data(self, data: str) -> None:
            if self.area:
                self.fields[self.area] += data

        def handle_endtag(self, tag: str) -> None:
            if tag == "textarea":
                # A browser drops the first line end of a text area, and sends its own.
                text = self.fields[self.area].removeprefix("\n").replace("\r\n", "\n")
                self.fields[self.area] = text.replace("\n", "\r\n")
                self.area = ""

    form = Form()
    form.feed(client.get(reverse("interrupt", args=[interrupt.pk])).text)
    fields = {**form.fields, "verdict": "approve", "sure": "yes"}
    return client.post(reverse("decision", args=[interrupt.pk]), fields)  # type: ignore[return-value]


def test_every_type_that_a_schema_has_gets_a_field_of_its_own() -> None:
    full = {**LETTER, "ratio": 0.5, "tags": ["a", 1]}
    run = launched(alice(), think("send_mail", **full), ALL_WELL)
    page = signed_in(bob()).get(reverse("interrupt", args=[pending(run).pk])).text
    for name, kind in MAIL["params"].items():
        assert f'name="arg.{name}"' in page, kind
    assert 'type="checkbox" id="arg-' in page
    assert 'inputmode="numeric"' in page
    assert 'inputmode="decimal"' in page


# --- a call that may have happened --------------------------------------------------------------------------------


def uncertain(effects: str = "send") -> Run:
    """A run that asks what became of a call that its worker was lost in."""
    played = script(think("send", to="bob"), ALL_WELL, tools={"send": SEND | {"effects": effects}})
    run = launch(played=played, rules=ALLOW)
    die_in(run, before=kill, only="send")
    return work(run)


def card_text(run: Run) -> str:
    return str(signed_in(bob()).get(reverse("interrupt", args=[pending(run).pk])).text)


def test_a_call_that_may_have_happened_is_shown_with_when_it_began() -> None:
    run = uncertain()
    began = run.exchanges.get(name="send").started_at
    shown = re.search(r'<p class="card__call">.*?</p>', card_text(run))
    assert shown is not None
    text = re.sub(r"<[^>]+>", "", shown[0])
    assert text == f"The call send(to=&quot;bob&quot;) began {date_text(began, 'j M, H:i')} UTC"
    assert f'datetime="{date_text(began, "c")}"' in shown[0]


def test_its_answers_say_on_their_buttons_what_they_do_and_none_is_put_forward() -> None:
    text = card_text(uncertain())
    deeds = text[text.index('class="card__deeds"') : text.index('id="card-more"')]
    buttons = re.findall(r'<(?:summary|button) class="([^"]*)"[^>]*>(.*?)</(?:summary|button)>', deeds)
    said = [(style, re.sub(r"<svg.*?</svg>|<[^>]+>", "", inner)) for style, inner in buttons]
    assert said == [
        ("button button--big", "Run again"),
        ("button button--big", "Treat as failed…"),
        ("button button--bad", "Treat as failed"),
        ("button button--big", "Provide result…"),
        ("button button--primary", "Provide result"),
    ]
    assert "does not run" not in text and "taken back" not in text and "Held back" not in text
    assert "Running it again could duplicate it." in text
    assert "the call is not repeated" in deeds


def test_a_call_of_less_risk_says_without_a_tick_what_running_it_again_may_do() -> None:
    run = uncertain(effects="write")
    text = card_text(run)
    assert 'name="sure"' not in text
    assert "“Run again” repeats the call. If it already happened, it happens twice." in text


def test_running_it_again_wants_a_tick_that_says_what_it_may_do() -> None:
    run = uncertain()
    question = pending(run)
    seen = {"revision": str(question.revision), "fingerprint": question.fingerprint, "verdict": "approve"}
    client = signed_in(bob())
    answer = client.post(reverse("decision", args=[question.pk]), seen)
    assert (answer.status_code, Decision.objects.count()) == (422, 0)
    assert "Check whether it happened, then tick the box to run it again." in answer.text
    assert client.post(reverse("decision", args=[question.pk]), seen | {"sure": "yes"}).status_code == 302
    assert decided(run).verdict == "approve"


def test_the_admin_asks_in_the_same_words() -> None:
    run = uncertain()
    client = signed_in(cast_member("root", is_superuser=True, is_staff=True))
    text = client.get(reverse("admin:runs_interrupt_change", args=[pending(run).pk])).text
    assert "<span>Run again</span>" in text and ">Treat as failed</button>" in text
    assert "Running it again could duplicate it." in text
    assert "It would run" not in text and ">Approve<" not in text
