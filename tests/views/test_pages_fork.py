"""The pages that let a run go another way: what they say first, what they refuse and keep, where they lead."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from runs import actions, tasks
from runs.driver import Slice
from runs.models import Decision, ModelProfile, Run
from runs.reading.rollback import again
from tests.cast import alice, bob, cast_member, charlie, signed_in
from tests.compacting import RIGHT, compacted_run
from tests.compacting import newest as newest_summary
from tests.families import CHILDREN, KID_SETTINGS
from tests.launching import FINAL, TOOLS, launch, script, sent, think
from tests.pages import fork_form, post_fork
from tests.running import decide, pending, transitions, work
from tests.workers import slice_of

pytestmark = [pytest.mark.django_db]


def dora() -> User:
    """She launches and decides."""
    return cast_member("dora", "operators", "reviewers")


def page(client: Client, run: Run, at: int, **more: str) -> str:
    answer = client.get(reverse("fork", args=[run.pk]), {"at": str(at), **more})
    assert answer.status_code == 200
    return answer.content.decode()


class _Fields(HTMLParser):
    """The fields of a page, with what a browser makes of their values."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: dict[str, str] = {}
        self._text, self._select = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        ticked = given.get("type") not in ("checkbox", "radio") or "checked" in given
        if tag == "input" and name and ticked:
            self.found[name] = re.sub(r"[\r\n]", "", value)
        elif tag == "textarea":
            self._text = name
            self.found[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and ("selected" in given or self._select not in self.found):
            self.found[self._select] = value

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            lines = re.split(r"\r\n|\r|\n", self.found[self._text])
            self.found[self._text] = "\r\n".join(lines[1:] if lines[0] == "" else lines)
            self._text = ""

    def handle_data(self, data: str) -> None:
        if self._text:
            self.found[self._text] += data


def as_sent(text: str) -> dict[str, str]:
    """What a browser sends of a page that nobody touched."""
    fields = _Fields()
    fields.feed(text)
    return fields.found


def newest() -> Run:
    run = Run.objects.order_by("-pk").first()
    assert run is not None
    return run


def test_the_page_says_what_stays_done_what_it_costs_and_what_people_answered() -> None:
    owner = dora()
    run = sent(owner)
    text = page(signed_in(owner), run, transitions(run, "executed")[0])
    assert "Side effects after that step stay, and may be repeated:" in text
    assert "send(to=&quot;bob&quot;)" in text
    assert "2 model calls, 240 tokens, 1 tool call" in text
    assert "Run send? — approved by the operator" in text
    assert "Nothing outside" not in text


def test_a_row_after_which_nothing_was_done_outside_says_so() -> None:
    owner = dora()
    run = sent(owner)
    text = page(signed_in(owner), run, transitions(run, "executed")[1])
    assert "No side effects after that step." in text
    assert "Answers" not in text


@pytest.mark.parametrize("on_timeout", ["deny", "approve", "abort"])
def test_what_the_deadline_answered_is_asked_again_and_nobodys_answer_to_keep(on_timeout: str) -> None:
    owner = dora()
    rule = {"when": {"tool": "send"}, "do": "ask", "deadline_s": 3600, "on_timeout": on_timeout}
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL, owner=owner, rules=[rule]))
    run.interrupts.update(deadline=timezone.now() - timedelta(seconds=1))
    tasks.sweep()
    work(run)
    assert Decision.objects.get().channel == "deadline"
    text = page(signed_in(owner), run, transitions(run, "executed")[0])
    assert "Answers" not in text


def test_an_abort_is_no_answer_that_can_be_kept() -> None:
    owner = dora()
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL, owner=owner))
    decide(run, "abort")
    text = page(signed_in(owner), run, transitions(run, "executed")[0])
    assert "Answers" not in text
    assert "aborted by" not in text


def test_what_the_launch_answered_is_kept_by_a_rollback_and_given_to_a_fork_anyhow() -> None:
    owner = dora()
    sends = (think("search", q="a"), think("send", to="bob"), think("send", to="ann"), FINAL)
    run = work(launch(*sends, owner=owner, answers=[{"verdict": "approve"}]))
    client = signed_in(owner)
    at = transitions(run, "executed")[0]
    assert "Answers" not in page(client, run, at)
    back = client.get(reverse("rewind", args=[run.pk]), {"to": str(at)}).text
    assert "approved by the launch settings" in back


@pytest.mark.parametrize("how", ["fork", "rerun"])
def test_the_page_says_what_people_did_to_the_context_that_is_not_in_the_new_run(how: str) -> None:
    owner = dora()
    run = compacted_run(owner)
    seq, at = newest_summary(run).seq, transitions(run)[-1]
    client = signed_in(owner)
    told = "Changes to the context after that step are not copied:"
    assert told not in page(client, run, at, how=how)
    actions.edit_summary(run, seq=seq, version=1, text=RIGHT, reason="A digit.", by=owner)
    actions.pin(run, path=f"su:{seq}", by=None)
    text = page(client, run, at, how=how)
    assert told in text
    assert f"step {seq}, version 2, by dora: “A digit.” (step {run.head + 1})" in text
    assert f"the summary of step {seq} by the operator (step {run.head + 2})" in text


def test_a_fork_leads_to_its_page_which_says_where_it_comes_from_with_links_both_ways() -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    client = signed_in(owner)
    answer = post_fork(client, run, at, message="What if?")
    made = newest()
    assert (answer.status_code, answer["Location"]) == (302, reverse("run", args=[made.pk]))
    assert (made.origin, made.owner, made.copied_upto) == ("fork", owner, at)
    text = client.get(reverse("run", args=[made.pk])).content.decode()
    assert f'fork of <a href="/runs/{run.pk}/?step={at}">#{run.pk} at step {at}</a>' in text
    assert reverse("compare", args=[run.pk, made.pk]) in text
    assert f"A fork, from step {at} of #{run.pk}. That run stays unchanged." in text
    assert f"#{made.pk} fork" in client.get(reverse("run", args=[run.pk])).content.decode()
    row = client.get(reverse("step", args=[made.pk, at + 1])).content.decode()
    assert "Copy of" in row


def test_an_unchanged_form_changes_nothing() -> None:
    owner = dora()
    run = sent(owner, limits={"tokens": 1234567, "cost_usd": 0.5}, max_steps=9)
    post_fork(signed_in(owner), run, transitions(run)[0])
    made = newest()
    told = json.loads(made.steps.get(seq=made.head).facts_json)[0]
    assert (told["changed"], told["state"]) == ({}, {})
    assert made.settings == run.settings


def test_state_limits_and_settings_are_changed_by_the_form() -> None:
    owner = dora()
    run = sent(owner, max_steps=9, limits={"tokens": 5000})
    post_fork(
        signed_in(owner),
        run,
        transitions(run, "executed")[0],
        **{"state-steps": "4", "tokens": "9000", "settings": '{"max_steps": 8}'},
    )
    made = newest()
    told = json.loads(made.steps.get(seq=made.head).facts_json)[0]
    assert told["state"] == {"steps": 4}
    assert told["changed"] == {"max_steps": 8, "limits": {"tokens": 9000}}
    assert made.budgets.get(name="tokens").limit == 9000


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ({"state-steps": "many"}, "This must be a whole number, not &#x27;many&#x27;."),
        ({"state-steps": "-7"}, "This must be a whole number from 0 to 1,000,000, not -7."),
        ({"state-rejections": "9999999999"}, "from 0 to 1,000,000, not 9999999999."),
        (
            {"state-metadata": '{"goal": "x", "retry_count": -1}'},
            "retry_count: This must be a whole number from",
        ),
        ({"state-metadata": "{"}, "Invalid JSON"),
        ({"state-metadata": '{"goal": 5}'}, "goal: This must be a text"),
        ({"settings": '{"max_step": 3}'}, "max_step: ruled has no setting of this name."),
        ({"settings": '{"model": "x"}'}, "model: use the field above."),
        ({"settings": "[]"}, "This must be one JSON object"),
        ({"tokens": "-1"}, "Enter a whole number of at least 0."),
        ({"cost_usd": "abc"}, "Enter an amount in dollars, such as 0.5."),
        ({"active_seconds": "soon"}, "Enter a number of seconds, such as 90."),
        ({"model": "nosuch"}, "There is no model &#x27;nosuch&#x27;"),
        ({"verdict": "edit", "args": '{"n": 1}', "sure": "yes"}, "to: send needs the argument to."),
        ({"verdict": "approve", "args": "", "sure": "yes"}, "The new arguments must be a JSON object."),
        ({"verdict": "approve", "args": "{"}, "Invalid JSON"),
        ({"verdict": "reject", "args": '{"to": "carol"}'}, "Only edit and top_up take arguments"),
        ({"said": "Not bob."}, "Choose an answer for what you typed."),
        ({"args": '{"to": "carol"}'}, "Choose an answer for what you typed."),
        ({"verdict": "respond"}, "Write the answer."),
    ],
)
def test_what_can_not_be_taken_is_said_at_its_field_and_what_was_typed_is_kept(
    typed: dict[str, str], sentence: str
) -> None:
    owner = dora()
    run = sent(owner)
    answer = post_fork(
        signed_in(owner), run, transitions(run, "executed")[0], message="Because of bob", **typed
    )
    text = answer.content.decode()
    assert answer.status_code == 422
    assert sentence in text
    assert "Not started." in text
    assert "Because of bob" in text
    assert Run.objects.count() == 1


def test_all_that_is_wrong_is_said_in_one_round() -> None:
    owner = dora()
    run = sent(owner)
    typed = {
        "cost_usd": "abc",
        "tokens": "-5",
        "state-steps": "many",
        "settings": '{"context": {"limit_tokens": "x"}, "nope": 1, "model": "x"}',
        "verdict": "edit",
        "args": "{",
        "message": "a" * 501,
    }
    form = post_fork(signed_in(owner), run, transitions(run, "executed")[0], **typed).context["form"]
    assert {place: len(form.errors[place]) for place in sorted(form.errors)} == {
        "args": 1,
        "cost_usd": 1,
        "message": 1,
        "settings": 3,
        "state-steps": 1,
        "tokens": 1,
    }
    assert list(form.errors["message"]) == ["The reason has at most 500 characters; this one has 501."]
    assert list(form.errors["settings"])[1:] == [
        "context.limit_tokens: This must be a whole number, not 'x'.",
        "nope: ruled has no setting of this name. Known: model, tools, hosts, limits, on_limit, on_clarify, "
        "interrupt_every, rules, context, cache_reads, subgraphs, answers, ruleset, max_steps, on_retries, "
        "max_rejections, cache.",
    ]
    assert {name: form[name].value() for name in typed} == typed
    assert Run.objects.count() == 1


def test_what_an_answer_lacks_is_said_together_with_what_can_not_be_read() -> None:
    owner = dora()
    run = sent(owner)
    typed = {"cost_usd": "abc", "verdict": "edit", "args": '{"to": "bob", "zzz": 1}', "sure": "yes"}
    form = post_fork(signed_in(owner), run, transitions(run, "executed")[0], **typed).context["form"]
    assert set(form.errors) == {"cost_usd", "args"}
    assert form.errors["args"] == ["zzz: send has no argument zzz; take it out."]


def test_a_value_that_can_not_be_read_is_not_reported_twice() -> None:
    owner = dora()
    run = sent(owner)
    typed = {"state-steps": "\0", "settings": "{", "active_seconds": "x"}
    form = post_fork(signed_in(owner), run, transitions(run, "executed")[0], **typed).context["form"]
    assert {name: len(errors) for name, errors in form.errors.items()} == dict.fromkeys(typed, 1)


def test_another_answer_is_given_to_the_question_that_came_next() -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    typed = {"args": '{"to": "carol"}', "said": "Not bob.", "sure": "yes"}
    post_fork(signed_in(owner), run, at, verdict="edit", **typed)
    made = work(newest())
    decision = Decision.objects.get(interrupt__run=made)
    assert (decision.verdict, decision.by_name, decision.channel) == ("edit", "dora", "fork")
    assert made.status == "succeeded"
    text = signed_in(owner).get(reverse("run", args=[made.pk])).content.decode()
    assert "by dora in advance, in the fork" in text
    assert "as before" not in text


def test_an_approval_with_other_arguments_is_an_edit_as_on_the_card() -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    post_fork(signed_in(owner), run, at, verdict="approve", args='{"to": "carol"}', sure="yes")
    decision = Decision.objects.get(interrupt__run=work(newest()))
    assert (decision.verdict, decision.args_json) == ("edit", '{"to":"carol"}')


@pytest.mark.parametrize("verdict", ["approve", "edit"])
def test_the_same_arguments_written_otherwise_are_an_approval(verdict: str) -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    post_fork(signed_in(owner), run, at, verdict=verdict, args='{ "to":\r\n"bob" }', sure="yes")
    decision = Decision.objects.get(interrupt__run=work(newest()))
    assert (decision.verdict, decision.args_json) == ("approve", None)


# --- the question that was seen -----------------------------------------------------------------------------------


def gone_back(owner: User, *replies: Any) -> tuple[Run, int, dict[str, str]]:
    """A run that has gone back while somebody approved its first question; the row, and the form as it was sent."""
    run = work(launch(think("search", q="a"), think("send", to="bob"), *replies, owner=owner, cache=False))
    at = transitions(run, "executed")[0]
    form = fork_form(run, at, verdict="approve", said="Bob may know.", sure="yes")
    actions.rewind(run, to=at, by=None)
    return work(run), at, form


def test_an_answer_is_kept_for_no_other_question_than_the_one_that_was_seen() -> None:
    owner = dora()
    run, _, form = gone_back(owner, think("send", to="eve"), FINAL)
    client = signed_in(owner)
    answer = client.post(reverse("fork", args=[run.pk]), form)
    assert (answer.status_code, Run.objects.count()) == (422, 1)
    text, now = answer.text, pending(run)
    assert f"The next question is now in step {now.seq}, not in step {form['asked']}." in text
    assert "Your answer was not recorded" in text
    assert "Bob may know." in text
    assert "&quot;to&quot;: &quot;bob&quot;" in text
    anew = as_sent(text)
    assert (anew["asked"], anew["verdict"], anew["said"]) == (str(now.seq), "", "")
    assert json.loads(anew["args"]) == {"to": "eve"}
    assert "sure" not in anew
    answer = client.post(reverse("fork", args=[run.pk]), anew | {"verdict": "approve", "sure": "yes"})
    assert answer.status_code == 302
    made = newest()
    (kept,) = json.loads(made.steps.get(seq=made.head).facts_json)[1]["answers"]
    assert (kept["question"], kept["verdict"]) == (now.fingerprint, "approve")


def test_an_answer_to_a_question_that_is_not_asked_any_more_is_not_dropped() -> None:
    owner = dora()
    run, _, form = gone_back(owner, FINAL)
    answer = signed_in(owner).post(reverse("fork", args=[run.pk]), form)
    assert (answer.status_code, Run.objects.count()) == (422, 1)
    assert f"The question in step {form['asked']} was rolled back;" in answer.text
    assert "Bob may know." in answer.text


def test_an_answer_that_names_no_question_is_not_taken() -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    answer = post_fork(signed_in(owner), run, at, verdict="approve", asked="", sure="yes")
    assert (answer.status_code, Run.objects.count()) == (422, 1)
    assert "Your answer names no question." in answer.text


# --- a second look ------------------------------------------------------------------------------------------------


def asking(owner: User, tool: str = "send", **args: str) -> tuple[Run, int]:
    """A run that asks whether it may call the tool; and a row before."""
    tools = {
        **TOOLS,
        "note": {"params": {"text": "string"}, "effects": "write", "results": [{"output": "ok"}]},
    }
    replies = (think("search", q="a"), think(tool, **args), FINAL)
    rules = [{"when": {"tool": tool}, "do": "ask"}]
    run = work(launch(played=script(*replies, tools=tools), rules=rules, owner=owner))
    return run, transitions(run, "executed")[0]


@pytest.mark.parametrize("to", ["bob", "bo\u202eb"])
def test_approving_what_does_much_or_hides_some_wants_a_second_look(to: str) -> None:
    owner = dora()
    run, at = asking(owner, to=to)
    client = signed_in(owner)
    assert as_sent(page(client, run, at)).keys().isdisjoint({"sure"})
    answer = post_fork(client, run, at, verdict="approve")
    assert (answer.status_code, Run.objects.count()) == (422, 1)
    assert "Read this call, then tick the box to approve it." in answer.text
    assert post_fork(client, run, at, verdict="reject").status_code == 302
    assert post_fork(client, run, at, verdict="approve", sure="yes").status_code == 302
    assert Decision.objects.get(interrupt__run=work(newest())).interrupt.args == {"to": to}


def test_the_form_shows_what_can_not_be_seen_and_offers_the_tick() -> None:
    owner = dora()
    run, at = asking(owner, tool="note", text="bo\u202eb")
    text = page(signed_in(owner), run, at)
    assert "Holds characters that can’t be seen: U+202E at" in text
    assert "bo\\u202eb" in text
    assert 'name="sure"' in text


def test_a_call_of_less_risk_wants_no_tick_unless_something_is_hidden_in_it() -> None:
    owner = dora()
    run, at = asking(owner, tool="note", text="plain")
    client = signed_in(owner)
    assert 'name="sure"' not in page(client, run, at)
    assert post_fork(client, run, at, verdict="approve").status_code == 302
    hidden = {"verdict": "approve", "args": '{"text": "bo\\u202eb"}'}
    answer = post_fork(client, run, at, **hidden)
    assert answer.status_code == 422
    assert 'name="sure"' in answer.text
    assert post_fork(client, run, at, **hidden, sure="yes").status_code == 302


def test_who_may_not_decide_is_not_offered_to() -> None:
    owner = alice()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    text = page(signed_in(owner), run, at)
    assert "Only a reviewer can keep answers." in text
    assert "Next question" not in text
    refused = post_fork(signed_in(owner), run, at, answers="keep")
    assert refused.status_code == 403
    assert Run.objects.count() == 1


def test_run_again_shows_no_changes_and_makes_none() -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    client = signed_in(owner)
    text = page(client, run, at, how="rerun")
    assert "then it asks the model again" in text
    assert "State after that step" not in text
    answer = client.post(reverse("fork", args=[run.pk]), as_sent(text) | {"answers": "keep"})
    assert answer.status_code == 302
    made = work(newest())
    assert (made.origin, made.status) == ("rerun", "succeeded")
    text = client.get(reverse("run", args=[made.pk])).content.decode()
    assert "run again from <a href=" in text


def test_run_again_says_why_it_can_not_and_where_that_is_put_right() -> None:
    owner = dora()
    actions.register_model(name="m", base_url="http://127.0.0.1:1/v1", model_id="m")
    run = launch(goal="x", owner=owner, model="m")
    ModelProfile.objects.filter(name="m").update(enabled=False)
    answer = signed_in(owner).post(reverse("fork", args=[run.pk]), {"at": "0", "how": "rerun"})
    assert (answer.status_code, Run.objects.count()) == (422, 1)
    assert "model: There is no model &#x27;m&#x27;" in answer.text
    assert "beside the fields" not in answer.text
    assert f'<a href="{reverse("fork", args=[run.pk])}?at=0">fork</a>' in answer.text


@pytest.mark.parametrize("at", ["999", "1"])
def test_a_row_that_can_not_be_forked_is_refused_in_a_sentence(at: str) -> None:
    owner = dora()
    run = sent(owner)
    answer = signed_in(owner).get(reverse("fork", args=[run.pk]), {"at": at})
    assert answer.status_code == 409
    assert f"Run {run.pk} has no step" in answer.content.decode() or "name a live transition" in (
        answer.content.decode()
    )


def test_who_may_not_see_or_launch_gets_no_fork() -> None:
    run = sent(dora())
    at = str(transitions(run)[0])
    assert signed_in(charlie()).get(reverse("fork", args=[run.pk]), {"at": at}).status_code == 404
    reviewer = signed_in(bob())
    assert reviewer.get(reverse("fork", args=[run.pk]), {"at": at}).status_code == 403
    assert reviewer.post(reverse("replay", args=[run.pk])).status_code == 403
    assert Client().get(reverse("fork", args=[run.pk]), {"at": at}).status_code == 302
    assert not Run.objects.exclude(origin="").exists()


@pytest.mark.parametrize("machine", ["contract", "checklist", "planned", "ruled"])
def test_the_state_of_every_machine_can_be_shown_and_sent_back_unchanged(machine: str) -> None:
    owner = dora()
    tools = {"replies": {"decision": CHILDREN[machine]}}
    run = launch(machine=machine, goal="Look", owner=owner, played=tools, **KID_SETTINGS[machine])
    work(run)
    client = signed_in(owner)
    for at in [0, *run.steps.filter(kind="transition").exclude(to="end").values_list("seq", flat=True)]:
        page(client, run, at)
        assert post_fork(client, run, at).status_code == 302
        made = newest()
        told = json.loads(made.steps.get(seq=made.head).facts_json)[0]
        assert (told["changed"], told["state"]) == ({}, {})


def test_a_text_of_several_lines_comes_back_from_a_browser_unchanged() -> None:
    owner = dora()
    outline = "\nFirst look,\r\nthen\rsay.\n"
    plan = {"outline": outline, "steps": [{"tool": "final_answer", "args": {}, "thought": "Say it"}]}
    replies = {"planner": [plan], "decision": CHILDREN["planned"]}
    run = launch(machine="planned", goal="Look", owner=owner, played={"replies": replies})
    work(run)
    at = transitions(run, "planned")[0]
    client = signed_in(owner)
    fields = as_sent(page(client, run, at))
    assert fields["state-plan_outline"].split() == outline.split()
    assert client.post(reverse("fork", args=[run.pk]), fields).status_code == 302
    made = newest()
    told = json.loads(made.steps.get(seq=made.head).facts_json)[0]
    assert (told["changed"], told["state"]) == ({}, {})


# --- replay, rollback, downloads ------------------------------------------------------------------------------------


def test_a_replay_says_that_all_rows_came_out_the_same() -> None:
    owner = dora()
    run = sent(owner)
    answer = signed_in(owner).post(reverse("replay", args=[run.pk]), follow=True)
    text = answer.content.decode()
    assert f"Replayed: all {run.head} steps of #{run.pk} match. No calls were made." in text
    assert "replay of <a href=" in text


def test_the_menu_and_the_inspector_lead_there() -> None:
    owner = dora()
    run = sent(owner)
    at = transitions(run, "executed")[0]
    client = signed_in(owner)
    text = client.get(reverse("run", args=[run.pk])).content.decode()
    for address in ("replay", "run-script", "run-test"):
        assert reverse(address, args=[run.pk]) in text
    text = client.get(reverse("step", args=[run.pk, at])).content.decode()
    assert f"{reverse('fork', args=[run.pk])}?at={at}" in text
    assert f"{reverse('run-test', args=[run.pk])}?to={at}" in text
    last = run.steps.get(to="end").seq
    assert "Fork from here" not in client.get(reverse("step", args=[run.pk, last])).content.decode()


def test_a_run_is_kept_as_a_script_and_as_a_test() -> None:
    owner = dora()
    run = sent(owner)
    client = signed_in(owner)
    told = client.get(reverse("run-script", args=[run.pk]))
    assert json.loads(told.content)["replies"]["decision"][0] == think("search", q="a")
    assert "attachment" in told["Content-Disposition"]
    whole = client.get(reverse("run-script", args=[run.pk]), {"with": "settings"})
    assert json.loads(whole.content)[0]["settings"]["answers"][0]["verdict"] == "approve"
    test = client.get(reverse("run-test", args=[run.pk]), {"to": "3"})
    assert f'filename="test_run_{run.pk}_row_3.py"' in test["Content-Disposition"]
    compile(test.content.decode(), "test", "exec")
    assert signed_in(charlie()).get(reverse("run-test", args=[run.pk])).status_code == 404


def test_a_rollback_page_says_what_it_costs_and_can_keep_the_answers() -> None:
    owner = dora()
    sends = [think("send", to="bob")] * 3
    run = work(launch(think("search", q="a"), *sends, FINAL, owner=owner, cache=False))
    decide(run, "approve")
    work(run)
    at = transitions(run, "executed")[0]
    client = signed_in(owner)
    text = client.get(reverse("rewind", args=[run.pk]), {"to": str(at)}).content.decode()
    assert "Estimated to add" in text
    assert "Keep the answers" in text
    client.post(reverse("rewind", args=[run.pk]), as_sent(text) | {"answers": "keep"})
    run.refresh_from_db()
    work(run)
    assert Decision.objects.get(interrupt__run=run, channel="kept").by_name == "dora"
    assert run.status == "succeeded"


# --- what was told before has changed since -------------------------------------------------------------------------


def waiting_to_send_again(owner: User) -> tuple[Run, int]:
    """A run that was let send once and asks before it does so again; and the row before both."""
    sends = [think("send", to="bob"), think("send", to="eve")] * 3
    run = work(launch(think("search", q="a"), *sends, FINAL, owner=owner, cache=False))
    decide(run, "approve")
    return work(run), transitions(run, "executed")[0]


def rolled_back(client: Client, run: Run, fields: dict[str, str]) -> Any:
    answer = client.post(reverse("rewind", args=[run.pk]), fields)
    run.refresh_from_db()
    return answer


def test_a_rollback_is_confirmed_once_for_what_its_page_told() -> None:
    owner = dora()
    run, at = waiting_to_send_again(owner)
    client = signed_in(owner)
    text = client.get(reverse("rewind", args=[run.pk]), {"to": str(at)}).text
    assert text.count("<code>send(") == 1
    fields = as_sent(text) | {"answers": "keep", "note": "Not <so>."}
    assert rolled_back(client, run, fields).status_code == 302
    work(run)
    sends, before = run.exchanges.filter(kind="tool_call").count(), run.head

    answer = rolled_back(client, run, fields)
    assert (answer.status_code, run.head) == (409, before), "what was sent again was never told"
    assert "have changed since you read them" in answer.text
    assert answer.text.count("<code>send(") == 2
    anew = as_sent(answer.text)
    assert (anew["answers"], anew["note"]) == ("keep", "Not <so>.")
    assert anew["seen"] != fields["seen"]
    assert rolled_back(client, run, anew).status_code == 302
    work(run)
    assert run.exchanges.filter(kind="tool_call").count() == sends + 1


def test_a_rollback_that_does_not_say_what_its_page_told_is_not_made() -> None:
    owner = dora()
    run, at = waiting_to_send_again(owner)
    answer = rolled_back(signed_in(owner), run, {"to": str(at), "answers": "keep"})
    assert (answer.status_code, run.steps.filter(kind="rewind").count()) == (409, 0)


@pytest.mark.parametrize("deed", ["decided", "went back", "pinned"])
def test_what_somebody_did_since_is_told_before_going_back(deed: str) -> None:
    owner = dora()
    run, at = waiting_to_send_again(owner)
    client = signed_in(owner)
    fields = as_sent(client.get(reverse("rewind", args=[run.pk]), {"to": str(at)}).text)
    match deed:
        case "decided":
            decide(run, "reject", message="No.")
        case "went back":
            actions.rewind(run, to=transitions(run)[-1], by=None)
        case "pinned":
            actions.pin(run, path=f"st:{at}", by=None)
    run.refresh_from_db()
    before = run.head
    answer = rolled_back(client, run, fields)
    assert (answer.status_code, run.head) == (409, before)
    assert rolled_back(client, run, as_sent(answer.text)).status_code == 302


def test_a_run_that_only_moves_on_is_gone_back_with_by_the_page_that_was_seen() -> None:
    owner = dora()
    looks = [think("search", q=text) for text in "bcdefghij"]
    run = work(launch(think("search", q="a"), think("send", to="bob"), *looks, FINAL, owner=owner))
    decide(run, "approve")
    slice_of(run, Slice(moves=6))
    at, before = transitions(run, "executed")[0], again(run, 0).model_calls
    client = signed_in(owner)
    fields = as_sent(client.get(reverse("rewind", args=[run.pk]), {"to": str(at)}).text)
    slice_of(run, Slice(moves=6))
    assert again(run, 0).model_calls > before
    assert rolled_back(client, run, fields).status_code == 302


@pytest.mark.parametrize("how", ["fork", "rerun"])
def test_a_new_run_is_not_begun_from_a_page_that_did_not_tell_what_was_done_since(how: str) -> None:
    owner = dora()
    run, at = waiting_to_send_again(owner)
    client = signed_in(owner)
    fields = as_sent(page(client, run, at, how=how)) | {"message": "Another <way>.", "answers": "keep"}
    if how == "fork":
        fields |= {"tokens": "7777"}
    decide(run, "approve")
    work(run)
    answer = client.post(reverse("fork", args=[run.pk]), fields)
    assert (answer.status_code, Run.objects.count()) == (409, 1)
    assert "Not started." in answer.text
    assert "have changed since you read them" in answer.text
    assert answer.text.count("<code>send(") == 2
    anew = as_sent(answer.text)
    changed = {name for name in fields if anew[name] != fields[name]}
    assert changed <= {"csrfmiddlewaretoken", "seen"} and "seen" in changed
    assert client.post(reverse("fork", args=[run.pk]), anew).status_code == 302
    assert newest().origin == how
