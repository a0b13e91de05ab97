"""After a restore every unfinished run is paused; somebody looks, and lets the chosen ones go on, each once."""

from __future__ import annotations

import html
import io
import re
from datetime import datetime
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentsite.restoring import UNKNOWN
from runs import actions
from runs.adapters.secrets import seal
from runs.adapters.tool import NotHappened
from runs.driver import Slice
from runs.engine.facts import Paused
from runs.machines import NoMachine
from runs.models import Interrupt, ModelProfile, Run
from runs.reading.cards import card_of
from runs.reading.restored import restored_of
from runs.store import backups, restored
from runs.store.appending import append
from tests.cast import alice, bob, cast_member, charlie, person, signed_in
from tests.launching import ALLOW, FINAL, SEND, launch, script, think
from tests.running import decide, in_threads, kinds, pending, transitions, work
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

PAGE = "/runs/restored/"


def restore() -> int:
    """What a restore does to the runs that it brings back."""
    return backups.pause_unfinished("Restored from a backup.")


def uncertain(**parts: Any) -> Run:
    """A run whose worker was lost in the middle of a deed."""
    played = script(think("send", to="bob"), FINAL, tools={"send": SEND | parts.pop("tool", {})})
    run = launch(played=played, rules=ALLOW, **parts)
    die_in(run, before=kill, only="send")
    return run


def status_of(*runs: Run) -> list[str]:
    return [Run.objects.get(pk=run.pk).status for run in runs]


def root() -> Client:
    """The administrator's browser."""
    return signed_in(cast_member("root", is_superuser=True, is_staff=True))


def boxes(page: str) -> list[int]:
    """The runs whose box the form has; no box is ticked."""
    found = re.findall(r'<input class="held__box"[^>]*>', page)
    assert not any(" checked" in box for box in found)
    return [int(re.findall(r'value="(\d+)"', box)[0]) for box in found]


# --- letting them go on -------------------------------------------------------------------------------------------


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
        f"Run {resumed.pk} is not paused (queued).",
        f"Run {aborted.pk} has ended already (cancelled: aborted).",
        f"Run {paused.pk} is paused by a person, not by the restore.",
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


def test_a_run_that_could_not_be_let_go_on_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    locked, fine = launch(FINAL), launch(FINAL)
    restore()
    resume = restored.resume_restored

    def resumed(run_id: int, by: str) -> Run:
        if run_id == locked.pk:
            raise OperationalError("canceling statement due to lock timeout")
        return resume(run_id, by)

    monkeypatch.setattr(restored, "resume_restored", resumed)
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
    assert done.passed_over == (NoMachine("older").sentence,)
    Run.objects.filter(pk=gone.pk).update(machine="ruled")


def during_send(**parts: Any) -> Run:
    """A run in whose call a backup was made, from which the site is restored."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW, **parts)
    die_in(run, before=kill, only="send")
    restore()
    actions.resume(run, by=None)
    return run


RESTORED = "This site was restored from a backup made during the call; the outcome is unknown."


def test_a_call_in_whose_middle_the_backup_was_made_is_asked_about_with_that_cause() -> None:
    run = work(during_send())
    assert pending(run).kind == "may_have_happened"
    assert pending(run).why == f"{RESTORED} A second call may cause harm."
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
    decide(work(run), "approve")
    die_in(run, before=kill, only="send")
    assert pending(work(run)).why.startswith("The worker stopped mid-call;")


def test_a_call_that_did_not_happen_says_that_a_restore_had_it_made_anew() -> None:
    run = during_send()
    slice_of(run, far_side=NotHappened.FOR_SURE)
    (anew,) = run.steps.filter(kind="ask", facts_json__contains="not_happened")
    assert (
        "This site was restored from a backup. send says that the call did not happen, so the worker retries it."
        in anew.facts_json
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


def test_a_run_that_a_person_had_paused_stays_so_and_is_named() -> None:
    mine, plain = launch(FINAL), launch(FINAL)
    actions.pause(mine, by=None)
    for _ in range(2):
        restore()
        assert [one.pk for one in restored_of(None)] == [plain.pk]
    assert told("resume", "--restored")[0] == f"Run {plain.pk}: queued, at {plain.node}, step 3."
    assert status_of(mine, plain) == ["paused", "queued"]
    assert "<strong>Paused.</strong>" in root().get(f"/runs/{mine.pk}/").text


def test_runs_that_an_earlier_version_restored_ask_too_and_so_do_those_that_come_from_them() -> None:
    """Their rows alone told of it."""
    old = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    append(old, "pause", (Paused(by="the restore", message="Put back."),), status="paused")
    fork, other = actions.fork(old, at=0, by=None), launch(FINAL)
    of_the_fork = actions.fork(fork, at=0, by=None)
    assert not Run.objects.filter(restored_at__isnull=False).exists()
    import_module("runs.migrations.0023_restored_at").mark(apps, None)
    marked = Run.objects.filter(restored_at__isnull=False)
    assert set(marked) == {old, fork, of_the_fork} and other not in marked
    restored.resume_restored(old.pk, "root")
    for run in (old, fork, of_the_fork):
        assert (work(run).status, pending(run).tool) == ("waiting", "send")


# --- the page -----------------------------------------------------------------------------------------------------


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


def test_one_press_resumes_all_that_the_reader_may_resume() -> None:
    owner = alice()
    hers, uncertain_too, somebodys = launch(FINAL, owner=owner), uncertain(owner=owner), launch(FINAL)
    restore()
    client = signed_in(owner)
    page = client.get(PAGE).text
    assert "each run asks before every" in page and boxes(page) == [hers.pk, uncertain_too.pk]
    assert "Resumed: 2." in client.post(PAGE, {"all": "yes"}, follow=True).text
    assert status_of(hers, uncertain_too, somebodys) == ["queued", "queued", "paused"]


def test_a_run_whose_model_can_not_be_called_goes_on_only_where_it_is_named() -> None:
    gone, fine, locked = (model_run(name) for name in ("gone", "fine", "locked"))
    ModelProfile.objects.filter(name="gone").delete()
    ModelProfile.objects.filter(name="locked").update(sealed_key=seal("sk-1", "the key before the restore"))
    restore()
    client = root()
    page = html.unescape(client.get(PAGE).text)
    assert "Only if ticked: The site has no model 'gone', or it is switched off." in page
    assert "Only if ticked: The model 'locked' can't be called. The stored secret" in page
    client.post(PAGE, {"all": "yes"})
    assert status_of(gone, fine, locked) == ["paused", "queued", "paused"]
    lines = told("resume", "--restored")
    assert lines[0] == "Resumed: 0."
    assert lines[1].startswith(f"Run {gone.pk} stays paused: The site has no model 'gone'")
    assert lines[2].endswith(f"To resume it: manage.py resume {locked.pk}")
    client.post(PAGE, {"run": [str(gone.pk)]})
    assert status_of(gone) == ["queued"]


def model_run(name: str) -> Run:
    """A run that asks a model of the site."""
    actions.register_model(name=name, base_url="http://127.0.0.1:1/v1", model_id="m", api_key="sk-1")
    return launch(goal="x", model=name)


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
    assert f"Not resumed: 1. Run {chosen.pk} is not paused (queued)." in twice.text
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


def test_each_person_sees_and_resumes_their_own_part() -> None:
    owner, reviewer, other = alice(), bob(), charlie()
    hers, somebodys = launch(FINAL, owner=owner), launch(FINAL)
    restore()
    both = [hers.pk, somebodys.pk]
    page = signed_in(reviewer).get(PAGE).text
    assert boxes(page) == both and "you may not resume it" in page and "Resume all" not in page
    answer = signed_in(reviewer).post(PAGE, {"run": [str(hers.pk)]}, follow=True)
    assert f"Run {hers.pk} is not yours to steer." in answer.text
    assert boxes(signed_in(other).get(PAGE).text) == []
    assert "paused by the restore." not in signed_in(other).get("/runs/").text
    assert actions.resume_restored(both, by=other).resumed == ()
    assert boxes(signed_in(owner).get(PAGE).text) == [hers.pk]
    assert actions.resume_restored(both, by=owner).passed_over == (f"There is no run {somebodys.pk}.",)
    assert status_of(hers, somebodys) == ["queued", "paused"]
    assert hers.steps.latest("seq").facts_json == '[{"kind":"run.resumed","by":"alice"}]'


def test_many_runs_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.views.restored.AT_ONCE", 2)
    runs = [launch(FINAL) for _ in range(5)]
    restore()
    client = root()
    first, last = client.get(PAGE).text, client.get(f"{PAGE}?page=3").text
    assert boxes(first) == [runs[0].pk, runs[1].pk]
    assert boxes(last) == [runs[4].pk]
    assert "5 runs" in first and "Page 1 of 3" in first
    assert boxes(client.get(f"{PAGE}?page=nonsense").text) == boxes(first)


# --- the command --------------------------------------------------------------------------------------------------


def told(*words: str) -> list[str]:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue().splitlines()


def test_the_command_resumes_them_says_where_each_is_and_which_ones_stay() -> None:
    plain, deed, waiting, out = (
        launch(FINAL),
        uncertain(),
        work(launch(think("send", to="bob"), FINAL)),
        launch(FINAL),
    )
    restore()
    lines = told("resume", "--restored", "--except", str(out.pk))
    deed.refresh_from_db()
    waiting.refresh_from_db()
    assert lines == [
        f"Run {plain.pk}: queued, at {plain.node}, step 2.",
        f"Run {deed.pk}: queued, at {deed.node}, step {deed.head}.",
        f"Run {waiting.pk}: waiting, at {waiting.node}, step {waiting.head}.",
        "Resumed: 3.",
        f"Run {out.pk} stays paused: left out. To resume it: manage.py resume {out.pk}",
        "Restored runs ask before each call with side effects: it may have been made.",
    ]
    assert status_of(plain, deed, waiting, out) == ["queued", "queued", "waiting", "paused"]


def test_the_command_says_what_it_needs() -> None:
    run = launch(FINAL)
    number = str(run.pk)
    for words, said in (
        (("resume",), "Name a run or add --restored, not both."),
        (("resume", number, "--restored"), "Name a run or add --restored, not both."),
        (("resume", number, "--except", number), "--except goes with --restored."),
        (("resume", "--restored", "--except", "999999"), "There is no run 999999."),
    ):
        with pytest.raises(CommandError, match=re.escape(said)) as caught:
            told(*words)
        assert caught.value.returncode == 2
    assert told("resume", "--restored") == ["Resumed: 0."]
    assert run.steps.count() == 0


# --- what a person is told ----------------------------------------------------------------------------------------

DOUBT = "Check outside whether this call was made since the backup."
UNKNOWN_SINCE = "Side effects of this run since the backup are not in its log."

NOTE = {
    "params": {"text": "string"},
    "required": ["text"],
    "effects": "write",
    "results": [{"output": "noted"}],
}
ASK = [{"when": {"tool": "*"}, "do": "ask"}]


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
    restore()
    Run.objects.update(restored_at=datetime.fromisoformat("2026-11-28 07:25:00+00:00"))
    told = f"This site was restored from a backup on 28 Nov, 07:25 UTC. {DOUBT}"
    assert [page.count(told) for page in pages_with(run, client)] == [1, 1, 1, 1, 1]


def test_a_pause_by_a_person_with_the_words_of_a_restore_raises_no_doubt() -> None:
    run = asking()
    actions.pause(run, by=None, message="Restored from a backup of 2026-11-28 07:25:00 UTC.")
    assert card_of(pending(run), None).doubt == ""
    assert not restored_of(None).exists()


def test_who_may_only_look_is_warned_too() -> None:
    run = asking()
    restore()
    page = signed_in(person("vera", "view_run")).get(reverse("interrupt", args=[pending(run).pk])).text
    assert DOUBT in page
    assert 'name="sure"' not in page


@pytest.mark.parametrize("site", ["decision", "admin:runs_interrupt_decide"])
def test_approving_it_wants_a_tick_and_rejecting_it_none(site: str) -> None:
    run, other, client = asking(), asking(), root()
    assert posted(client, pending(other), site, verdict="approve").status_code == 302, "no restore, no tick"
    restore()
    question = pending(run)
    answer = posted(client, question, site, verdict="approve")
    assert answer.status_code == 422 and "tick the box to approve it" in answer.text and DOUBT in answer.text
    assert posted(client, question, site, verdict="approve", sure="yes").status_code == 302
    assert Interrupt.objects.get(pk=question.pk).decision.verdict == "approve"
    run = asking()
    restore()
    assert posted(client, pending(run), site, verdict="reject").status_code == 302


def posted(client: Client, question: Interrupt, site: str = "decision", **typed: str) -> Any:
    """The answer to the form of the question's card."""
    seen = {"revision": str(question.revision), "fingerprint": question.fingerprint}
    args = {f"arg.{name}": value for name, value in question.args.items()}
    return client.post(reverse(site, args=[question.pk]), seen | args | typed)


@pytest.mark.parametrize("verdict", [("approve",), ("edit", "--args", '{"text": "hi"}')])
def test_the_command_wants_to_be_sure_and_rejects_at_once(verdict: tuple[str, ...]) -> None:
    run, other = asking(), asking()
    restore()
    words = ("decide", str(run.pk), "--verdict", *verdict)
    with pytest.raises(CommandError, match=re.escape(f"{DOUBT} If it was not, add --sure.")) as caught:
        told(*words)
    assert caught.value.returncode == 2 and pending(run).status == "pending"
    assert told(*words, "--sure") == [f"Recorded: {verdict[0]} on run {run.pk}."]
    assert told("decide", str(other.pk), "--verdict", "reject") == [f"Recorded: reject on run {other.pk}."]


def test_room_for_a_call_that_may_have_been_made_wants_a_look() -> None:
    run, client = (
        work(launch(think("send", to="bob"), FINAL, rules=ALLOW, limits={"cost_usd": 0.0005})),
        root(),
    )
    restore()
    restored.resume_restored(run.pk, "root")
    words = ("decide", str(run.pk), "--verdict", "top_up", "--args", '{"cost_usd": 1}')
    with pytest.raises(CommandError, match=re.escape(DOUBT)):
        told(*words)
    room = {"verdict": "top_up", "amount.cost_usd": "1"}
    answer = posted(client, pending(run), **room)
    assert answer.status_code == 422 and "Check whether this was already done" in answer.text
    assert posted(client, pending(run), **room, sure="yes").status_code == 302
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_going_another_way_than_a_restored_run_says_that_its_log_may_lack_side_effects() -> None:
    run, client = launch(think("search", q="a"), think("send", to="bob"), FINAL, rules=ALLOW), root()
    slice_of(run, Slice(moves=4))
    restore()
    at = transitions(run)[0]
    for page in (f"fork/?at={at}", "fork/?at=0&how=rerun", f"rewind/?to={at}"):
        text = client.get(f"/runs/{run.pk}/{page}").text
        assert text.count(UNKNOWN_SINCE) == 1 and "No side effects after that step." not in text
    for words in (("fork", "--at", str(at)), ("rerun", "--at", "0"), ("rollback", "--to", str(at))):
        with pytest.raises(CommandError, match=re.escape(UNKNOWN_SINCE)):
            told(words[0], str(run.pk), *words[1:])
    assert Run.objects.count() == 1 and not run.steps.filter(kind="rewind").exists()
    told("fork", str(run.pk), "--at", str(at), "--sure")
    assert Run.objects.count() == 2
    waiting = asking()
    restore()
    back = posted(client, pending(waiting), verdict="rollback", to_step=str(transitions(waiting)[0]))
    assert back.status_code == 422 and UNKNOWN_SINCE in back.text


def test_the_list_of_questions_asks_for_all_doubts_at_once() -> None:
    for _ in range(2):
        asking()
    restore()
    client = root()
    client.get("/needs-you/")
    with CaptureQueriesContext(connection) as two:
        client.get("/needs-you/")
    asking()
    restore()
    with CaptureQueriesContext(connection) as three:
        assert client.get("/needs-you/").text.count(DOUBT) == 3
    assert len(three) == len(two)
