"""A model that only so many may call at once or in a minute: for all workers, and no worker is held by who waits."""

from __future__ import annotations

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.db.models import F
from django.urls import reverse

from runs import driver
from runs.driver.turns import turn_at
from runs.models import ModelProfile, ModelTurn, Run, RunStatus
from runs.store import db, decisions, errors, turns
from runs.store.leases import Lease, claim
from runs.store.turns import Full, Limits, end_turn, limits_of, take_turn
from tests.cast import cast_member, signed_in
from tests.fake_model_server import Asked, Behaviour, FakeModelServer
from tests.running import in_threads, lose_worker, make_due, work
from tests.served import BUSY, SAYS_93, launched, once
from tests.stack import LONGEST_S

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def claimed(server: FakeModelServer, **limits: Any) -> Lease:
    run = launched(server, **limits)
    lease = claim(run.pk, f"worker-{run.pk}")
    assert lease is not None
    return lease


def limits() -> Limits:
    found = limits_of(ModelProfile.objects.get(name="tiny"))
    assert found is not None
    return found


def later(seconds: float) -> None:
    """So much time goes by for the turns that were taken."""
    ModelTurn.objects.update(began_at=F("began_at") - timedelta(seconds=seconds))


def let_all_go() -> None:
    Run.objects.exclude(worker="").update(status=RunStatus.QUEUED, worker="")


def taken(lease: Lease, tokens: int = 10) -> int:
    turn = take_turn(limits(), lease, tokens)
    assert isinstance(turn, int)
    return turn


def full(lease: Lease, tokens: int = 10) -> Full:
    turn = take_turn(limits(), lease, tokens)
    assert isinstance(turn, Full)
    return turn


def test_a_profile_without_limits_keeps_no_turns() -> None:
    with FakeModelServer([SAYS_93]) as server:
        assert work(launched(server)).status == "succeeded"
    assert not ModelTurn.objects.exists()


def test_only_so_many_calls_are_made_at_once() -> None:
    with FakeModelServer([]) as server:
        one, two, three = (claimed(server, most_calls=2) for _ in range(3))
    first = taken(one)
    taken(two)
    assert (full(three).limit, full(three).most) == ("calls", 2)
    end_turn(first, 7)
    taken(three)
    let_all_go()


def test_a_lost_workers_place_is_free_with_its_lease() -> None:
    with FakeModelServer([]) as server:
        one, two = (claimed(server, most_calls=1) for _ in range(2))
    taken(one)
    full(two)
    lose_worker(Run.objects.get(pk=one.run_id))
    taken(two)
    let_all_go()


def test_a_place_is_free_once_a_person_takes_the_run_from_its_worker() -> None:
    with FakeModelServer([]) as server:
        one, two = (claimed(server, most_calls=1) for _ in range(2))
    taken(one)
    decisions.pause(one.run_id, "alice")
    taken(two)
    let_all_go()


def test_a_worker_that_has_lost_its_run_takes_no_turn_and_ends_no_other_workers() -> None:
    with FakeModelServer([]) as server:
        late = claimed(server, most_calls=2)
    lose_worker(Run.objects.get(pk=late.run_id))
    now = claim(late.run_id, "now")
    assert now is not None
    turn = taken(now)
    with pytest.raises(errors.Fenced):
        take_turn(limits(), late, 10)
    assert ModelTurn.objects.get(pk=turn).ended_at is None
    let_all_go()


def test_a_clock_that_is_set_back_leaves_no_turn_in_the_future() -> None:
    with FakeModelServer([]) as server:
        one, two = (claimed(server, most_requests=1) for _ in range(2))
    taken(one)
    later(-3600)
    full(two)
    later(61)
    taken(two)
    let_all_go()


def test_a_reply_is_used_though_the_end_of_its_turn_can_t_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(*_: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(turns, "end_turn", locked)
    with FakeModelServer([SAYS_93]) as server:
        assert work(launched(server, most_calls=1)).status == "succeeded"
        assert len(server.asked) == 1


def test_nothing_is_paid_for_a_turn_that_can_t_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeModelServer([SAYS_93]) as server:
        run = launched(server, most_calls=1, limits={"cost_usd": 1}, input_price=1.0, output_price=1.0)
        with monkeypatch.context() as patched:

            def locked(*_: Any) -> None:
                raise OperationalError("the row is locked")

            patched.setattr(turns, "take_turn", locked)
            once(run)
        run.refresh_from_db()
        assert (run.reserved_usd, run.reserved_tokens) == (0, 0)
        assert work(run).status == "succeeded"
    (told,) = [text for text in run.steps.values_list("facts_json", flat=True) if '"lost"' in text]
    assert json.loads(told)[0]["cost_usd"] == 0


def test_a_turn_that_was_not_used_counts_against_no_limit() -> None:
    with FakeModelServer([]) as server:
        lease = claimed(server, most_requests=1)
    with turn_at(limits(), lease, 400):
        assert ModelTurn.objects.exists()
    assert not ModelTurn.objects.exists()
    let_all_go()


def test_only_so_many_requests_begin_in_a_minute() -> None:
    with FakeModelServer([]) as server:
        one, two, three = (claimed(server, most_requests=2) for _ in range(3))
    end_turn(taken(one), 7)
    later(20)
    end_turn(taken(two), 7)
    waits = full(three)
    assert waits.limit == "requests"
    assert 38 < waits.wait_s <= 40
    later(41)
    taken(three)
    assert ModelTurn.objects.count() == 2, "what counts no more is not kept"
    let_all_go()


def test_only_so_many_tokens_are_used_in_a_minute_and_what_was_used_takes_the_place_of_the_estimate() -> None:
    with FakeModelServer([]) as server:
        one, two, three = (claimed(server, most_tokens=1_000) for _ in range(3))
    first = taken(one, 900)
    assert full(two, 300).limit == "tokens"
    end_turn(first, 600)
    later(30)
    end_turn(taken(two, 300), 300)
    waits = full(three, 500)
    assert 28 < waits.wait_s <= 30
    assert 58 < full(three, 950).wait_s <= 60
    later(31)
    taken(three, 500)
    let_all_go()


def test_a_call_that_is_larger_than_the_limit_is_made_once_no_other_counts() -> None:
    with FakeModelServer([]) as server:
        one, two = (claimed(server, most_tokens=100) for _ in range(2))
    end_turn(taken(one, 500), 500)
    assert full(two, 500).limit == "tokens"
    later(61)
    taken(two, 500)
    let_all_go()


def test_workers_that_ask_at_the_same_moment_take_no_more_places_than_there_are() -> None:
    with FakeModelServer([]) as server:
        leases = [claimed(server, most_calls=3) for _ in range(8)]
    turns = in_threads(8, lambda number: take_turn(limits(), leases[number], 10))
    assert sum(isinstance(turn, int) for turn in turns) == 3
    let_all_go()


def test_a_run_waits_for_its_turn_without_a_worker_and_its_page_says_for_what() -> None:
    with FakeModelServer([SAYS_93, SAYS_93]) as server:
        other = claimed(server, most_calls=1)
        turn = taken(other)
        run = once(launched(server, most_calls=1))
        assert (run.status, run.worker, run.steps.count(), len(server.asked)) == ("queued", "", 0, 0)
        assert (run.due_at - db.now()).total_seconds() > 0
        browser = signed_in(cast_member("carol", is_superuser=True))
        page = browser.get(reverse("run", args=[run.pk])).text
        assert "Queued for model tiny: at most 1 call at once." in page
        assert "Queued for model" in page and "Try now" not in page
        assert "Queued for model" in browser.get(reverse("runs")).text
        end_turn(turn, 7)
        assert work(run).status == "succeeded"
        assert ModelTurn.objects.filter(run=run).get().tokens == 47
    let_all_go()


def test_a_wait_for_a_turn_costs_nothing_of_a_limit_and_nothing_of_the_patience() -> None:
    with FakeModelServer([BUSY, SAYS_93]) as server:
        other = claimed(server, most_calls=1)
        run = once(launched(server, most_calls=1, input_price=1.0, output_price=1.0))
        Run.objects.filter(pk=run.pk).update(due_at=db.now() + timedelta(minutes=1))
        turn = taken(other)
        for _ in range(5):
            once(run)
        assert (run.cost_usd, run.reserved_usd, len(server.asked)) == (0.0, 0.0, 1)
        end_turn(turn, 7)
        assert work(run).status == "succeeded"
        assert not run.steps.filter(kind="recovered").exists()
    let_all_go()


def test_two_workers_never_call_the_model_at_once_where_one_call_is_the_most() -> None:
    inside, most, guard = 0, 0, threading.Lock()
    entered = threading.Event()

    def behave(asked: Asked) -> Behaviour:
        nonlocal inside, most
        with guard:
            inside += 1
            most = max(most, inside)
            first = not entered.is_set()
            entered.set()
        if first:
            assert second_waits.wait(LONGEST_S)
        with guard:
            inside -= 1
        return SAYS_93

    second_waits = threading.Event()
    with FakeModelServer(behave) as server:
        runs = [launched(server, most_calls=1) for _ in range(2)]

        def drive(number: int) -> None:
            if number == 1:
                assert entered.wait(LONGEST_S)
            driver.drive(runs[number].pk)
            if number == 1:
                second_waits.set()

        for run in runs:
            make_due(run.pk)
        in_threads(2, drive)
        assert most == 1
        assert {work(run).status for run in runs} == {"succeeded"}
        assert most == 1
