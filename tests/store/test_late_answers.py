"""Two workers at one ask: the first was taken for lost, and its answer comes all the same, early or late.

The rows follow from one of the two answers, and that one stands in the exchange; what either cost is counted once.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, transaction
from django.utils import timezone

from runs import actions, driver
from runs.adapters.scripted import ScriptedModel
from runs.adapters.toolbox import Toolbox
from runs.driver import performing, position
from runs.driver import worker as workers
from runs.driver.ports import NoSuchModel
from runs.driver.window import Reader
from runs.engine.effects import Failed, ToolCall, ToolReturned
from runs.models import Run
from runs.reading.rows import render_row, row_views
from runs.store import copying, errors, late_answers, leases, loading, log, verifying
from runs.store.log import Asked, lock
from tests.cast import cast_member, signed_in
from tests.compacting import long_run
from tests.families import INNER_ANSWER, child_of, family
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import (
    decide,
    in_threads,
    lose_worker,
    make_due,
    on_postgresql,
    pending,
    somebody_waits_for_a_lock,
    transitions,
    work,
)
from tests.stack import LONGEST_S, wait_for
from tests.workers import OTHER, MeddledJourney, WorkerKilled, at_call, die_in, kill, slice_of, wake

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def frozen_in_the_second_call() -> tuple[Run, MeddledJourney]:
    """A run whose worker sleeps in a model call that a row asks for, beyond its lease."""
    run = launch("no JSON", FINAL)

    def asleep() -> None:
        raise WorkerKilled

    journey = die_in(run, worker="frozen", before=at_call(2, asleep))
    assert run.exchanges.get(seq=2).answer_json is None
    return run, journey


def fits(run: Run, cost_usd: float) -> None:
    """Every row follows from what its exchange says; all that was paid is counted; so it is in copies."""
    assert run.cost_usd == pytest.approx(cost_usd)
    made, difference = actions.replay(run, by=None)
    assert difference is None
    assert made.answer == run.answer


def test_an_answer_that_comes_while_another_worker_asks_again_is_paid_and_not_used() -> None:
    run, journey = frozen_in_the_second_call()
    slice_of(run, after=lambda: wake(journey))
    assert run.answer == "42"
    assert run.exchanges.get(seq=2).cost_usd == 0.001
    fits(run, 0.002 + 0.005)
    assert run.model_calls == 3


def test_an_answer_that_comes_after_another_workers_is_paid_too() -> None:
    run, journey = frozen_in_the_second_call()
    slice_of(run)
    wake(journey)
    run.refresh_from_db()
    assert (run.answer, run.model_calls) == ("42", 3)
    fits(run, 0.002 + 0.005)


def test_an_answer_that_comes_first_is_the_one_that_is_used() -> None:
    run, journey = frozen_in_the_second_call()
    wake(journey)
    assert slice_of(run).calls == []
    assert run.answer == "41"
    fits(run, 0.001 + 0.005)
    assert run.model_calls == 2


def test_an_answer_is_used_though_a_worker_that_asked_nothing_was_lost_meanwhile() -> None:
    run, journey = frozen_in_the_second_call()
    assert leases.claim(run.pk, "second") is not None
    wake(journey)
    lose_worker(run)
    assert slice_of(run).calls == []
    assert run.answer == "41"
    fits(run, 0.001 + 0.005)


def gone(_: Run) -> Any:
    """An administrator has disabled the model."""
    raise NoSuchModel("gone")


def test_an_answer_that_comes_while_the_run_is_refused_is_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    run, journey = frozen_in_the_second_call()
    load = loading.load

    def loaded(*given: Any) -> Any:
        found = load(*given)
        wake(journey)
        return found

    monkeypatch.setattr(loading, "load", loaded)
    monkeypatch.setattr(workers, "ports_of", gone)
    work(run)
    assert run.exit_reason == "model_error"
    assert run.cost_usd == pytest.approx(0.001 + 0.005)


def test_an_answer_that_came_before_the_run_is_refused_is_paid_in_its_state_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, journey = frozen_in_the_second_call()
    wake(journey)
    monkeypatch.setattr(workers, "ports_of", gone)
    work(run)
    monkeypatch.undo()
    assert run.exit_reason == "model_error"
    state = json.loads(run.steps.get(kind="stop").state_json or "")
    assert state["metadata"]["total_cost"] == run.cost_usd
    fits(run, 0.001 + 0.005)


@pytest.mark.parametrize("number", [1, 2])
def test_a_commit_whose_end_was_not_heard_of_is_counted_once(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database wrote the row, and the connection broke before it could say so."""
    run = launch("no JSON", FINAL)
    commit = log.commit

    def unheard(batch: log.Batch) -> str:
        commit(batch)
        raise OperationalError("the connection was closed")

    def broken() -> None:
        monkeypatch.setattr(workers, "commit", unheard)

    with pytest.raises(OperationalError):
        slice_of(run, after=at_call(number, broken))
    monkeypatch.undo()
    lose_worker(run)
    make_due(run.pk)
    work(run)
    assert (run.answer, run.model_calls) == ("42", 2)
    fits(run, 0.002)


@pytest.mark.parametrize("hours", [-1, 1])
def test_how_long_a_move_took_a_clock_that_jumps_does_not_say(
    hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = launch(think("search", q="tides"), FINAL, limits={"active_seconds": 60})
    right = timezone.now

    def jump() -> None:
        monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(hours=hours))

    slice_of(run, after=at_call(1, jump))
    monkeypatch.undo()
    took = list(run.steps.values_list("ms", flat=True))
    assert min(took) >= 0 and sum(took) < 60_000
    assert sum(took) / 1000 <= run.active_seconds + 0.01
    assert actions.fork(run, at=run.steps.filter(kind="transition")[0].seq, by=None).active_seconds >= 0


@on_postgresql("SQLite has one writer: nobody writes meanwhile")
def test_no_answer_comes_between_the_sums_of_a_replay_and_its_exchanges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, _ = frozen_in_the_second_call()
    totals_at = copying.totals_at

    def summed(source: Run, at: int) -> Any:
        totals = totals_at(source, at)
        assert in_threads(1, lambda _: is_held(run)) == [True]
        return totals

    monkeypatch.setattr(copying, "totals_at", summed)
    made, difference = actions.replay(run, by=None)
    assert difference is None
    assert made.cost_usd == 0.001


def is_held(run: Run) -> bool:
    """Whether somebody holds the run's row."""
    try:
        with transaction.atomic():
            Run.objects.select_for_update(nowait=True).get(pk=run.pk)
    except OperationalError:
        return True
    return False


# --- attempts of one tool call are one ------------------------------------------------------------------------------


def frozen_in(tool: str) -> tuple[Run, MeddledJourney]:
    """A run whose worker sleeps in a tool's call, beyond its lease."""
    run = launch(think(tool, **({"q": "tides"} if tool == "search" else {"to": "bob"})), FINAL, rules=ALLOW)
    return run, die_in(run, worker="frozen", only=tool, before=kill)


def tool_wakes(journey: MeddledJourney) -> None:
    """The first worker's tool has answered; its seat is gone."""
    journey.keep(journey.at.asked, ToolReturned(value="three results"))


@pytest.mark.parametrize("when", ["before", "meanwhile", "after"])
def test_a_read_that_another_worker_makes_again_is_one_call(when: str) -> None:
    run, journey = frozen_in("search")
    if when == "before":
        tool_wakes(journey)
    if when == "meanwhile":
        slice_of(run, only="search", before=lambda: tool_wakes(journey))
    else:
        slice_of(run)
    if when == "after":
        tool_wakes(journey)
    run.refresh_from_db()
    assert (run.status, run.tool_calls) == ("succeeded", 1)
    assert run.exchanges.filter(kind="tool_call").count() == 1


def test_a_read_whose_row_can_not_be_written_and_that_is_made_again_is_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database goes away in the call."""
    run = launch(think("search", q="tides"), FINAL)

    def failing(batch: log.Batch) -> str:
        monkeypatch.undo()
        raise OperationalError("the server closed the connection")

    def gone_away() -> None:
        monkeypatch.setattr(workers, "commit", failing)

    with pytest.raises(OperationalError):
        slice_of(run, only="search", after=gone_away)
    work(run)
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_an_answer_that_no_step_concluded_is_sealed_by_the_end_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is kept, and paid; whoever changes it later is found."""
    run = launch("no JSON", FINAL)

    def failing(batch: log.Batch) -> str:
        raise OperationalError("the server closed the connection")

    with pytest.raises(OperationalError):
        slice_of(run, after=at_call(2, lambda: monkeypatch.setattr(workers, "commit", failing)))
    monkeypatch.undo()
    actions.abort(run, by=None)
    run.refresh_from_db()
    answered = run.exchanges.filter(answer_json__isnull=False).latest("seq")
    assert run.cost_usd == pytest.approx(2 * answered.cost_usd) != 0
    text = str(answered.answer_json)
    run.exchanges.filter(pk=answered.pk).update(answer_json=text.replace("42", "43"))
    assert verifying.verify(run, driver.tool_specs(run)) is not None
    run.exchanges.filter(pk=answered.pk).update(answer_json=text)


def test_a_read_that_nobody_makes_again_is_counted_all_the_same() -> None:
    run, journey = frozen_in("search")
    actions.abort(run, by=None)
    tool_wakes(journey)
    run.refresh_from_db()
    assert (run.status, run.tool_calls) == ("cancelled", 1)


def test_a_call_that_a_person_answered_for_is_one_however_late_its_own_answer_comes() -> None:
    run, journey = frozen_in("send")
    work(run)
    decide(run, "respond", message="It was sent.")
    work(run)
    tool_wakes(journey)
    run.refresh_from_db()
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def test_a_call_that_is_stopped_before_anybody_answered_for_it_is_counted_when_its_answer_comes() -> None:
    run, journey = frozen_in("send")
    work(run)
    assert pending(run).kind == "may_have_happened"
    actions.abort(run, by=None)
    assert Run.objects.get(pk=run.pk).tool_calls == 0
    tool_wakes(journey)
    assert Run.objects.get(pk=run.pk).tool_calls == 1


def test_rows_after_a_rollback_look_the_same_whenever_the_call_that_was_gone_back_over_answers() -> None:
    run, journey = frozen_in("send")
    actions.rewind(run, to=transitions(run)[0], by=None)
    slice_of(run)
    shown = painted(run)
    tool_wakes(journey)
    assert painted(run) == shown


def painted(run: Run) -> list[str]:
    """The rows as a page shows them that is opened now."""
    return [render_row(row) for row in row_views(run)]


# --- how long it took -----------------------------------------------------------------------------------------------


@dataclass
class Clock:
    """A clock that goes only where it is told to."""

    at: float = 0.0

    def monotonic(self) -> float:
        return self.at

    def passes(self, seconds: float) -> None:
        self.at += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, no_glances: None) -> Clock:
    """How long a worker is at a run."""
    found = Clock()
    monkeypatch.setattr(position, "time", found)
    return found


@pytest.mark.parametrize("tool", ["search", "send"])
@pytest.mark.parametrize("deed", ["abort", "rewind", "pause"])
def test_the_time_of_a_call_that_is_under_way_counts_whatever_people_do_meanwhile(
    deed: str, tool: str, clock: Clock
) -> None:
    args = {"q": "tides"} if tool == "search" else {"to": "bob"}
    run = launch(think("search", q="a"), think(tool, **args), FINAL, rules=ALLOW)

    def meddle() -> None:
        clock.passes(3)
        more = {"to": transitions(run, "executed")[0]} if deed == "rewind" else {}
        getattr(actions, deed)(Run.objects.get(pk=run.pk), by=None, **more)
        clock.passes(4)

    with pytest.raises(errors.Fenced):
        slice_of(run, only=tool, before=at_call(2 if tool == "search" else 1, meddle))
    run.refresh_from_db()
    assert run.active_seconds == pytest.approx(7)


def test_the_time_of_a_model_call_that_was_cut_counts_though_it_is_not_paid(clock: Clock) -> None:
    run = launch("no JSON", FINAL)

    def stopped() -> None:
        clock.passes(3)
        actions.abort(Run.objects.get(pk=run.pk), by=None)

    def cut(*_: Any) -> Failed:
        stopped()
        return Failed(blame="recoverable", message="The call was cut off: the run no longer needs it.")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(errors.Fenced):
        patch.setattr(ScriptedModel, "ask", cut)
        slice_of(run)
    run.refresh_from_db()
    assert run.active_seconds == pytest.approx(3)
    assert run.model_calls == 0


def test_the_time_of_a_late_call_stays_when_the_run_goes_on(clock: Clock) -> None:
    run = launch(think("send", to="bob"), "no JSON", FINAL, rules=ALLOW)

    def taken_back() -> None:
        clock.passes(5)
        actions.rewind(Run.objects.get(pk=run.pk), to=transitions(run)[0], by=None)

    with pytest.raises(errors.Fenced):
        slice_of(run, only="send", before=at_call(1, taken_back))
    clock.passes(100)  # nobody is at the run
    slice_of(run, only="decision", before=at_call(1, lambda: clock.passes(2)))
    assert run.status == "succeeded"
    assert run.active_seconds == pytest.approx(7)


def test_the_time_that_is_counted_while_another_worker_is_at_the_run_is_not_overwritten(clock: Clock) -> None:
    run, journey = frozen_in_the_second_call()
    journey.at.counted_s -= 6  # it had been at work for so long

    def woken() -> None:
        wake(journey)
        clock.passes(2)

    slice_of(run, after=at_call(1, woken))
    assert run.finished
    assert run.active_seconds == pytest.approx(6 + 2)


# --- an answer that was kept ----------------------------------------------------------------------------------------


def test_a_kept_answer_whose_conclusion_fails_is_paid_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run, journey = frozen_in_the_second_call()
    wake(journey)

    def failing(batch: log.Batch) -> str:
        raise OperationalError("deadlock detected")

    monkeypatch.setattr(workers, "commit", failing)
    with pytest.raises(OperationalError):
        slice_of(run)
    monkeypatch.undo()
    work(run)
    assert run.answer == "41"
    fits(run, 0.001 + 0.005)


def test_a_kept_answer_is_paid_once_where_a_person_moves_the_run_before_it_is_concluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, journey = frozen_in_the_second_call()
    wake(journey)
    commit = log.commit

    def late(batch: log.Batch) -> str:
        monkeypatch.undo()
        actions.pause(run, by=None)
        return commit(batch)

    monkeypatch.setattr(workers, "commit", late)
    with pytest.raises(errors.Fenced):
        slice_of(run)
    actions.resume(run, by=None)
    work(run)
    assert run.answer == "41"
    fits(run, 0.001 + 0.005)


def test_an_answer_that_the_database_refuses_at_first_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run, journey = frozen_in_the_second_call()
    keep, tried = late_answers.keep_answer, []

    def locked(*given: Any, **more: Any) -> None:
        tried.append(1)
        if len(tried) < 3:
            raise OperationalError("canceling statement due to lock timeout")
        keep(*given, **more)

    monkeypatch.setattr(late_answers, "keep_answer", locked)
    wake(journey)
    assert slice_of(run).calls == []
    fits(run, 0.001 + 0.005)


def test_a_call_that_was_under_way_when_its_context_changed_is_made_again() -> None:
    """Its ask is a row: what it brought is paid, and the model is asked with what a person changed."""
    run = launch(think("search", q="a"), "no JSON", FINAL, context={"limit_tokens": 50_000})

    def pinned() -> None:
        moving = Run.objects.get(pk=run.pk)
        actions.pin(moving, path=f"st:{transitions(moving, 'executed')[0]}", by=None)

    with pytest.raises(errors.Fenced):
        slice_of(run, only="decision", after=at_call(3, pinned))
    assert slice_of(run).calls == ["decision"]
    fits(run, 0.004)
    assert (run.answer, run.model_calls) == ("42", 4)


def test_a_summary_that_was_cut_is_no_answer() -> None:
    run = long_run()

    def moved() -> None:
        actions.pin(Run.objects.get(pk=run.pk), path=f"st:{transitions(run, 'executed')[0]}", by=None)

    def cut(*_: Any) -> Failed:
        moved()
        return Failed(blame="recoverable", message="The call was cut off: the run no longer needs it.")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(errors.Fenced):
        patch.setattr(Reader, "summarise", cut)
        slice_of(run)
    assert run.exchanges.filter(kind="compaction").latest("seq").answer_json is None
    work(run)
    assert run.steps.filter(kind="compaction").exists()
    assert not run.steps.filter(facts_json__contains="compaction_failed").exists()


def frozen_in_a_deed() -> tuple[Run, MeddledJourney]:
    """A run whose worker sleeps in a call, beyond its lease; a person is asked whether that has happened."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    journey = die_in(run, worker="frozen", before=kill, only="send")
    assert pending(work(run)).kind == "may_have_happened"
    return run, journey


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (ToolReturned(value="sent <b>1</b>"), "It was done: sent &lt;b&gt;1&lt;/b&gt;"),
        (Failed(blame="recoverable", message="no such address"), "It failed: no such address"),
    ],
)
def test_a_worker_that_wakes_up_tells_the_card_how_its_call_ended(answer: Any, told: str) -> None:
    """The answer is for whoever decides, and is not used."""
    run, journey = frozen_in_a_deed()
    client = signed_in(cast_member("root", is_superuser=True))
    page = f"/interrupts/{pending(run).pk}/"
    assert "worker returned on" not in client.get(page).text
    journey.keep(journey.at.asked, answer)
    assert f"with the outcome of the call. {told}</span>" in client.get(page).text
    assert f"with the outcome of the call. {told}</span>" in client.get(f"/runs/{run.pk}/").text
    assert work(run).status == "waiting"
    decide(run, "respond", message="it was sent")
    assert (work(run).status, run.tool_calls) == ("succeeded", 1)


def told_in(run: Run, name: str) -> list[str]:
    """What the inspector says of a lost worker that came back, of each row that asked for this."""
    rows = run.exchanges.filter(name=name).order_by("seq").values_list("seq", flat=True)
    client = signed_in(User.objects.filter(username="root").first() or cast_member("root", is_superuser=True))
    pages = [client.get(f"/runs/{run.pk}/steps/{seq}/").text for seq in rows]
    return [said.group(1) if (said := CAME_BACK.search(page)) else "" for page in pages]


CAME_BACK = re.compile(r"returned on [^<]* with the outcome of the call. ([^<]*)</span>")


@pytest.mark.parametrize("verdict", ["respond", "reject", "approve"])
def test_the_inspector_says_how_a_lost_call_ended_after_a_person_decided(verdict: str) -> None:
    run, journey = frozen_in_a_deed()
    decide(run, verdict, message="" if verdict == "approve" else "I have asked.")
    work(run)
    made = ["", ""] if verdict == "approve" else [""]
    assert told_in(run, "send") == made
    journey.keep(journey.at.asked, ToolReturned(value="sent <b>1</b>"))
    assert told_in(run, "send") == ["It was done: sent &lt;b&gt;1&lt;/b&gt;", *made[1:]]
    assert told_in(run, "may_have_happened") == told_in(run, "send")[:1]


def test_the_inspector_of_a_call_of_which_nobody_was_asked_says_nothing_of_a_lost_worker() -> None:
    run, journey = frozen_in("send")
    tool_wakes(journey)
    work(run)
    assert told_in(run, "send") == [""]


def test_a_worker_that_slept_before_its_deed_looks_at_its_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has asked a person meanwhile, who had the call made again."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    calls: list[str] = []
    slept: list[str] = []
    call = Toolbox.call

    def counted(box: Any, wanted: ToolCall, nth: int, key: str) -> Any:
        calls.append(key)
        return call(box, wanted, nth, key)

    def sleeps(place: str) -> None:
        if place == "after_started" and not slept:
            slept.append(place)
            lose_worker(run)
            work(run)
            decide(run, "approve")
            work(run)

    monkeypatch.setattr(Toolbox, "call", counted)
    monkeypatch.setattr(performing, "failpoint", sleeps)
    with pytest.raises(errors.Fenced):
        slice_of(run)
    assert len(calls) == 1
    assert work(run).tool_calls == 1


# --- the locks of an answer that comes late -----------------------------------------------------------------------


@on_postgresql("SQLite has one writer: they can't overlap")
def test_an_answer_whose_conclusion_is_being_committed_waits_and_is_not_paid_twice() -> None:
    run, journey = frozen_in_the_second_call()
    run.refresh_from_db()
    asked = journey.at.asked
    assert asked is not None
    asked.answered(OTHER)
    concluding, over = threading.Event(), threading.Event()

    def both(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                lock(run.pk)
                row = run.exchanges.filter(seq=asked.seq)
                row.update(status="answered", answer_json=asked.answer_json, answered_at=asked.answered_at)
                concluding.set()
                over.wait(0.3)
        else:
            concluding.wait(LONGEST_S)
            wake(journey)
            over.set()

    in_threads(2, both)
    assert Run.objects.get(pk=run.pk).cost_usd == run.cost_usd
    run.exchanges.filter(seq=asked.seq).update(status="asked", answer_json=None, answered_at=None)


@on_postgresql("SQLite locks no rows")
def test_a_late_answer_of_a_child_takes_its_parents_row_before_its_own() -> None:
    """As everybody does: who took the child's first would wait for who holds the parent's, and the other way round."""
    run = work(family(INNER_ANSWER, after=(think("send", to="bob"), FINAL)))
    child = child_of(run)
    asked = Asked(child.head + 1, "model_call", "decision", "{}", "asked", "a key of its own")
    asked.answered(OTHER)

    held, free = threading.Event(), threading.Event()

    def each(number: int) -> None:
        if number == 0:
            with transaction.atomic():
                lock(run.pk)
                held.set()
                free.wait(LONGEST_S)
        elif number == 1:
            held.wait(LONGEST_S)
            late_answers.keep_answer(child.pk, child.epoch, asked, 0.0, written=False)
        else:
            try:
                wait_for(somebody_waits_for_a_lock)
                with transaction.atomic():
                    assert Run.objects.select_for_update(no_key=True, nowait=True).get(pk=child.pk)
            finally:
                free.set()

    in_threads(3, each)
    run.refresh_from_db()
    assert Run.objects.get(pk=child.pk).cost_usd == pytest.approx(child.cost_usd + 0.005)
    assert run.cost_usd == pytest.approx(0.003 + 0.005)
