"""After a restore every unfinished run is paused; somebody looks, and lets the chosen ones go on, each once."""

from __future__ import annotations

import html
import io
import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentsite.restoring import UNKNOWN
from runs import actions, store, tasks
from runs.adapters.secrets import seal
from runs.adapters.tool import Arguments, NotHappened, Result, Tool
from runs.adapters.toolbox import Toolbox
from runs.adapters.tools import TOOLS
from runs.driver import Slice
from runs.engine.facts import Paused
from runs.models import Interrupt, ModelProfile, Run
from runs.reading import restored as reading
from runs.reading.again import again
from runs.reading.cards import card_of
from runs.reading.restored import RestoredRun, all_restored
from runs.store import backups
from runs.store.appending import append
from tests.factories import cast_member, signed_in
from tests.runs.running import (
    ALLOW,
    FINAL,
    SEARCH,
    SEND,
    _every_run_verifies,
    decide,
    die_in,
    in_threads,
    kill,
    kinds,
    launch,
    pending,
    person,
    script,
    slice_of,
    stranger,
    think,
    work,
)

pytestmark = [pytest.mark.database]

__all__ = ["_every_run_verifies"]

PAGE = "/runs/restored/"
AGAIN = "it waits for the answer. It may have been answered, and done, since the backup was made."


def alice() -> User:
    """She launches runs."""
    return person("alice", "add_run")


def bob() -> User:
    """He sees all runs and decides."""
    return person("bob", "view_run", "decide_interrupt")


def charlie() -> User:
    """He sees a run of his own."""
    return stranger("charlie")


def restore() -> int:
    """What a restore does to the runs that it brings back."""
    return backups.pause_unfinished("Restored from a backup.")


def uncertain(**parts: Any) -> Run:
    """A run whose worker was lost in the middle of a deed."""
    played = script(think("send", to="bob"), FINAL, tools={"send": SEND | parts.pop("tool", {})})
    run = launch(played=played, rules=ALLOW, **parts)
    die_in(run, before=kill, only="send")
    return run


def seen(run: Run) -> RestoredRun:
    return next(one for one in all_restored(None) if one.run.pk == run.pk)


def status_of(*runs: Run) -> list[str]:
    return [Run.objects.get(pk=run.pk).status for run in runs]


def root() -> Client:
    """The administrator's browser."""
    return signed_in(cast_member("root", is_superuser=True, is_staff=True))


def boxes(page: str) -> dict[int, bool]:
    """The boxes of the form: each run, and whether it is ticked."""
    found = re.findall(r'<input class="held__box"[^>]*value="(\d+)"[^>]*>', page)
    whole = re.findall(r'<input class="held__box"[^>]*>', page)
    return {int(number): " checked" in box for number, box in zip(found, whole, strict=True)}


# --- letting them go on -------------------------------------------------------------------------------------------


def test_the_chosen_ones_go_on_and_the_others_stay() -> None:
    chosen, other = [launch(FINAL) for _ in range(3)], launch(FINAL)
    restore()
    done = actions.resume_restored([run.pk for run in chosen], by=None)
    assert [run.pk for run in done.resumed] == [run.pk for run in chosen]
    assert done.passed_over == ()
    for run in chosen:
        assert work(run).status == "succeeded"
        assert kinds(run)[:2] == ["pause", "pause"]
    assert status_of(other) == ["paused"]


def test_who_was_moved_on_meanwhile_is_passed_over_with_a_sentence() -> None:
    resumed, aborted, paused, fine = (launch(FINAL) for _ in range(4))
    restore()
    actions.resume(resumed, by=None)
    actions.abort(aborted, by=None)
    actions.resume(paused, by=None)
    actions.pause(paused, by=None)
    heads = [Run.objects.get(pk=run.pk).head for run in (resumed, aborted, paused)]
    everyone = [resumed.pk, aborted.pk, paused.pk, fine.pk, fine.pk, 999_999]
    done = actions.resume_restored(everyone, by=None)
    assert [run.pk for run in done.resumed] == [fine.pk]
    assert done.passed_over == (
        f"Run {resumed.pk} goes on already (queued).",
        f"Run {aborted.pk} has ended already (cancelled: aborted).",
        f"Run {paused.pk} is paused by somebody, and no longer by the restore.",
        "There is no run 999999.",
    )
    assert [Run.objects.get(pk=run.pk).head for run in (resumed, aborted, paused)] == heads
    assert status_of(paused) == ["paused"]


def test_two_people_at_once_resume_each_run_once() -> None:
    runs = [launch(FINAL) for _ in range(4)]
    restore()
    numbers = [run.pk for run in runs]
    dones = in_threads(3, lambda number: actions.resume_restored(numbers, by=None))
    assert sorted(run.pk for done in dones for run in done.resumed) == sorted(numbers)
    assert sum(len(done.passed_over) for done in dones) == 8
    for run in runs:
        assert kinds(run) == ["pause", "pause"]


def test_only_what_is_yours_goes_on_and_what_you_may_not_see_is_not_there() -> None:
    owner, reviewer, other = alice(), bob(), charlie()
    hers, somebodys = launch(FINAL, owner=owner), launch(FINAL)
    restore()
    both = [hers.pk, somebodys.pk]
    assert actions.resume_restored(both, by=other).passed_over == tuple(
        f"There is no run {number}." for number in both
    )
    assert actions.resume_restored(both, by=reviewer).passed_over == tuple(
        f"Run {number} is not yours to steer." for number in both
    )
    done = actions.resume_restored(both, by=owner)
    assert [run.pk for run in done.resumed] == [hers.pk]
    assert done.passed_over == (f"There is no run {somebodys.pk}.",)
    assert status_of(somebodys) == ["paused"]
    assert hers.steps.latest("seq").facts_json == '[{"kind":"run.resumed","by":"alice"}]'


def test_a_run_that_could_not_be_let_go_on_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    locked, fine = launch(FINAL), launch(FINAL)
    restore()
    resume = store.resume_restored

    def resumed(run_id: int, by: str) -> Run:
        if run_id == locked.pk:
            raise OperationalError("canceling statement due to lock timeout")
        return resume(run_id, by)

    monkeypatch.setattr(store, "resume_restored", resumed)
    done = actions.resume_restored([locked.pk, fine.pk], by=None)
    assert [run.pk for run in done.resumed] == [fine.pk]
    assert done.passed_over == (f"Run {locked.pk} could not be resumed. Try again.",)
    assert status_of(locked, fine) == ["paused", "queued"]


def test_a_run_of_a_machine_that_is_gone_does_not_keep_the_others() -> None:
    gone, fine = launch(FINAL), launch(FINAL)
    restore()
    Run.objects.filter(pk=gone.pk).update(machine="older")
    done = actions.resume_restored([gone.pk, fine.pk], by=None)
    assert [run.pk for run in done.resumed] == [fine.pk]
    assert done.passed_over == (f"Run {gone.pk} is of the machine older, which is not here any more.",)
    Run.objects.filter(pk=gone.pk).update(machine="ruled")


def test_who_waits_goes_on_waiting_and_what_may_have_happened_is_asked() -> None:
    waiting, deed = work(launch(think("send", to="bob"), FINAL)), uncertain()
    restore()
    actions.resume_restored([waiting.pk, deed.pk], by=None)
    assert status_of(waiting, deed) == ["waiting", "queued"]
    assert work(deed).interrupts.get().kind == "may_have_happened"


def during_send(**parts: Any) -> Run:
    """A run in whose call a backup was made, from which the site is restored."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW, **parts)
    die_in(run, before=kill, only="send")
    restore()
    actions.resume(run, by=None)
    return run


RESTORED = (
    "This site was restored from a backup that was made after send had begun, "
    "and before anybody had heard how it ended."
)


def test_a_call_in_whose_middle_the_backup_was_made_is_asked_about_with_that_cause() -> None:
    run = work(during_send())
    assert pending(run).kind == "may_have_happened"
    assert pending(run).why == f"{RESTORED} Calling it twice may do harm."
    decide(run, "respond", message="it was sent")
    assert work(run).status == "succeeded"
    assert actions.replay(run, by=None)[1] is None


def test_a_worker_that_was_lost_after_the_restore_is_the_cause() -> None:
    """The run stood before the call; the call was begun afterwards."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    slice_of(run, after=lambda: actions.halt_site(by=None, reason="x") and None, only="decision")
    actions.unhalt_site(by=None)
    restore()
    actions.resume(run, by=None)
    die_in(run, before=kill, only="send")
    assert pending(work(run)).why.startswith("The worker was lost or stopped while send ran,")


def test_a_call_that_did_not_happen_says_that_a_restore_had_it_made_anew() -> None:
    run = during_send()
    slice_of(run, far_side=NotHappened.FOR_SURE)
    (anew,) = run.steps.filter(kind="ask", facts_json__contains="not_happened")
    assert (
        "This site was restored from a backup, and send says that the call did not happen." in anew.facts_json
    )
    assert run.status == "succeeded"


def test_the_page_of_a_run_that_the_restore_paused_says_so_and_what_it_means() -> None:
    client, run = root(), launch(FINAL)
    backups.pause_unfinished(why := f"Restored from a backup of 2026-11-28 07:25:00 UTC. {UNKNOWN}")
    page = html.unescape(client.get(f"/runs/{run.pk}/").text)
    assert f"<strong>Paused by the restore.</strong> {why} Resume the run from the menu above." in page
    assert f"by the restore — “{why}”" in page
    actions.resume(run, by=None)
    assert "<strong>Paused" not in client.get(f"/runs/{run.pk}/").text
    actions.pause(run, by=None)
    assert "<strong>Paused.</strong> Resume the run" in client.get(f"/runs/{run.pk}/").text


# --- what each was about to do ------------------------------------------------------------------------------------


def test_what_may_have_happened_comes_first_and_is_held() -> None:
    plain, deed = launch(FINAL), uncertain()
    keyed = uncertain(tool={"idempotent": True})
    restore()
    found = list(all_restored(None))
    assert [one.run.pk for one in found] == [deed.pk, keyed.pk, plain.pk]
    assert [one.may_have_happened for one in found] == [True, True, False]
    assert [one.hold for one in found] == ['send(to="bob") may have happened'] * 2 + [""]
    assert found[0].at.word.text == "May have happened" and found[0].at.then == A_PERSON
    assert "same key" in found[1].at.then
    assert found[0].at.effects is not None and found[0].at.effects.text == "sends"


class Nothing(Arguments):
    """It takes no arguments."""


BLIND = Tool("send", "Sends.", Nothing, "send", False, 10.0, lambda *_: Result("sent"))
TELLS = replace(BLIND, happened=lambda *_: None)
A_PERSON = "a person is asked whether it happened: the tool has no way to tell."


@pytest.mark.parametrize(
    ("tool", "played_by", "told"),
    [
        (TELLS, "nobody", "the tool is asked whether it happened; where it can’t tell, a person is."),
        (BLIND, "nobody", A_PERSON),
        (TELLS, "the script", A_PERSON),
    ],
)
def test_who_is_asked_about_a_call_that_may_have_happened_is_said_for_the_tools_kind(
    tool: Tool, played_by: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that a script plays can't tell, whatever is registered under its name."""
    monkeypatch.setattr(reading, "TOOLS", {"send": tool})
    run = uncertain()
    restore()
    one, script_id = Run.objects.filter(pk=run.pk), Run.objects.get(pk=run.pk).script_id
    one.update(script=script_id if played_by == "the script" else None)
    assert seen(run).at.then == told
    one.update(script=script_id)


def test_each_says_where_it_stands_and_what_it_does_next() -> None:
    asking = work(launch(think("send", to="bob"), FINAL))
    approved = work(launch(think("send", to="bob"), FINAL))
    decide(approved, "edit", args={"to": "eve"})
    refused = work(launch(think("send", to="bob"), FINAL))
    decide(refused, "reject", message="no")
    limited = work(launch(FINAL, limits={"cost_usd": 0}))
    fresh = launch(FINAL)
    inner = {"replies": {"decision": [think("send", to="bob"), FINAL]}}
    played = script(think("agent.inner", goal="Ask bob"), FINAL, subgraphs={"inner": inner})
    parent = work(launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}}))
    unread, kept = launch("no JSON", FINAL), launch("no JSON", FINAL)
    die_in(unread, before=lambda: kill() if unread.exchanges.exists() else None)
    with pytest.raises(store.Fenced):
        slice_of(kept, before=lambda: kept.exchanges.exists() and actions.pause(kept, by=None))
    actions.resume(kept, by=None)
    begun = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    slice_of(begun, after=lambda: actions.halt_site(by=None, reason="x") and None, only="decision")
    actions.unhalt_site(by=None)
    restore()
    told = {
        "asking": (asking, "Approval", 'send(to="bob")', AGAIN),
        "approved": (approved, "Approved with changes", 'send(to="eve")', "it makes this call."),
        "refused": (refused, "Rejected", 'send(to="bob")', "it does what was answered."),
        "limited": (limited, "Limit", "", AGAIN),
        "fresh": (fresh, "Between steps", "", "it goes on from there."),
        "parent": (parent, "Waits for a child", "", "it waits on."),
        "unread": (unread, "Next", "", "it asks, and pays, again."),
        "kept": (kept, "Answered", "", "it goes on with the answer."),
        "begun": (begun, "Next", 'send(to="bob")', "it makes this call."),
    }
    for run, word, code, then in told.values():
        one = seen(run)
        at = one.at
        assert (at.word.text, at.code, at.then) == (word, code, then)
        at_once = f"it makes {code} next, and may have made that call since the backup"
        assert one.hold == (at_once if then == "it makes this call." else "")
    assert seen(limited).at.text == "Cost limit reached: $0.00 of $0.00 used"
    order = [one.run.pk for one in all_restored(None)]
    assert set(order[:3]) == {approved.pk, refused.pk, begun.pk}  # they would act at once


def test_a_child_that_a_person_let_start_or_gave_another_goal_says_so() -> None:
    helper = {"machine": "ruled", "settings": {}}
    rules = [{"when": {"tool": "agent.*"}, "do": "ask"}]
    played = script(think("agent.x", goal="look"), FINAL, subgraphs={"x": {"replies": {"decision": [FINAL]}}})
    asking, approved, edited = (
        work(launch(played=played, rules=rules, subgraphs={"x": helper})) for _ in range(3)
    )
    decide(approved, "approve")
    decide(edited, "edit", args={"goal": "other"})
    restore()
    told = {
        asking: ("Approval", 'agent.x(goal="look")', AGAIN),
        approved: ("Approved", 'agent.x(goal="look")', "it makes this call."),
        edited: ("Approved with changes", 'agent.x(goal="other")', "it makes this call."),
    }
    for run, (word, code, then) in told.items():
        at = seen(run).at
        assert (at.word.text, at.code, at.then) == (word, code, then)
    assert root().get(PAGE).status_code == 200
    call_command("resume", "--restored", stdout=io.StringIO())
    assert work(edited).status == "succeeded"
    assert edited.children.get().goal == "other"


UNASKED = "it may call send unasked, and may have done so since the backup"
SENDING = script(think("send", to="bob"), FINAL, tools={"send": SEND})


@pytest.mark.parametrize(
    ("parts", "hold"),
    [
        ({"rules": ALLOW}, UNASKED),
        ({"rules": [{"when": {"effects": ["send"]}, "do": "notify"}]}, UNASKED),
        ({"rules": [{"when": {"tool": "send", "args": {"to": {"equals": "bob"}}}, "do": "allow"}]}, UNASKED),
        ({"answers": [{"verdict": "approve"}]}, UNASKED),
        ({"subgraphs": {"inner": {"machine": "ruled", "settings": {"rules": ALLOW}}}}, ""),
        ({}, ""),
        ({"answers": [{"verdict": "reject"}]}, ""),
        ({"rules": [{"when": {"tool": "send"}, "do": "deny"}, *ALLOW]}, ""),
        ({"rules": [{"when": {"tool": "send"}, "do": "ask"}, *ALLOW]}, ""),
        ({"rules": [{"when": {"tool": "note"}, "do": "allow"}]}, ""),
    ],
)
def test_a_run_that_may_act_unasked_is_held_before_it_has_come_to_that(
    parts: dict[str, Any], hold: str
) -> None:
    """What it did after the backup its log does not have; it would do it again."""
    run = launch(played=SENDING, **parts)
    restore()
    assert seen(run).hold == hold
    page = html.unescape(root().get(PAGE).text)
    assert boxes(page) == {run.pk: not hold}
    assert re.findall(r"Not ticked: (.*)\.</strong>", page) == [hold] * bool(hold)


def test_a_run_whose_child_may_act_unasked_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toolbox.__init__, "__defaults__", ({**TOOLS, "send": BLIND}, (), ()))
    helper = {"machine": "ruled", "settings": {"tools": ["send"], "rules": ALLOW}}
    run = launch(FINAL, subgraphs={"inner": helper})
    restore()
    assert seen(run).hold == UNASKED


def test_a_tool_that_knows_a_second_call_by_its_key_holds_nobody() -> None:
    keyed = script(think("send", to="bob"), FINAL, tools={"send": SEND | {"idempotent": True}})
    run = launch(played=keyed, rules=ALLOW)
    restore()
    assert not seen(run).hold


def test_who_was_paused_before_is_held_and_named() -> None:
    owner = alice()
    mine, resumed, plain = (launch(FINAL, owner=owner) for _ in range(3))
    actions.pause(mine, by=owner)
    actions.pause(resumed, by=owner)
    actions.resume(resumed, by=owner)
    restore()
    restore()
    assert [seen(run).hold for run in (mine, resumed, plain)] == ["alice had paused it before", "", ""]


def test_a_run_that_was_moved_while_it_was_paused_is_still_paused_by_the_restore() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    restore()
    decide(run, "approve")
    assert seen(run).at.then == "it makes this call."
    actions.resume_restored([run.pk], by=None)
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_the_number_of_questions_to_the_database_does_not_grow_with_the_runs() -> None:
    client = root()
    counts = []
    for _ in range(2):
        for _ in range(3):
            launch(FINAL)
            uncertain()
        restore()
        with CaptureQueriesContext(connection) as queries:
            assert client.get(PAGE).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]


# --- the page -----------------------------------------------------------------------------------------------------


def test_the_list_of_runs_says_how_many_and_leads_there() -> None:
    client = root()
    launch(FINAL)
    assert "paused by the restore" not in client.get("/runs/").text
    launch(FINAL)
    restore()
    page = client.get("/runs/").text
    assert "2 runs are paused by the restore." in page
    assert f'href="{PAGE}"' in page
    actions.resume_restored(list(Run.objects.values_list("pk", flat=True)), by=None)
    assert "paused by the restore" not in client.get("/runs/").text
    assert "No run is paused by the restore" in client.get(PAGE).text


def test_all_boxes_are_ticked_but_those_of_runs_to_look_at() -> None:
    plain, waiting, deed, hers = (
        launch(FINAL),
        work(launch(think("send", to="bob"), FINAL)),
        uncertain(),
        launch(FINAL),
    )
    actions.pause(hers, by=None)
    restore()
    page = root().get(PAGE).text
    assert boxes(page) == {plain.pk: True, waiting.pk: True, deed.pk: False, hers.pk: False}
    assert next(iter(boxes(page))) == deed.pk
    assert "Resume <span data-chosen>these 2 runs</span>" in page
    assert all(
        f"Not ticked: {why}." in html.unescape(page)
        for why in ('send(to="bob") may have happened', "the operator had paused it before")
    )


def test_a_run_whose_model_can_not_be_called_is_not_ticked_and_says_what_to_do() -> None:
    gone, fine, locked, off = (model_run(name) for name in ("gone", "fine", "locked", "off"))
    ModelProfile.objects.filter(name="gone").delete()
    ModelProfile.objects.filter(name="locked").update(sealed_key=seal("sk-1", "the key before the restore"))
    ModelProfile.objects.filter(name="off").update(enabled=False)
    restore()
    page = html.unescape(root().get(PAGE).text)
    assert boxes(page) == {gone.pk: False, fine.pk: True, locked.pk: False, off.pk: False}
    assert "it would end as failed: The model 'locked' can't be called. The stored secret" in page
    assert "Enter the secret again, or bring the old secret key back." in page
    for name in ("gone", "off"):
        assert f"it would end as failed: There is no model '{name}' here, or it is switched off." in page
    out = io.StringIO()
    call_command("resume", "--restored", stdout=out)
    assert "Resumed: 1." in out.getvalue()
    assert f"Run {locked.pk} stays paused: it would end as failed: The model 'locked'" in out.getvalue()
    assert status_of(gone, fine, locked, off) == ["paused", "queued", "paused", "paused"]


def model_run(name: str) -> Run:
    """A run that asks a model of the site."""
    actions.register_model(name=name, base_url="http://127.0.0.1:1/v1", model_id="m", api_key="sk-1")
    return actions.start_run(machine="ruled", goal="x", settings={"model": name}, owner=None)


def test_posting_resumes_the_chosen_ones_and_says_how_many_and_why_not() -> None:
    client = root()
    chosen, left, gone = launch(FINAL), uncertain(), launch(FINAL)
    restore()
    actions.abort(gone, by=None)
    answer = client.post(PAGE, {"run": [str(chosen.pk), str(gone.pk)]}, follow=True)
    assert answer.redirect_chain == [(PAGE, 302)]
    assert "Resumed: 1." in answer.text
    assert f"Not resumed: 1. Run {gone.pk} has ended already" in answer.text
    assert status_of(chosen, left, gone) == ["queued", "paused", "cancelled"]
    twice = client.post(PAGE, {"run": [str(chosen.pk)]}, follow=True)
    assert f"Not resumed: 1. Run {chosen.pk} goes on already (queued)." in twice.text
    assert kinds(chosen) == ["pause", "pause"]


def test_looking_resumes_nothing_and_a_post_needs_a_choice_and_the_pages_token() -> None:
    run = launch(FINAL)
    restore()
    client = root()
    client.get(f"{PAGE}?run={run.pk}")
    empty = client.post(PAGE, {"run": ["x", "", "-1"]})
    assert empty.status_code == 400 and "No run is chosen" in empty.text
    strict = signed_in(cast_member("other", is_superuser=True), csrf=True)
    assert strict.post(PAGE, {"run": [str(run.pk)]}).status_code == 403
    assert Client().get(PAGE)["Location"].startswith("/sign-in/?next=")
    assert status_of(run) == ["paused"]


def test_everybody_sees_their_own_part() -> None:
    owner, reviewer, other = alice(), bob(), charlie()
    hers, somebodys = launch(FINAL, owner=owner), launch(FINAL)
    restore()
    assert boxes(signed_in(owner).get(PAGE).text) == {hers.pk: True}
    page = signed_in(reviewer).get(PAGE).text
    assert boxes(page) == {hers.pk: False, somebodys.pk: False}
    assert "you may not resume it" in page and "data-chosen" not in page
    assert boxes(signed_in(other).get(PAGE).text) == {}
    assert "paused by the restore." not in signed_in(other).get("/runs/").text
    answer = signed_in(reviewer).post(PAGE, {"run": [str(hers.pk)]}, follow=True)
    assert f"Run {hers.pk} is not yours to steer." in answer.text
    assert status_of(hers, somebodys) == ["paused", "paused"]


def test_many_runs_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.views.restored.AT_ONCE", 2)
    runs = [launch(FINAL) for _ in range(5)]
    restore()
    client = root()
    first, last = client.get(PAGE).text, client.get(f"{PAGE}?page=3").text
    assert list(boxes(first)) == [runs[0].pk, runs[1].pk]
    assert list(boxes(last)) == [runs[4].pk]
    assert "5 runs" in first and "Page 1 of 3" in first
    assert list(boxes(client.get(f"{PAGE}?page=nonsense").text)) == list(boxes(first))


def test_what_a_run_says_hurts_nobody() -> None:
    run = launch(think("send", to="<img src=x>\u202e"), FINAL, rules=ALLOW)
    die_in(run, before=kill, only="send")
    restore()
    page = root().get(PAGE).text
    assert "&lt;img src=x&gt;" in page and "<img src=x" not in page and "\u202e" not in page


# --- the command --------------------------------------------------------------------------------------------------


def told(*words: str) -> list[str]:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue().splitlines()


def test_the_command_resumes_them_says_where_each_is_and_which_ones_stay() -> None:
    plain, deed, waiting, mine, out = (
        launch(FINAL),
        uncertain(),
        work(launch(think("send", to="bob"), FINAL)),
        launch(FINAL),
        launch(FINAL),
    )
    actions.pause(mine, by=None)
    restore()
    lines = told("resume", "--restored", "--except", str(out.pk))
    waiting.refresh_from_db()
    assert lines == [
        f"Run {plain.pk}: queued, at {plain.node}, step 2.",
        f"Run {waiting.pk}: waiting, at {waiting.node}, step {waiting.head}.",
        "Resumed: 2.",
        f'Run {deed.pk} stays paused: send(to="bob") may have happened. Check outside first, then: '
        f"manage.py resume {deed.pk}",
        f"Run {mine.pk} stays paused: the operator had paused it before. Check outside first, then: "
        f"manage.py resume {mine.pk}",
        f"Run {out.pk} stays paused: left out. Check outside first, then: manage.py resume {out.pk}",
    ]
    assert status_of(plain, deed, waiting, mine, out) == ["queued", "paused", "waiting", "paused", "paused"]
    assert told("resume", "--restored")[:2] == [
        f"Run {out.pk}: queued, at {out.node}, step 2.",
        "Resumed: 1.",
    ]
    deed.refresh_from_db()
    assert told("resume", str(deed.pk)) == [f"Run {deed.pk}: queued, at {deed.node}, step {deed.head + 1}."]


def test_who_had_asked_whether_a_call_happened_waits_on_for_the_answer() -> None:
    """Of what it does unasked after that the command tells; who names it lets it wait on."""
    run = work(uncertain())
    restore()
    assert told("resume", "--restored") == [
        "Resumed: 0.",
        f"Run {run.pk} stays paused: it may call send unasked, and may have done so since the backup. "
        f"Check outside first, then: manage.py resume {run.pk}",
    ]
    told("resume", str(run.pk))
    assert (pending(run).kind, work(run).status) == ("may_have_happened", "waiting")


def test_the_command_says_what_it_needs() -> None:
    run = launch(FINAL)
    number = str(run.pk)
    for words, said in (
        (("resume",), "Name a run, or say --restored; not both."),
        (("resume", number, "--restored"), "Name a run, or say --restored; not both."),
        (("resume", number, "--except", number), "--except goes with --restored."),
        (("resume", "--restored", "--except", "999999"), "There is no run 999999."),
    ):
        with pytest.raises(CommandError, match=re.escape(said)) as caught:
            told(*words)
        assert caught.value.returncode == 2
    assert told("resume", "--restored") == ["Resumed: 0."]
    assert run.steps.count() == 0


def test_what_is_shown_of_a_run_is_what_it_asked() -> None:
    """The exchange is that of the run's own last move, where several runs stand at the same row."""
    one, other = (work(launch(think("send", to=name), FINAL)) for name in ("bob", "eve"))
    restore()
    assert [seen(run).at.code for run in (one, other)] == ['send(to="bob")', 'send(to="eve")']


# --- what was asked before the backup -----------------------------------------------------------------------------

DOUBT = (
    "This site was restored from the backup of 28 Nov, 07:25 UTC. "
    "This may have been answered, and done, since then."
)
UNKNOWN_SINCE = (
    "This site was restored from the backup of 28 Nov, 07:25 UTC. What was done between that and the restore is not "
    "in the log: calls that change something may have happened, stay done, and may be made again."
)
NOTE = {
    "params": {"text": "string"},
    "required": ["text"],
    "effects": "write",
    "results": [{"output": "noted"}],
}
ASK = [{"when": {"tool": "*"}, "do": "ask"}]


def restore_of(made_at: str) -> int:
    """A restore of a backup of that time, whatever its words say."""
    return backups.pause_unfinished("Put back.", datetime.fromisoformat(f"{made_at}+00:00"))


def restored_by_an_earlier_version(run: Run, made_at: str) -> None:
    """Pause the run as a version did whose row has the time in its words only."""
    why = f"Restored from a backup of {made_at} UTC. What came after it is not known."
    append(run, "pause", (Paused(by="the restore", message=why),), status="paused")


def asking(text: str = "hello") -> Run:
    """A run that asks whether it may do something of no high risk."""
    played = script(think("note", text=text), think("note", text="second"), FINAL, tools={"note": NOTE})
    return work(launch(played=played, rules=ASK))


def pages_with(run: Run, client: Client) -> list[str]:
    """Every page that shows the question that the run waits for."""
    question = pending(run)
    addresses = [
        f"/runs/{run.pk}/",
        reverse("interrupt", args=[question.pk]),
        "/needs-you/",
        reverse("admin:runs_interrupt_change", args=[question.pk]),
        f"{reverse('fork', args=[run.pk])}?at=0",
    ]
    return [client.get(address).text for address in addresses]


def test_what_was_asked_before_the_backup_says_everywhere_that_it_may_be_done() -> None:
    run, client = asking(), root()
    assert all("was restored from" not in page for page in pages_with(run, client))
    restore_of("2026-11-28 07:25:00")
    assert [page.count(DOUBT) for page in pages_with(run, client)] == [1, 1, 1, 1, 1]


def test_it_says_so_after_the_run_was_resumed_too_and_of_a_later_call_that_changes_something() -> None:
    """It goes the way that it may have gone already."""
    run = asking()
    restore_of("2026-11-28 07:25:00")
    store.resume_restored(run.pk, "root")
    assert card_of(pending(run), None).doubt == DOUBT
    decide(run, "approve")
    work(run)
    assert pending(run).args == {"text": "second"}
    *own, fork_at_the_first = pages_with(run, root())
    assert [page.count(DOUBT) for page in own] == [1, 1, 1, 1]
    assert DOUBT not in fork_at_the_first


def test_of_two_restores_the_older_backup_counts() -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    restore_of("2026-12-01 09:00:00")
    assert card_of(pending(run), None).doubt == DOUBT


def test_a_restore_by_an_earlier_version_tells_the_time_in_its_words() -> None:
    run = asking()
    restored_by_an_earlier_version(run, "2026-11-28 07:25:00")
    assert card_of(pending(run), None).doubt == DOUBT
    assert [one.run.pk for one in all_restored(None)] == [run.pk]


def test_a_pause_by_a_person_with_the_words_of_a_restore_raises_no_doubt() -> None:
    run = asking()
    actions.pause(run, by=None, message="Restored from a backup of 2026-11-28 07:25:00 UTC.")
    assert card_of(pending(run), None).doubt == ""
    assert list(all_restored(None)) == []


@pytest.mark.parametrize("effects", ["read", "none"])
def test_a_later_call_that_changes_nothing_is_in_no_doubt(effects: str) -> None:
    played = script(think("note", text="hello"), FINAL, tools={"note": NOTE | {"effects": effects}})
    run = launch(played=played, rules=ASK)
    restore_of("2026-11-28 07:25:00")
    store.resume_restored(run.pk, "root")
    work(run)
    assert card_of(pending(run), None).doubt == ""


def test_a_pause_by_a_person_raises_no_doubt() -> None:
    run = asking()
    actions.pause(run, by=None)
    actions.resume(run, by=None)
    decide(run, "approve")
    work(run)
    assert card_of(pending(run), None).doubt == ""


def test_a_child_that_was_started_after_the_restore_is_in_the_same_doubt() -> None:
    """It has no row of the restore; its parent has."""
    inner = {"replies": {"decision": [think("note", text="hello"), FINAL]}, "tools": {"note": NOTE}}
    played = script(think("agent.inner", goal="look"), FINAL, subgraphs={"inner": inner})
    parent = launch(played=played, subgraphs={"inner": {"machine": "ruled", "settings": {}}})
    restore_of("2026-11-28 07:25:00")
    store.resume_restored(parent.pk, "root")
    child = work(parent).children.get()
    assert card_of(pending(work(child)), None).doubt == DOUBT
    assert store.unanswered(replace_timeout(pending(child))).verdict == "reject"


def replace_timeout(question: Interrupt) -> Interrupt:
    """The question as one that silence approves."""
    question.on_timeout = "approve"
    return question


def test_a_restore_whose_row_tells_no_time_is_still_told() -> None:
    run = asking()
    restore()
    assert card_of(pending(run), None).doubt.startswith("This site was restored from a backup. ")


def test_who_may_only_look_is_warned_too() -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    page = signed_in(person("vera", "view_run")).get(reverse("interrupt", args=[pending(run).pk])).text
    assert DOUBT in page
    assert 'name="sure"' not in page


@pytest.mark.parametrize(("more", "status", "verdict"), [({}, 422, None), ({"sure": "yes"}, 302, "approve")])
def test_approving_it_wants_a_tick_whatever_the_call_does(
    more: dict[str, str], status: int, verdict: str | None
) -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    question = pending(run)
    seen_by_root = {"revision": str(question.revision), "fingerprint": question.fingerprint}
    fields = seen_by_root | {"arg.text": "hello", "verdict": "approve"}
    answer = root().post(reverse("decision", args=[question.pk]), fields | more)
    assert answer.status_code == status
    assert ("tick the box to approve it" in answer.text) == (status == 422)
    assert getattr(getattr(_again(question), "decision", None), "verdict", None) == verdict


@pytest.mark.parametrize(("more", "status"), [({}, 422), ({"sure": "yes"}, 302)])
def test_approving_it_beforehand_for_a_fork_wants_the_tick_too(more: dict[str, str], status: int) -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    seen = {"asked": str(pending(run).seq), "seen": again(run, 0).mark_of_beginning_again}
    fields = {"at": "0", "how": "fork", "verdict": "approve"} | seen
    answer = root().post(reverse("fork", args=[run.pk]), fields | more)
    assert answer.status_code == status
    assert ("tick the box to approve it" in answer.text) == (status == 422)


def test_a_fork_by_command_that_approves_it_wants_to_be_sure() -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    words = ("fork", str(run.pk), "--at=0", '--decision={"verdict": "approve"}')
    with pytest.raises(CommandError, match=re.escape(f"{DOUBT}\n{UNKNOWN_SINCE}\n")):
        told(*words)
    assert Run.objects.count() == 1
    assert told(*words, "--sure") == [str(Run.objects.get(copied_from=run).pk)]


def test_without_a_restore_the_same_call_wants_no_tick() -> None:
    question = pending(asking())
    fields = {"revision": str(question.revision), "fingerprint": question.fingerprint}
    answer = root().post(
        reverse("decision", args=[question.pk]), fields | {"arg.text": "hello", "verdict": "approve"}
    )
    assert answer.status_code == 302


def test_the_admin_wants_the_tick_too() -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    question, client = pending(run), root()
    fields = {"revision": str(question.revision), "fingerprint": question.fingerprint, "verdict": "approve"}
    address = reverse("admin:runs_interrupt_decide", args=[question.pk])
    assert DOUBT in client.post(address, fields, follow=True).text
    assert _again(question).status == "pending"
    client.post(address, fields | {"sure": "yes"})
    assert _again(question).status == "decided"


@pytest.mark.parametrize("verdict", [("approve",), ("edit", "--args", '{"text": "hi"}')])
def test_the_command_wants_to_be_sure_too(verdict: tuple[str, ...]) -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    question = pending(run)
    words = ("decide", str(question.pk), "--verdict", *verdict)
    with pytest.raises(CommandError, match=re.escape(DOUBT)) as caught:
        told(*words)
    assert caught.value.returncode == 2
    assert _again(question).status == "pending"
    assert told(*words, "--sure") == [f"Recorded: {verdict[0]} on run {run.pk}."]


def test_the_command_rejects_it_at_once() -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    assert told("decide", str(run.pk), "--verdict", "reject") == [f"Recorded: reject on run {run.pk}."]


def test_rejecting_it_wants_no_tick() -> None:
    run = asking()
    restore_of("2026-11-28 07:25:00")
    question = pending(run)
    fields = {"revision": str(question.revision), "fingerprint": question.fingerprint, "verdict": "reject"}
    assert root().post(reverse("decision", args=[question.pk]), fields).status_code == 302


def test_the_list_of_questions_asks_for_all_doubts_at_once() -> None:
    for _ in range(2):
        asking()
    restore_of("2026-11-28 07:25:00")
    client = root()
    client.get("/needs-you/")
    with CaptureQueriesContext(connection) as two:
        client.get("/needs-you/")
    asking()
    restore_of("2026-11-28 07:30:00")
    with CaptureQueriesContext(connection) as three:
        assert client.get("/needs-you/").text.count("This may have been answered") == 3
    assert len(three) == len(two)


def _again(question: Interrupt) -> Interrupt:
    return Interrupt.objects.get(pk=question.pk)


def test_a_deadline_does_not_approve_what_may_have_been_done_before_the_restore() -> None:
    rules = [{"when": {"tool": "send"}, "do": "ask", "deadline_s": 3600, "on_timeout": "approve"}]
    run, other = (work(launch(think("send", to="bob"), FINAL, rules=rules)) for _ in range(2))
    Interrupt.objects.filter(run=other).update(deadline=Now() - timedelta(seconds=1))
    tasks.sweep()
    restore()
    actions.resume(Run.objects.get(pk=run.pk), by=None)
    Interrupt.objects.filter(run=run).update(deadline=Now() - timedelta(seconds=1))
    tasks.sweep()
    asked_before, asked_unharmed = run.interrupts.get(), other.interrupts.get()
    assert asked_unharmed.decision.verdict == "approve"
    assert asked_before.decision.verdict == "reject"
    assert not work(Run.objects.get(pk=run.pk)).exchanges.filter(name="send").exists()


# --- going another way than a restored run ------------------------------------------------------------------------

NOTHING_OUTSIDE = "No side effects after that step."
BOB = script(think("search", q="a"), think("send", to="bob"), FINAL)


TOOLS_OF_BOTH = {"search": SEARCH, "note": NOTE}
ASK_NOTE = [{"when": {"tool": "note"}, "do": "ask"}]


def restored_between_steps(played: dict[str, Any] = BOB) -> Run:
    """A run that may send unasked, restored from a backup that was made before it did."""
    run = launch(played=played, rules=ALLOW)
    slice_of(run, Slice(moves=4))
    restore_of("2026-11-28 07:25:00")
    return Run.objects.get(pk=run.pk)


def a_transition(run: Run) -> int:
    """The first row that the run can go back to."""
    return run.steps.filter(kind="transition").order_by("seq").values_list("seq", flat=True)[0]


def test_what_goes_on_from_a_row_of_a_restored_run_says_that_more_may_have_been_done() -> None:
    run, client = restored_between_steps(), root()
    at = a_transition(run)
    pages = [
        f"/runs/{run.pk}/fork/?at={at}",
        f"/runs/{run.pk}/fork/?at=0&how=rerun",
        f"/runs/{run.pk}/rewind/?to={at}",
    ]
    for page in pages:
        text = client.get(page).text
        assert text.count(UNKNOWN_SINCE) == 1 and NOTHING_OUTSIDE not in text
    before = Run.objects.count()
    for words in (("fork", "--at", str(at)), ("rerun", "--at", "0"), ("rollback", "--to", str(at))):
        with pytest.raises(CommandError, match=re.escape(UNKNOWN_SINCE)):
            told(words[0], str(run.pk), *words[1:])
    assert Run.objects.count() == before and not run.steps.filter(kind="rewind").exists()
    told("fork", str(run.pk), "--at", str(at), "--sure")
    assert Run.objects.count() == before + 1


def test_a_card_of_a_restored_run_that_goes_back_says_so_first() -> None:
    run, client = asking(), root()
    restore_of("2026-11-28 07:25:00")
    question = pending(run)
    back = {"verdict": "rollback", "to_step": str(a_transition(run)), "revision": str(question.revision)}
    answer = client.post(
        reverse("decision", args=[question.pk]), back | {"fingerprint": question.fingerprint}
    )
    assert answer.status_code == 422 and UNKNOWN_SINCE in answer.text
    assert pending(run).status == "pending"


@pytest.mark.parametrize("ended", [True, False])
def test_where_no_life_was_lost_nothing_is_said(ended: bool) -> None:  # noqa: FBT001
    """The run had ended before the backup, or it can change nothing."""
    run = (
        work(launch(FINAL, rules=ALLOW)) if ended else launch(played=script(FINAL, tools={"search": SEARCH}))
    )
    restore_of("2026-11-28 07:25:00")
    page = root().get(f"/runs/{run.pk}/fork/?at=0").text
    assert UNKNOWN_SINCE not in page and NOTHING_OUTSIDE in page


def test_a_fork_of_a_restored_run_is_in_the_same_doubt_from_whichever_row() -> None:
    played = script(think("search", q="a"), think("note", text="hello"), FINAL, tools=TOOLS_OF_BOTH)
    run = launch(played=played, rules=ASK_NOTE)
    slice_of(run, Slice(moves=4))
    restore_of("2026-11-28 07:25:00")
    for at in (0, a_transition(run)):
        made = work(actions.fork(run, at=at, by=None))
        assert card_of(pending(made), None).doubt == DOUBT
        again_ = work(actions.fork(made, at=at, by=None))
        assert card_of(pending(again_), None).doubt == DOUBT
        with pytest.raises(CommandError, match="add --sure"):
            told("decide", str(made.pk), "--verdict", "approve")


def test_answers_that_are_used_up_let_nothing_pass() -> None:
    twice = script(think("send", to="bob"), think("send", to="eve"), FINAL, tools={"send": SEND})
    given, kept = launch(played=twice, answers=[{"verdict": "approve"}]), launch(played=twice)
    work(given)
    decide(work(kept), "approve")
    work(kept)
    fork = work(actions.fork(kept, at=0, by=None, answers="keep"))
    other = actions.fork(kept, at=0, by=None, decision={"verdict": "reject"})
    fresh = actions.fork(kept, at=0, by=None, answers="keep")
    restore()
    assert [seen(run).hold for run in (given, fork, other)] == ["", "", ""]
    assert seen(fresh).hold == UNASKED


# --- questions that hold a call back otherwise --------------------------------------------------------------------

LIMITED: dict[str, Any] = {"rules": ALLOW, "limits": {"cost_usd": 0.0005}}
ROOM = {"cost_usd": 1.0}


def at_its_limit(**parts: Any) -> Run:
    """A run that asks for room before it sends."""
    return work(launch(think("send", to="bob"), FINAL, **(LIMITED | parts)))


def test_room_for_a_call_that_may_have_been_made_wants_a_look() -> None:
    run, client = at_its_limit(), root()
    restore_of("2026-11-28 07:25:00")
    at = seen(run).at
    assert (at.code, at.text) == ('send(to="bob")', "Cost limit reached: $0.001 of $0.0005 used")
    store.resume_restored(run.pk, "root")
    page = client.get(f"/runs/{run.pk}/").text
    assert DOUBT in page and 'name="sure"' in page
    words = ("decide", str(run.pk), "--verdict", "top_up", "--args", '{"cost_usd": 1}')
    with pytest.raises(CommandError, match=re.escape(DOUBT)):
        told(*words)
    question = pending(run)
    typed = {"verdict": "top_up", "amount.cost_usd": "1", "revision": str(question.revision)}
    typed["fingerprint"] = question.fingerprint
    answer = client.post(reverse("decision", args=[question.pk]), typed)
    assert answer.status_code == 422 and "Check whether this was already done" in answer.text
    assert client.post(reverse("decision", args=[question.pk]), typed | {"sure": "yes"}).status_code == 302
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_room_for_what_changes_nothing_wants_none() -> None:
    run = work(launch(think("search", q="a"), FINAL, **LIMITED))
    restore_of("2026-11-28 07:25:00")
    store.resume_restored(run.pk, "root")
    assert 'name="sure"' not in root().get(f"/runs/{run.pk}/").text
    decide(run, "top_up", args=ROOM)
    assert work(run).status == "succeeded"


def test_room_that_is_made_elsewhere_lets_no_call_go_that_may_have_been_made() -> None:
    run = at_its_limit()
    other = work(actions.fork(run, at=a_transition(run), by=None, settings={"limits": None}))
    restore_of("2026-11-28 07:25:00")
    for one in (run, other):
        store.resume_restored(one.pk, "root")
    decide(run, "top_up", args=ROOM)
    assert pending(other).kind == "limit"
    assert work(other).tool_calls == 0


def test_room_that_is_made_elsewhere_lets_a_call_go_that_changes_nothing() -> None:
    """However often it was made before the restore: nobody has to look."""
    run = work(launch(think("search", q="a"), FINAL, **LIMITED))
    other = work(actions.fork(run, at=a_transition(run), by=None, settings={"limits": None}))
    restore_of("2026-11-28 07:25:00")
    for one in (run, other):
        store.resume_restored(one.pk, "root")
    decide(run, "top_up", args=ROOM)
    assert not other.interrupts.filter(status="pending").exists()
    assert work(other).status == "succeeded"


@pytest.mark.parametrize("kind", ["limit", "human_approval"])
def test_a_fork_asks_in_the_same_doubt_whatever_it_asks(kind: str) -> None:
    guess = {"thought": "I guess", "action": {"tool": "send", "args": {"to": "bob"}}}
    run = at_its_limit() if kind == "limit" else work(launch(*[guess] * 8, FINAL, rules=ALLOW))
    assert pending(run).kind == kind
    restore_of("2026-11-28 07:25:00")
    fork = work(actions.fork(run, at=a_transition(run), by=None))
    assert (pending(fork).kind, card_of(pending(fork), None).doubt) == (kind, DOUBT)
    assert card_of(pending(fork), None).wants_a_tick
    verdict = ("top_up", "--args", '{"cost_usd": 1}') if kind == "limit" else ("approve",)
    with pytest.raises(CommandError, match="add --sure"):
        told("decide", str(fork.pk), "--verdict", *verdict)
