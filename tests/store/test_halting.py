"""The kill switch: from its commit on nothing is claimed and nothing begins; nothing is lost; all goes on after it."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agentsite.hands import late_runs
from agentsite.stopped import STOPPED
from runs import actions, driver, tasks
from runs.driver import Slice, holds
from runs.machines import CATALOGUE
from runs.models import Exchange, Halt, Run
from runs.reading import panels
from runs.reading.rows import row_views
from runs.store import halting, leases, loading, log
from runs.store.appending import batch_on
from runs.store.halting import halted_for_intent
from runs.store.log import Asked, Row, commit
from tests.cast import alice, bob, cast_member, charlie, person, signed_in
from tests.compact import compact
from tests.launching import ALLOW, FINAL, SEND, launch, script, think
from tests.running import (
    decide,
    in_threads,
    kinds,
    lose_worker,
    make_due,
    on_postgresql,
    pending,
    somebody_waits_for_a_lock,
    transitions,
    work,
)
from tests.stack import LONGEST_S, wait_for
from tests.workers import die_in, kill, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies", "no_glances")]


def halt(reason: str = "a wrong price list") -> Halt:
    return actions.halt_site(by=None, reason=reason)


def unhalt() -> int:
    return actions.unhalt_site(by=None)


def glance() -> None:
    """The time between two looks at the switch is over."""
    holds.look()


def root() -> User:
    """The administrator."""
    return cast_member("root", is_superuser=True, is_staff=True)


def told(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


# --- nothing is claimed, nothing begins ---------------------------------------------------------------------------


def test_no_run_is_claimed_while_the_site_is_halted() -> None:
    run = launch(FINAL)
    halt()
    assert leases.claim(run.pk, "alpha") is None
    assert driver.drive(run.pk) == []
    assert (tasks.sweep(), late_runs()) == (0, [])
    run.refresh_from_db()
    assert (run.status, run.epoch, run.head) == ("queued", 0, 0)
    unhalt()
    assert work(run).status == "succeeded"


def test_pages_and_the_list_of_questions_look_again_at_both(monkeypatch: pytest.MonkeyPatch) -> None:
    run, rung = launch(FINAL), list[object]()
    monkeypatch.setattr("runs.live.ring", lambda run_id, _: rung.append(run_id))
    monkeypatch.setattr("runs.live.ring_inbox", lambda: rung.append("inbox"))
    halt()
    assert rung == [run.pk, "inbox"]
    unhalt()
    assert rung == [run.pk, "inbox"] * 2


def test_a_run_whose_worker_was_lost_is_not_taken_over_either() -> None:
    run = launch(FINAL)
    die_in(run, before=kill)
    halt()
    assert leases.claim(run.pk, "beta") is None
    unhalt()
    assert work(run).status == "succeeded"


def test_a_deed_that_comes_next_is_written_and_does_not_begin() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    world = slice_of(run, after=halt, only="decision")
    assert world.calls == ["decision"]
    assert run.exchanges.get(name="send").status == "asked"
    assert run.status == "queued"
    unhalt()
    world = slice_of(run)
    assert world.calls == ["send", "decision"]
    assert (run.status, run.model_calls, run.tool_calls, run.cost_usd) == ("succeeded", 2, 1, 0.002)


def test_a_deed_under_way_is_finished_and_its_answer_kept() -> None:
    run = launch(think("send", to="bob"), think("send", to="eve"), FINAL, rules=ALLOW)

    def stop() -> None:
        halt()
        glance()

    world = slice_of(run, before=stop, only="send")
    assert world.calls == ["decision", "send"]
    assert run.exchanges.get(name="send").status == "answered"
    assert run.status == "queued"
    unhalt()
    work(run)
    assert (run.status, run.tool_calls, run.model_calls) == ("succeeded", 2, 3)


def test_a_keyed_call_of_a_lost_worker_is_not_repeated_while_halted() -> None:
    keyed = SEND | {"idempotent": True}
    run = launch(played=script(think("send", to="bob"), FINAL, tools={"send": keyed}), rules=ALLOW)
    die_in(run, before=kill, only="send")
    make_due(run.pk)
    lease = leases.claim(run.pk, "beta")
    assert lease is not None
    halt()
    with pytest.raises(halting.Halted, match="a wrong price list"):
        log.start(run.pk, lease.epoch, run.exchanges.get(name="send").seq, "[]")
    leases.let_go(lease)
    unhalt()
    assert slice_of(run).calls == ["send", "decision"]


@pytest.mark.parametrize("name", ["decision", "search"])
def test_the_next_call_that_may_be_repeated_is_not_made(name: str) -> None:
    """Within half a second: the process looks at the switch, here between two calls."""
    run = launch(think("search", q="tides"), think("search", q="tides again"), FINAL)

    def stop() -> None:
        halt()
        for hold in holds.held_now():
            hold.leaving = True

    world = slice_of(run, after=stop, only=name)
    assert len(world.calls) == (1 if name == "decision" else 2)
    assert run.status == "queued"
    unhalt()
    work(run)
    assert (run.status, run.model_calls, run.tool_calls, run.cost_usd) == ("succeeded", 3, 2, 0.003)


def test_a_streamed_reply_is_cut_and_asked_for_again() -> None:
    played = script(think("search", q="tides"), FINAL, pace={"model_s": 0.2})
    run = launch(played=played)

    def stop() -> None:
        halt()
        glance()

    world = slice_of(run, before=stop, only="decision")
    assert world.calls == ["decision"]
    assert (run.status, run.head, run.model_calls) == ("queued", 0, 0)
    unhalt()
    work(run)
    assert (run.status, run.model_calls, run.cost_usd) == ("succeeded", 2, 0.002)


def test_a_silent_call_is_given_back_by_the_thread_beside_it() -> None:
    """The call does not end, and another worker may have the run as soon as the halt is over."""
    run = launch(FINAL)

    def wait_silently() -> None:
        halt()
        holds.renew_now()
        wait_for(Run.objects.filter(pk=run.pk, worker="").exists)

    slice_of(run, before=wait_silently)
    run.refresh_from_db()
    assert (run.status, run.head) == ("queued", 0)
    unhalt()
    assert work(run).status == "succeeded"


# --- nothing is lost ----------------------------------------------------------------------------------------------


def test_who_waits_goes_on_waiting_and_what_is_decided_is_done_afterwards() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    halt()
    assert pending(run).status == "pending"
    decide(run, "approve")
    assert driver.drive(run.pk) == []
    run.refresh_from_db()
    assert (run.status, run.tool_calls) == ("queued", 0)
    assert unhalt() == 1
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def test_the_first_halt_keeps_its_words_and_only_a_halted_site_can_go_on() -> None:
    halt("first")
    with pytest.raises(actions.AlreadyHalted, match=r"“first”\. A new reason is not recorded"):
        halt("second")
    unhalt()
    with pytest.raises(actions.NotPossible, match="not halted"):
        unhalt()
    assert halt("third").reason == "third"
    kept = Halt.objects.order_by("pk").values_list("reason", "on", "by_name", "ended_by")
    assert list(kept) == [
        ("first", False, "the operator", "the operator"),
        ("third", True, "the operator", ""),
    ]


def test_after_the_halt_runs_go_on_without_anybody_asking() -> None:
    run = launch(FINAL)
    tasks.sweep()
    halt()
    unhalt()
    Run.objects.update(hinted_at=Now() - timedelta(seconds=6))
    assert tasks.sweep() == 1
    assert late_runs() == [run.pk]


# --- a run that it held back says so ------------------------------------------------------------------------------


def held_back(run: Run) -> list[dict[str, Any]]:
    """What the run's log says of halts."""
    rows = run.steps.filter(kind="note").order_by("seq").values_list("facts_json", flat=True)
    return [fact for text in rows for fact in json.loads(text) if fact["kind"] == "run.held_back"]


def go_on(run: Run) -> Run:
    """A worker takes it as it stands, due or not."""
    driver.drive(run.pk)
    run.refresh_from_db()
    return run


def test_a_run_that_was_due_says_how_long_it_was_held_back_by_whom_and_why() -> None:
    run = launch(FINAL)
    switch = halt()
    unhalt()
    assert (go_on(run).status, kinds(run)[0]) == ("succeeded", "note")
    (told_of,) = held_back(run)
    switch.refresh_from_db()
    assert (told_of["by"], told_of["reason"]) == ("the operator", "a wrong price list")
    assert datetime.fromisoformat(told_of["since"]) == switch.at
    assert datetime.fromisoformat(told_of["until"]) == switch.ended_at


def test_a_run_that_a_worker_let_go_says_so_once_it_goes_on() -> None:
    played = script(think("search", q="tides"), FINAL, pace={"model_s": 0.2})
    run = launch(played=played)

    def stop() -> None:
        halt()
        glance()

    slice_of(run, before=stop, only="decision")
    unhalt()
    assert go_on(run).status == "succeeded"
    (told_of,) = held_back(run)
    assert datetime.fromisoformat(told_of["since"]) > Halt.objects.get().at


def test_who_the_halt_did_not_touch_says_nothing() -> None:
    waiting, ended, later = work(launch(think("send", to="bob"), FINAL)), work(launch(FINAL)), launch(FINAL)
    Run.objects.filter(pk=later.pk).update(due_at=Now() + timedelta(hours=1))
    halt()
    unhalt()
    fresh = launch(FINAL)
    decide(waiting, "approve")
    make_due(later.pk)
    Run.objects.filter(pk=later.pk).update(due_at=Now())
    for run in (waiting, later, fresh):
        assert go_on(run).status == "succeeded"
    assert [held_back(run) for run in (waiting, ended, later, fresh)] == [[], [], [], []]


def test_what_was_decided_in_a_halt_is_held_back_from_then_on() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    halt()
    decide(run, "approve")
    decided = run.steps.get(kind="decision").at
    unhalt()
    assert go_on(run).status == "succeeded"
    (told_of,) = held_back(run)
    assert abs(datetime.fromisoformat(told_of["since"]) - decided) < timedelta(seconds=5)
    assert datetime.fromisoformat(told_of["since"]) > Halt.objects.get().at


def test_each_halt_is_told_once_however_often_the_run_is_taken() -> None:
    run = launch(*[think("search", q=str(number)) for number in range(4)], FINAL)
    for reason in ("first", "second"):
        halt(reason)
        unhalt()
    slice_of(run, Slice(moves=2))
    slice_of(run, Slice(moves=2))
    assert work(run).status == "succeeded"
    assert [fact["reason"] for fact in held_back(run)] == ["first", "second"]
    assert kinds(run)[:2] == ["note", "note"]


@pytest.mark.parametrize("deed", [actions.abort, actions.pause])
def test_a_held_run_that_a_person_moves_meanwhile_says_so_before_it(deed: Any) -> None:
    run = launch(FINAL)
    halt()
    deed(run, by=None)
    (told_of,) = held_back(run)
    assert told_of["until"] == ""
    assert kinds(run)[0] == "note"


def test_a_halt_is_told_once_also_where_the_run_is_due_in_it_twice() -> None:
    run = launch(FINAL)
    halt()
    actions.pause(run, by=None)
    actions.resume(run, by=None)
    unhalt()
    assert go_on(run).status == "succeeded"
    assert kinds(run)[:4] == ["note", "pause", "pause", "ask"]


def test_a_run_that_waits_or_is_worked_on_is_not_held_back_when_a_person_moves_it() -> None:
    waiting, busy = work(launch(think("send", to="bob"), FINAL)), launch(FINAL)
    leases.claim(busy.pk, "alpha")
    halt()
    for run in (waiting, busy):
        actions.pause(run, by=None)
        assert held_back(run) == []


def test_a_run_whose_worker_was_lost_says_both_and_its_losses_go_on_counting() -> None:
    run = launch(FINAL)
    for _ in range(2):
        lose_worker(run)
        assert leases.claim(run.pk, "doomed") is not None
    lose_worker(run)
    halt()
    unhalt()
    assert leases.claim(run.pk, "doomed") is not None
    assert kinds(run) == ["recovered", "recovered", "note"]
    run.refresh_from_db()
    assert leases.lost_in_a_row(run) == 2
    lose_worker(run)
    work(run)
    assert pending(run).kind == "manual", "the third loss, whatever the halt wrote in between"
    decide(run, "resume")
    assert work(run).status == "succeeded"
    assert len(held_back(run)) == 1


def test_throwing_the_switch_and_taking_it_back_writes_to_no_run() -> None:
    runs = [launch(FINAL) for _ in range(3)]
    halt()
    unhalt()
    for run in runs:
        run.refresh_from_db()
        assert (run.head, run.epoch, kinds(run)) == (0, 0, [])


def test_a_claim_asks_the_database_nothing_more_for_halts_that_are_over() -> None:
    def asked() -> int:
        run = launch(FINAL)
        with CaptureQueriesContext(connection) as queries:
            assert leases.claim(run.pk, "alpha") is not None
        return len(queries)

    before = asked()
    for _ in range(3):
        halt()
        unhalt()
    assert asked() == before


def test_the_model_is_not_told_and_a_replay_and_a_fork_come_out_the_same() -> None:
    run = launch(think("search", q="tides"), FINAL)
    halt("secret plans")
    unhalt()
    assert go_on(run).status == "succeeded"
    assert len(held_back(run)) == 1
    blocks = loading.load_blocks(run, CATALOGUE[run.machine], run.head)
    assert not any("secret plans" in block.text for block in blocks)
    copy, difference = actions.replay(run, by=None)
    assert difference is None and held_back(copy) == held_back(run)
    forked = actions.fork(run, at=transitions(run)[0], by=None)
    assert go_on(forked).answer == run.answer


def test_the_timeline_and_the_export_say_it_in_words() -> None:
    owner = person("alice", "add_run")
    run = launch(FINAL, owner=owner)
    halt("<b>prices</b>")
    unhalt()
    go_on(run)
    page = signed_in(owner).get(reverse("run", args=[run.pk])).content.decode()
    assert "Held back" in page and "the operator had halted the site" in page
    assert "&lt;b&gt;prices&lt;/b&gt;" in page and "<b>prices" not in page
    summary = row_views(run)[0].summary
    assert re.fullmatch(
        r"Held back \(for \d+\.\d s\): from \d+ \w+, \d\d:\d\d to \d\d:\d\d UTC: the operator had halted the site"
        r" — “<b>prices</b>”",
        summary,
    ), summary


def test_only_who_may_halt_the_site_lets_it_work_again() -> None:
    halt("prices")
    with pytest.raises(actions.NotAllowed, match="You may not halt the site"):
        actions.unhalt_site(by=person("alice", "add_run", "decide_interrupt"))
    assert halting.halt_now() is not None
    unhalt()


def test_the_admin_lists_every_halt_and_changes_none() -> None:
    halt("first")
    unhalt()
    client = signed_in(root())
    page = client.get(reverse("admin:runs_halt_changelist")).content.decode()
    assert "first" in page and "the operator" in page
    number = Halt.objects.get().pk
    assert client.post(reverse("admin:runs_halt_delete", args=[number]), {"post": "yes"}).status_code == 403


# --- no effect begins after it ------------------------------------------------------------------------------------


def begun() -> set[int]:
    """The deeds whose intent stands in the database."""
    return set(Exchange.objects.filter(name="send").exclude(status="asked").values_list("pk", flat=True))


def race(intent: Callable[[Run], None]) -> int:
    """Six workers begin deeds one after another while somebody halts; how many began after the halt's commit."""
    runs = [waiting_deeds() for _ in range(6)]
    halted = threading.Event()
    before: list[set[int]] = []

    def one(number: int) -> None:
        if number == 6:
            halt()
            before.append(begun())
            halted.set()
            return
        for run in runs[number]:
            try:
                intent(run)
            except halting.Halted:
                return

    in_threads(7, one)
    return len(begun() - before[0])


def waiting_deeds() -> list[Run]:
    """Runs whose next step is a deed that is asked for and not begun."""
    found = []
    for _ in range(3):
        run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
        slice_of(run, after=lambda: halt() and None, only="decision")
        unhalt()
        run.refresh_from_db()
        found.append(run)
    return found


def test_no_effect_begins_after_the_halt_is_committed() -> None:
    def intent(run: Run) -> None:
        log.start(run.pk, run.epoch, run.exchanges.get(name="send").seq, "[]")

    for _ in range(2):
        assert race(intent) == 0
        unhalt()


def test_without_the_switch_in_the_intents_transaction_one_would() -> None:
    """The negative control: a worker that looks first and writes then."""
    looked, halted = threading.Event(), threading.Event()
    run = waiting_deeds()[0]

    def late(number: int) -> None:
        if number == 0:
            assert halting.halt_now() is None
            looked.set()
            halted.wait(LONGEST_S)
            run.exchanges.filter(name="send").update(status="started")
        else:
            looked.wait(LONGEST_S)
            halt()
            halted.set()

    in_threads(2, late)
    assert len(begun()) == 1 and halting.halt_now() is not None


@on_postgresql("SQLite has one writer: they can't overlap")
def test_the_halt_waits_for_an_intent_that_is_not_committed_yet() -> None:
    inside, committed = threading.Event(), threading.Event()
    order: list[str] = []

    def both(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                assert halted_for_intent() is None
                inside.set()
                committed.wait(0.3)
                order.append("intent")
        else:
            inside.wait(LONGEST_S)
            halt()
            order.append("halt")
            committed.set()

    in_threads(2, both)
    assert order == ["intent", "halt"]


@on_postgresql("SQLite has one writer: they can't overlap")
def test_of_two_people_who_resume_the_site_at_once_one_is_told_that_it_was_not_halted() -> None:
    halt()
    resumed = threading.Event()

    def both(number: int) -> object:
        if number == 0:
            with transaction.atomic():
                ended = halting.unhalt_site("ada")
                resumed.set()
                wait_for(somebody_waits_for_a_lock)
            return ended
        resumed.wait(LONGEST_S)
        return halting.unhalt_site("bob")

    assert in_threads(2, both)[1] is None
    assert Halt.objects.get().ended_by == "ada"


def a_deed_that_waits() -> tuple[Run, int]:
    """A run whose next step is a deed that is asked for, with the row that asks."""
    run = waiting_deeds()[0]
    return run, run.exchanges.get(name="send").seq


@on_postgresql("SQLite has one writer: they can't overlap")
def test_an_intent_waits_for_a_halt_that_is_not_committed_yet() -> None:
    """One that only tried the lock would begin its deed, and the halt would be committed a moment later."""
    run, seq = a_deed_that_waits()
    inside, over = threading.Event(), threading.Event()
    order: list[str] = []

    def both(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                halt()
                inside.set()
                over.wait(0.3)
                order.append("halt")
        else:
            inside.wait(LONGEST_S)
            with pytest.raises(halting.Halted):
                log.start(run.pk, run.epoch, seq, "[]")
            order.append("intent")
            over.set()

    in_threads(2, both)
    assert order == ["halt", "intent"]
    assert not begun()


def by_its_ask(run: Run, seq: int) -> None:
    """The deed of an ask that is a row already."""
    log.start(run.pk, run.epoch, seq, "[]")


def by_its_row(run: Run, seq: int) -> None:
    """A deed that is begun with the row that asks for it."""
    batch = batch_on(run, Row(run.head + 1, "ask", run.node))
    asked = Exchange.objects.get(run=run, seq=seq)
    batch.site_rules = "[]"
    batch.asked = [Asked(run.head + 1, asked.kind, asked.name, asked.request_json, "started", "another key")]
    commit(batch)


@pytest.mark.parametrize("begin", [by_its_ask, by_its_row])
def test_a_halt_comes_after_an_intent_that_has_looked_at_the_switch(
    begin: Callable[[Run, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look and the intent are one transaction: no halt is committed between them."""
    run, seq = a_deed_that_waits()
    looked, over = threading.Event(), threading.Event()
    order: list[str] = []

    def look() -> Halt | None:
        found = halted_for_intent()
        looked.set()
        over.wait(0.3)
        return found

    monkeypatch.setattr(log, "halted_for_intent", look)

    def both(number: int) -> None:
        if number == 0:
            begin(run, seq)
            order.append("intent")
        else:
            looked.wait(LONGEST_S)
            halt()
            order.append("halt")
            over.set()

    in_threads(2, both)
    assert order == ["intent", "halt"]
    assert begun()
    Run.objects.all().delete()  # one of them has a row that no worker would have written


# --- who, and what is seen ----------------------------------------------------------------------------------------


def test_only_who_may_halt_can() -> None:
    for somebody in (alice(), bob(), charlie()):
        client = signed_in(somebody)
        assert client.get(reverse("halt")).status_code == 403
        assert client.post(reverse("halt"), {"deed": "halt", "reason": "mine"}).status_code == 403
        assert b"Halt all runs" not in client.get(reverse("runs")).content
        with pytest.raises(actions.NotAllowed):
            actions.halt_site(by=somebody, reason="mine")
    assert halting.halt_now() is None


def test_the_page_says_what_it_does_asks_why_and_halts_by_post_alone() -> None:
    launch(FINAL)
    client = signed_in(root())
    page = client.get(reverse("halt")).content.decode()
    assert "Halt all runs?" in page and "1 running or queued, 0 waiting." in page
    assert halting.halt_now() is None
    refused = client.post(reverse("halt"), {"deed": "halt", "reason": "  "})
    assert refused.status_code == 400 and "Enter a reason" in refused.content.decode()
    client.post(reverse("halt"), {"deed": "halt", "reason": "<b>bad</b> prices"})
    switch = halting.halt_now()
    assert switch is not None and (switch.by_name, switch.reason) == ("root", "<b>bad</b> prices")
    page = client.get(reverse("halt")).content.decode()
    assert "Resume the site?" in page and "<title>Resume site" in page
    assert (
        "1 run continues." in client.post(reverse("halt"), {"deed": "unhalt"}, follow=True).content.decode()
    )
    assert halting.halt_now() is None


def test_everybody_sees_the_banner_and_honest_words() -> None:
    owner = person("alice", "add_run")
    run = launch(FINAL, owner=owner)
    client = signed_in(owner)
    assert "All runs are halted" not in client.get(reverse("runs")).content.decode()
    halt("<i>prices</i>")
    for address in (reverse("runs"), reverse("run", args=[run.pk]), reverse("needs-you")):
        page = client.get(address).content.decode()
        assert (
            "All runs are halted" in page and "&lt;i&gt;prices&lt;/i&gt;" in page and "the operator" in page
        )
        assert reverse("halt") not in page
    assert "Halted." in panels.panels_of(run, owner)["needs"]
    assert "Halted" in panels.panels_of(run, owner)["header"]
    assert "Queued" not in client.get(reverse("runs")).content.decode()
    unhalt()
    assert "Queued" in client.get(reverse("runs")).content.decode()
    assert "Halted" not in panels.panels_of(run, owner)["needs"]


def test_a_run_whose_call_is_still_under_way_is_not_said_to_stand_as_it_is() -> None:
    owner = person("alice", "add_run")
    run = launch(FINAL, owner=owner)
    halt("prices")

    def said(**changes: Any) -> str:
        Run.objects.filter(pk=run.pk).update(**changes)
        return compact(panels.panels_of(Run.objects.get(pk=run.pk), owner)["needs"])

    later = timezone.now() + timedelta(minutes=1)
    stands, goes_on = "<strong>Halted.</strong>", "continues when the site is resumed"
    now = said(status="running", worker="w", lease_until=later)
    assert "Halting." in now and "no call begins after it" in now
    assert stands not in now and goes_on in now
    now = said(status="paused")
    assert "Halting." in now and "Pausing." in now
    assert stands not in now and goes_on not in now
    now = said(worker="")
    assert "Halted." in now and "Paused." in now
    assert stands in now and goes_on not in now
    now = said(status="running", worker="lost", lease_until=timezone.now() - timedelta(minutes=1))
    assert stands in now and goes_on in now
    now = said(status="queued", worker="")
    assert stands in now and goes_on in now


def test_the_commands_halt_and_let_go_on() -> None:
    launch(FINAL)
    assert "Halted by the operator" in told("halt", "--reason", "maintenance")
    switch = halting.halt_now()
    assert switch is not None and switch.reason == "maintenance"
    played = json.dumps(script(FINAL))
    with pytest.raises(
        CommandError, match=r"stays queued\. The site is halted \(since .*, by the operator: maintenance\)\. "
    ):
        call_command(
            "launch",
            "--machine",
            "ruled",
            "--goal",
            "x",
            "--script",
            played,
            "--inline",
            stdout=io.StringIO(),
        )
    assert "2 runs continue." in told("unhalt")
    with pytest.raises(CommandError, match="not halted"):
        told("unhalt")


def test_who_halts_a_halted_site_is_told_whose_words_stay() -> None:
    halt("mine")
    said = told("halt", "--reason", "another")
    assert said.startswith("The site was halted already, by the operator since ")
    assert said.endswith("UTC: “mine”. A new reason is not recorded.\n")
    page = signed_in(root()).post(reverse("halt"), {"deed": "halt", "reason": "another"}, follow=True)
    assert "A new reason is not recorded" in page.content.decode()
    assert Halt.objects.get().reason == "mine"


def test_a_reason_that_was_forgotten_is_added_once_and_whoever_halted_stays() -> None:
    halt("")
    since = Halt.objects.get().at
    assert "without a reason. One can be added: manage.py halt --reason TEXT" in told("halt")
    assert "Why: bad prices" in told("halt", "--reason", "bad prices")
    assert "“bad prices”. A new reason is not recorded." in told("halt", "--reason", "another")
    kept = Halt.objects.get()
    assert (kept.reason, kept.by_name, kept.at) == ("bad prices", "the operator", since)


def test_the_page_takes_a_reason_that_was_forgotten_and_asks_for_none_that_is_there() -> None:
    halt("")
    client = signed_in(root())
    page = client.get(reverse("halt")).text
    assert "Resume site" in page and "Add reason" in page and 'name="reason"' in page
    without = client.post(reverse("halt"), {"deed": "halt", "reason": " "})
    assert without.status_code == 400 and "Enter a reason" in without.text
    client.post(reverse("halt"), {"deed": "halt", "reason": "bad prices"})
    assert (Halt.objects.get().reason, Halt.objects.get().by_name) == ("bad prices", "the operator")
    page = client.get(reverse("halt")).text
    assert "Resume site" in page and 'name="reason"' not in page


HALTED = r"The site is halted \(since [-0-9]+ [:0-9]+ UTC, by the operator: bad prices\)\. "
HALTED += r"To resume the site: manage\.py unhalt\n"


def test_who_lets_a_run_go_on_while_all_is_halted_is_told_that_nothing_moves() -> None:
    run = launch(FINAL)
    actions.pause(run, by=None)
    halt("bad prices")
    assert re.fullmatch(rf"Run {run.pk}: queued, at .*\n{HALTED}", told("resume", str(run.pk)))
    assert re.fullmatch(rf"Run {run.pk}: paused, at .*\n", told("pause", str(run.pk)))
    assert re.search(rf"Resumed: 0\.\n{HALTED}", told("resume", "--restored"))
    unhalt()
    assert re.fullmatch(rf"Run {run.pk}: queued, at .*\n", told("resume", str(run.pk)))
    work(run)


def test_who_starts_a_run_while_all_is_halted_is_told_beside_what_others_read() -> None:
    run = work(launch(FINAL))
    halt("bad prices")
    for words, said in (
        (
            ("launch", "--machine", "ruled", "--goal", "x", "--script", json.dumps(script(FINAL))),
            r"Run \d+: queued\n",
        ),
        (("fork", str(run.pk), "--at", "0"), r"\d+\n"),
    ):
        out, err = io.StringIO(), io.StringIO()
        call_command(*words, stdout=out, stderr=err)
        assert re.fullmatch(said, out.getvalue())
        assert re.fullmatch(HALTED, err.getvalue())
    with pytest.raises(CommandError, match="stays queued") as caught:
        told("fork", str(run.pk), "--at", "0", "--inline")
    assert caught.value.returncode == STOPPED


def test_a_run_that_the_halt_keeps_from_being_executed_here_is_no_bad_input() -> None:
    halt("bad prices")
    item = {"machine": "ruled", "goal": "x", "script": script(FINAL)}
    for words, said in (
        (("--machine=ruled", "--goal=x", f"--script={json.dumps(item['script'])}", "--inline"), "queued"),
        ((f"--batch={json.dumps([item, item])}",), '"error": "The site is halted'),
    ):
        out = io.StringIO()
        with pytest.raises(
            CommandError, match=r"bad prices.* To resume the site: manage\.py unhalt"
        ) as caught:
            call_command("launch", *words, stdout=out)
        assert caught.value.returncode == STOPPED
        assert said in out.getvalue()
    assert len(out.getvalue().splitlines()) == 2


def test_who_follows_a_run_is_told_of_a_halt_once_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(
        [
            lambda: halt("bad prices"),
            lambda: None,
            unhalt,
            lambda: halt("bad prices"),
            unhalt,
            lambda: work(Run.objects.get()),
        ]
    )
    monkeypatch.setattr("runs.management.commands.launch.time.sleep", lambda _: next(looks)())
    out, err = io.StringIO(), io.StringIO()
    played = json.dumps(script(FINAL))
    with pytest.raises(SystemExit) as ended:
        call_command(
            *("launch", "--machine", "ruled", "--goal", "x", "--script", played, "--wait"),
            stdout=out,
            stderr=err,
        )
    assert ended.value.code == 0
    assert re.fullmatch(HALTED * 2, err.getvalue())


def test_who_decides_while_all_is_halted_is_told_that_nothing_moves() -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    halt("bad prices")
    out, err = io.StringIO(), io.StringIO()
    call_command("decide", str(run.pk), "--verdict", "approve", stdout=out, stderr=err)
    assert out.getvalue() == f"Recorded: approve on run {run.pk}.\n"
    assert re.fullmatch(HALTED, err.getvalue())
    unhalt()
    assert work(run).status == "succeeded"


def test_a_reason_that_is_too_long_halts_nothing() -> None:
    much = "x" * (actions.MAX_HALT_REASON + 1)
    with pytest.raises(CommandError, match="at most 500 characters; this one has 501") as caught:
        told("halt", "--reason", much)
    assert caught.value.returncode == 2
    page = signed_in(root()).post(reverse("halt"), {"deed": "halt", "reason": much})
    assert page.status_code == 400 and "at most 500 characters" in page.content.decode()
    assert f'value="{much}"' in page.text
    assert not Halt.objects.exists()
    assert halt(much[1:]).reason == much[1:]


def test_a_person_at_a_page_is_logged_and_a_command_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    told("halt", "--reason", "x")
    told("unhalt")
    assert caplog.messages == []
    administrator = root()
    actions.halt_site(by=administrator, reason="y")
    actions.unhalt_site(by=administrator)
    assert caplog.messages == ["halted by root: 'y'", "no longer halted, by root"]


def test_the_switch_is_not_asked_for_once_for_each_run() -> None:
    for _ in range(5):
        launch(FINAL)
    halt()
    client = signed_in(root())
    with CaptureQueriesContext(connection) as queries:
        client.get(reverse("runs"))
    asked = [query for query in queries.captured_queries if 'FROM "runs_halt"' in query["sql"]]
    assert len(asked) <= 4  # two lists of runs, their children and the banner, however many runs there are
