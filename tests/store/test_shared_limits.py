"""Limits reserve before a call and settle after it; children and forks share those of the run that they came from."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from runs import actions, driver
from runs.driver import Slice
from runs.driver.attempts import TURN_S
from runs.driver.ports import NoSuchModel
from runs.driver.slices import WHOLE
from runs.engine.effects import ModelReplied, ToolReturned, Usage
from runs.models import Budget, Run
from runs.store import copying, db, decisions, errors, leases, shared_limits
from tests.cast import person
from tests.launching import FINAL, launch, script, think
from tests.priced import (
    LONG,
    PRICE,
    THINKING,
    Counted,
    DoomedJourney,
    PricedJourney,
    die_in_a_call,
    fork,
    lost_in_a_call,
    travel,
    waiting_run,
)
from tests.running import (
    decide,
    in_threads,
    lose_worker,
    pending,
    transitions,
    work,
)
from tests.stack import LONGEST_S
from tests.workers import MeddledJourney, WorkerKilled, at_call, die_in, kill, seat, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

LATE = ModelReplied(text="too late", usage=Usage(input_tokens=500, output_tokens=50, cost_usd=0.005))


# --- one run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1_000, 1_500, 2_400])
def test_a_limit_is_never_passed_where_the_worst_case_is_known(limit: int) -> None:
    run = launch(*THINKING, FINAL, limits={"tokens": limit}, max_steps=30)
    model = travel(run)
    used = run.input_tokens + run.output_tokens
    assert model.seen, "there was room for one call at least"
    assert all(before + 120 <= limit for before in range(0, used, 120))
    assert used <= limit
    assert pending(run).kind == "limit"
    assert "may use more than the" in pending(run).why


def test_what_a_call_may_use_is_set_aside_while_it_is_made_and_settled_after() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    model = travel(run)
    assert len(model.seen) == 3
    for usd, tokens, reply in model.seen:
        assert reply == PRICE.reply_tokens
        assert tokens > reply
        assert usd == pytest.approx((tokens - reply) * PRICE.input_usd + reply * PRICE.output_usd)
    assert (run.reserved_usd, run.reserved_tokens) == (0, 0)
    assert run.cost_usd == pytest.approx(0.003)


def test_a_limit_shortens_the_reply_before_it_forbids_the_call() -> None:
    run = launch(*THINKING, FINAL, limits={"tokens": 1_500}, max_steps=30)
    model = travel(run)
    replies = [reply for _, _, reply in model.seen]
    assert replies[0] == PRICE.reply_tokens
    assert 256 <= min(replies) < PRICE.reply_tokens
    assert all(before >= after for before, after in pairwise(replies))


def test_a_top_up_lets_it_go_on() -> None:
    run = launch(*THINKING[:6], FINAL, limits={"tokens": 1_000}, max_steps=30)
    travel(run)
    decide(run, "top_up", args={"tokens": 5_000})
    travel(run)
    assert run.exit_reason == "goal_achieved"


def test_a_run_without_limits_reserves_nothing() -> None:
    model = travel(run := launch(THINKING[0], FINAL))
    assert [(usd, tokens) for usd, tokens, _ in model.seen] == [(0, 0), (0, 0)]
    assert run.exit_reason == "goal_achieved"


def test_a_summary_is_a_model_call_and_reserved_like_one() -> None:
    reply = "Done: looked."
    played = script(*[think("search", q=str(n) * 300) for n in range(8)], FINAL)
    played["replies"]["summary"] = [reply] * 8
    run = launch(
        played=played, limits={"cost_usd": 1.0}, max_steps=30, ruleset=[], context={"limit_tokens": 1_000}
    )
    model = travel(run, limit_tokens=1_000)
    assert run.steps.filter(kind="compaction").exists()
    roles = dict(zip(model.roles, model.seen, strict=True))
    usd, tokens, _ = roles["summary"]
    assert usd > 0 and tokens > 0, "it was set aside before the summariser was asked"


# --- calls whose worker is lost ---------------------------------------------------------------------------------


def recovered(run: Run) -> Any:
    return json.loads(run.steps.filter(kind="recovered").latest("seq").facts_json)[0]


def test_a_call_whose_worker_was_lost_counts_as_what_it_may_have_used_at_most() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    usd, tokens, _ = lost_in_a_call(run).model.seen[0]
    assert usd > 0
    travel(run)
    told = recovered(run)
    assert (told["cost_usd"], told["tokens"]) == (pytest.approx(usd), tokens)
    assert "counts as at most" in told["message"]
    assert run.exit_reason == "goal_achieved"
    assert run.cost_usd == pytest.approx(0.003 + usd)
    assert run.input_tokens + run.output_tokens == 3 * 120 + tokens
    assert (run.reserved_usd, run.reserved_tokens) == (0, 0)


def test_lost_calls_can_use_a_limit_up() -> None:
    run = launch(*THINKING, FINAL, limits={"tokens": 1_250}, max_steps=30)
    while leases.lost_in_a_row(run) < leases.MOST_LOST - 1:
        lost_in_a_call(run)
        with seat(run, "next") as hold:
            leases.let_go(hold.lease)
    travel(run)
    assert run.input_tokens + run.output_tokens <= 1_250
    assert pending(run).kind == "limit"


def test_where_the_lost_worker_was_only_slow_the_real_price_takes_the_place_of_the_guess() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    late = lost_in_a_call(run)
    travel(run)
    late.keep(late.at.asked, late.model.late)
    run.refresh_from_db()
    assert run.cost_usd == pytest.approx(0.003 + 0.001), "four calls were made, and paid"
    assert run.input_tokens + run.output_tokens == 4 * 120


def test_a_call_that_was_given_back_is_counted_until_it_is_known_what_it_cost() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    with seat(run, "leaving") as hold:
        journey = die_in_a_call(hold)
        assert leases.hand_back(hold.lease)
    travel(run)
    assert run.cost_usd > 0.003
    journey.keep(journey.at.asked, journey.model.late)
    run.refresh_from_db()
    assert run.cost_usd == pytest.approx(0.004)


def test_a_call_that_was_given_back_and_answered_before_the_next_worker_came_counts_once() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    with seat(run, "leaving") as hold:
        journey = die_in_a_call(hold)
        assert leases.hand_back(hold.lease)
    journey.keep(journey.at.asked, journey.model.late)
    travel(run)
    assert run.cost_usd == pytest.approx(0.004), "four calls were made, and paid"


def lost_in_a_tool_and_then_in_a_call(run: Run) -> tuple[MeddledJourney, DoomedJourney]:
    """The worker sleeps in a search; the next one is lost in a model call."""
    asleep = die_in(run, only="search", after=kill)
    with seat(run, "beta") as hold:
        journey = DoomedJourney(hold)
        with pytest.raises(WorkerKilled):
            journey.drive(LONG)
    lose_worker(run)
    return asleep, journey


def test_a_late_answer_of_a_tool_takes_back_no_guess() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    asleep, _ = lost_in_a_tool_and_then_in_a_call(run)
    travel(run)
    before = Run.objects.get(pk=run.pk)
    asleep.keep(asleep.at.asked, ToolReturned(value="three results"))
    run.refresh_from_db()
    assert (run.cost_usd, run.output_tokens) == (before.cost_usd, before.output_tokens)


def test_two_late_answers_take_one_guess_back_once() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    asleep, lost = lost_in_a_tool_and_then_in_a_call(run)
    with seat(run, "gamma") as hold:
        leases.let_go(hold.lease)
    asleep.keep(asleep.at.asked, ToolReturned(value="three results"))
    lost.keep(lost.at.asked, lost.model.late)
    travel(run)
    calls = run.exchanges.filter(kind="model_call").count() + 1
    assert run.cost_usd == pytest.approx(0.001 * calls)


# --- calls that are under way while others write ------------------------------------------------------------------


def test_a_lost_call_counts_where_a_person_moved_the_run_before_the_next_worker() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    usd, _, _ = lost_in_a_call(run).model.seen[0]
    actions.pause(run, by=None)
    actions.resume(run, by=None)
    travel(run)
    assert run.cost_usd == pytest.approx(0.003 + usd)


def test_a_family_cant_pass_its_limit_by_a_pause_in_a_call() -> None:
    run = waiting_run(0.5)
    copy, other = fork(run), fork(run)
    worst = shared_limits.Worst(cost_usd=0.4, tokens=100)
    with seat(copy) as one, seat(other) as two:
        assert shared_limits.reserve(copy, one.lease.epoch, worst, {})
        actions.pause(copy, by=None)  # the call goes on, and is paid
        assert not shared_limits.reserve(other, two.lease.epoch, worst, {}), "0.8 of 0.5"


def test_a_call_that_was_under_way_when_its_run_was_stopped_counts_until_it_is_known() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    lost = lost_in_a_call(run)
    usd, _, _ = lost.model.seen[0]
    actions.abort(run, by=None)
    run.refresh_from_db()
    assert (run.reserved_usd, run.reserved_tokens) == (0, 0)
    assert run.cost_usd == pytest.approx(usd)
    lost.keep(lost.at.asked, lost.model.late)
    run.refresh_from_db()
    assert run.cost_usd == pytest.approx(0.001)


def test_a_call_that_ends_in_a_fault_of_ours_counts_as_its_worst_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = launch(*THINKING[:2], FINAL, limits={"cost_usd": 1.0}, max_steps=30)
    aside: list[float] = []

    class Faulty(Counted):
        """A model whose client breaks once the provider has billed the call."""

        def ask(self, request: Any, watch: Any) -> Any:
            super().ask(request, watch)
            aside.append(self.seen[-1][0])
            raise RuntimeError

    class FaultyJourney(PricedJourney):
        def prepare(self) -> None:
            super().prepare()
            self.ports.model = Faulty(self.model.model, Run.objects.get(pk=self.run.pk))

    monkeypatch.setattr(driver, "Worker", FaultyJourney)
    driver.drive(run.pk)
    monkeypatch.undo()
    travel(run)
    assert aside[0] > 0
    assert run.cost_usd == pytest.approx(0.003 + aside[0])


def lost_with_the_ask_written(tokens: int, **settings: Any) -> Run:
    """A run whose worker is lost in a model call that a row asks for; a reply of 400 tokens was set aside for it."""

    class DoomedInTheSecond(Counted):
        def ask(self, request: Any, watch: Any) -> Any:
            answer = super().ask(request, watch)
            return answer if len(self.seen) < 2 else kill()

    class Second(PricedJourney):
        def prepare(self) -> None:
            super().prepare()
            self.ports.model = DoomedInTheSecond(self.model.model, Run.objects.get(pk=self.run.pk))

    run = launch("no JSON", FINAL, limits={"tokens": tokens}, max_steps=30, **settings)
    with seat(run, "doomed") as hold, pytest.raises(WorkerKilled):
        Second(hold).drive(LONG)
    lose_worker(run)
    assert run.exchanges.get(seq=2).status == "asked"
    return run


def replayed(run: Run) -> Any:
    """Where a replay with the same prices comes out otherwise."""
    known = {"price": PRICE, "context_tokens": PricedJourney.limit_tokens}
    return driver.made_again(driver.record_of(run).model_copy(update=known)).difference


def test_where_a_lost_call_leaves_no_room_for_the_written_ask_a_person_is_asked() -> None:
    run = lost_with_the_ask_written(1_200)
    travel(run)
    question = pending(run)
    assert (question.kind, question.limit, run.status) == ("limit", "tokens", "waiting")
    decide(run, "top_up", args={"tokens": 5_000})
    travel(run)
    assert run.answer == "42"
    assert replayed(run) is None


def test_where_it_leaves_less_room_the_ask_is_written_anew_with_a_shorter_reply() -> None:
    aside = Run.objects.get(pk=lost_with_the_ask_written(100_000).pk).reserved_tokens
    prompt = aside - PRICE.reply_tokens
    limit = 120 + aside + prompt + 300
    run = lost_with_the_ask_written(limit)
    model = travel(run)
    assert [reply for _, _, reply in model.seen] == [300]
    assert (run.answer, run.exchanges.get(seq=2).status) == ("42", "asked")
    assert run.input_tokens + run.output_tokens <= limit
    assert replayed(run) is None


def test_where_the_run_is_to_stop_at_its_limit_it_stops() -> None:
    run = lost_with_the_ask_written(1_200, on_limit="stop")
    travel(run)
    assert run.exit_reason == "token_limit"
    assert replayed(run) is None


def calling_a_child(*replies: Any) -> Run:
    """A run that calls a child, which replies so, and then sends; 1 USD for both."""
    played = script(
        {"thought": "ask", "action": {"tool": "agent.helper", "args": {"goal": "look"}}},
        think("send", to="bob"),
        FINAL,
        subgraphs={"helper": {"replies": {"decision": [*replies]}}},
    )
    helper = {"machine": "ruled", "settings": {}}
    return launch(played=played, subgraphs={"helper": helper}, limits={"cost_usd": 1.0})


def test_what_a_child_pays_after_its_end_counts_for_its_parent_and_its_family() -> None:
    run = calling_a_child("no JSON", THINKING[0], FINAL)
    driver.drive(run.pk)
    copy = actions.fork(run, at=0, by=None)
    child = Run.objects.get(parent=run)
    journey = die_in(child, before=kill)
    actions.rewind(run, to=transitions(run)[0], by=None)  # the child is stopped with its call under way
    journey.keep(journey.at.asked, LATE)
    child.refresh_from_db()
    run.refresh_from_db()
    assert child.finished
    assert (child.cost_usd, run.cost_usd) == pytest.approx((0.005, 0.001 + 0.005))
    assert shared_limits.limits_shared_by(copy)["cost_usd"].elsewhere == pytest.approx(0.001 + 0.005)


def test_a_replay_and_a_fork_count_lost_calls_too() -> None:
    run = launch(*THINKING[:2], FINAL, limits={"tokens": 5_000}, max_steps=30)
    lost_in_a_call(run)
    travel(run)
    again = driver.made_again(driver.record_of(run))
    for used in (again.snapshot.totals, copying.totals_at(run, run.head)):
        assert used.input_tokens + used.output_tokens == run.input_tokens + run.output_tokens
        assert used.cost_usd == pytest.approx(run.cost_usd)
    copy, difference = actions.replay(run, by=None)
    assert difference is None
    assert copy.head == run.head


# --- families -----------------------------------------------------------------------------------------------------


def test_a_fork_shares_the_limit_of_the_run_that_it_came_from() -> None:
    run = waiting_run(0.004)
    copy = fork(run)
    assert copy.root_id == run.pk
    shared = shared_limits.limits_shared_by(copy)["cost_usd"]
    # The copied call counts once: 0.002 of the original, nothing new of the fork.
    assert shared.limit == 0.004
    assert copy.cost_usd + shared.elsewhere == pytest.approx(0.002)
    work(copy)
    assert pending(copy).kind == "tool_call"
    work(run)
    other = fork(run)
    work(other)
    assert pending(other).kind == "limit", "0.002 + 0.001 + 0.001 is the limit"
    assert f"Run {run.pk} and its forks share" in pending(other).why


def test_adding_to_the_limit_in_a_fork_adds_to_what_all_share() -> None:
    run = waiting_run(0.003)
    copy = fork(run)
    work(copy)
    other = fork(run)
    work(other)
    assert pending(other).kind == "limit"
    decide(other, "top_up", args={"cost_usd": 0.01})
    work(other)
    assert pending(other).kind == "tool_call"
    assert shared_limits.limits_shared_by(run)["cost_usd"].limit == pytest.approx(0.013)
    assert Budget.objects.get(run=run, scope="limits").limit == 0.003


def test_a_child_stops_at_its_parents_limit() -> None:
    child = {"machine": "ruled", "settings": {"max_steps": 20}}
    played = script(
        {"thought": "ask", "action": {"tool": "agent.helper", "args": {"goal": "look"}}},
        FINAL,
        subgraphs={"helper": {"replies": {"decision": [*THINKING[:12], FINAL]}}},
    )
    run = work(launch(played=played, subgraphs={"helper": child}, limits={"cost_usd": 0.005}))
    helper = Run.objects.get(parent=run)
    assert helper.root_id == run.pk
    assert pending(helper).kind == "limit"
    assert run.cost_usd + helper.cost_usd == pytest.approx(0.005)


def with_a_busy_child(*, child: dict[str, Any], **settings: Any) -> Run:
    """A run whose child wants to make more calls than the limit of both allows, driven as far as it goes."""
    helper = {"machine": "ruled", "settings": {"max_steps": 20, **child}}
    played = script(
        {"thought": "ask", "action": {"tool": "agent.helper", "args": {"goal": "look"}}},
        FINAL,
        subgraphs={"helper": {"replies": {"decision": [*THINKING[:6], FINAL]}}},
    )
    return work(launch(played=played, subgraphs={"helper": helper}, **settings))


def test_a_child_of_a_run_that_stops_at_its_limit_stops_there_too() -> None:
    """Nobody is asked in a run that nobody watches."""
    run = with_a_busy_child(child={}, limits={"tokens": 400}, on_limit="stop")
    helper = Run.objects.get(parent=run)
    assert (helper.exit_reason, run.exit_reason) == ("token_limit", "token_limit")


def test_a_child_that_says_itself_what_happens_at_a_limit_is_heeded() -> None:
    run = with_a_busy_child(child={"on_limit": "ask"}, limits={"tokens": 400}, on_limit="stop")
    assert pending(Run.objects.get(parent=run)).kind == "limit"
    assert run.status == "waiting"


def test_what_was_added_in_a_child_is_not_asked_for_again_in_its_parent() -> None:
    """The parent's own limit is the one that both share: it has what was added, once the child has ended."""
    run = with_a_busy_child(child={}, limits={"cost_usd": 0.0035})
    helper = Run.objects.get(parent=run)
    decide(helper, "top_up", args={"cost_usd": 0.0055})
    work(helper)
    run.refresh_from_db()
    assert run.status == "succeeded"
    assert run.cost_usd == pytest.approx(0.001 * 9)
    told = json.loads(run.steps.get(kind="limit").facts_json)[0]
    assert (told["added"], told["limit"], told["by"]) == (0.0055, 0.009, f"an answer in run {helper.pk}")
    assert shared_limits.limits_shared_by(helper)["cost_usd"].limit == pytest.approx(0.009), (
        "what was added counts once"
    )
    assert actions.replay(run, by=None)[1] is None


def test_what_was_added_in_a_fork_is_its_sources_too() -> None:
    run = waiting_run(0.003)
    copy = work(fork(run))
    other = work(fork(run))
    decide(other, "top_up", args={"cost_usd": 0.01})
    decide(run, "reject")
    work(run)
    assert (run.status, copy.status) == ("succeeded", "waiting")
    assert Budget.objects.get(run=run, scope="limits").limit == pytest.approx(0.013)
    assert shared_limits.limits_shared_by(copy)["cost_usd"].limit == pytest.approx(0.013)


def held_together() -> tuple[Run, Run]:
    """A run and its fork, both of which wait at the limit that they share; the fork has none of its own."""
    run = work(launch(*THINKING[:5], FINAL, limits={"cost_usd": 0.002}, max_steps=30))
    copy = work(fork(run, settings={"limits": None}))
    assert [pending(member).kind for member in (run, copy)] == ["limit", "limit"]
    return run, copy


@pytest.mark.parametrize("first", [0, 1])
def test_what_is_added_in_one_run_lets_all_go_on_that_wait_for_it(first: int) -> None:
    run, copy = held_together()
    asked, other = ((run, copy), (copy, run))[first]
    decide(asked, "top_up", args={"cost_usd": 1.0})
    told = json.loads(other.steps.get(kind="decision").facts_json)[0]
    assert (told["verdict"], told["args"]) == ("top_up", None)
    assert told["message"] == f"Added in run {asked.pk}; there is room for this one too."
    assert (work(asked).status, work(other).status) == ("succeeded", "succeeded")
    assert shared_limits.limits_shared_by(copy)["cost_usd"].limit == pytest.approx(1.002), (
        "what was added counts once"
    )
    assert [driver.made_again(driver.record_of(member)).difference for member in (run, copy)] == [None, None]


def test_the_root_takes_over_each_amount_that_is_added_elsewhere_once() -> None:
    run, copy = held_together()
    for times in (1, 2):
        decide(copy, "top_up", args={"cost_usd": 0.001})
        work(copy)
        work(run)
        own = run.budgets.get(scope="limits", name="cost_usd").limit
        assert own == pytest.approx(0.002 + times * 0.001)
        assert (pending(run).kind, pending(copy).kind) == ("limit", "limit")


def test_what_is_added_lets_nothing_go_on_that_the_person_may_not_decide() -> None:
    """She may decide in her own fork, and sees nothing of the run that it came from."""
    run, copy = held_together()
    dora = person("dora", "decide_interrupt")
    Run.objects.filter(pk=copy.pk).update(owner=dora)
    actions.decide(pending(copy).pk, verdict="top_up", args={"cost_usd": 1.0}, by=dora, channel="web")
    assert pending(run).kind == "limit"
    assert not run.steps.filter(kind="decision").exists()


def test_where_one_run_uses_up_what_was_added_the_other_one_asks_again() -> None:
    run, copy = held_together()
    decide(run, "top_up", args={"cost_usd": 0.001})
    work(run)
    assert (work(copy).status, pending(copy).kind) == ("waiting", "limit")
    with pytest.raises(errors.BadDecision, match="Say how much to add"):
        decide(copy, "top_up")


def test_a_childs_cost_counts_once_when_its_parent_knows_it() -> None:
    run = work(calling_a_child(THINKING[0], FINAL))
    assert pending(run).kind == "tool_call"
    shared = shared_limits.limits_shared_by(run)["cost_usd"]
    assert run.cost_usd == pytest.approx(0.004)
    assert shared.elsewhere == 0


@pytest.mark.parametrize("how", ["ended", "stopped"])
def test_a_child_that_has_ended_sees_its_own_cost_once(how: str) -> None:
    """Its parent has it among its own by then; the page of either says how much all have used."""
    run, child = waiting_for_a_child()
    if how == "ended":
        work(child)
    else:
        slice_of(child, Slice(moves=5))
        actions.rewind(run, to=transitions(run)[0], by=None)
    run.refresh_from_db()
    child.refresh_from_db()
    assert child.finished and child.cost_usd > 0
    shared = shared_limits.limits_shared_by(child)["cost_usd"]
    assert child.cost_usd + shared.elsewhere == pytest.approx(run.cost_usd)


@pytest.mark.parametrize("moved", ["paused", "noted", "paused and resumed"])
def test_a_childs_cost_counts_while_its_parent_is_paused(moved: str) -> None:
    """A row that people add to the parent tells it nothing of what its child has cost."""
    run, child = waiting_for_a_child()
    copy = actions.fork(run, at=0, by=None)
    if moved == "noted":
        decisions.note(run.pk, "told", "A row that is no move.")
    else:
        actions.pause(run, by=None)
    if moved == "paused and resumed":
        actions.resume(run, by=None)
    slice_of(child)
    run.refresh_from_db()
    assert run.cost_usd == pytest.approx(0.001)
    assert child.cost_usd == pytest.approx(0.002)
    assert shared_limits.limits_shared_by(copy)["cost_usd"].elsewhere == pytest.approx(0.003)


@pytest.mark.parametrize("how", ["stopped", "gone back", "gone on", "refused"])
def test_a_childs_cost_counts_once_however_its_parent_goes_on(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, child = waiting_for_a_child()
    copy = actions.fork(run, at=0, by=None)
    actions.pause(run, by=None)
    work(child)
    match how:
        case "stopped":
            actions.abort(run, by=None)
        case "gone back":
            actions.rewind(run, to=transitions(run)[0], by=None)
        case "gone on":
            actions.resume(run, by=None)
            work(run)
        case "refused":
            actions.resume(run, by=None)
            monkeypatch.setattr("runs.driver.worker.ports_of", _no_such_model)
            work(run)
            assert run.exit_reason == "model_error"
    run.refresh_from_db()
    assert run.cost_usd >= 0.003 - 1e-9
    assert shared_limits.limits_shared_by(copy)["cost_usd"].elsewhere == pytest.approx(run.cost_usd)


def test_the_cost_of_a_child_that_is_stopped_with_its_parent_counts_once() -> None:
    run, child = waiting_for_a_child()
    copy = actions.fork(run, at=0, by=None)
    slice_of(child, Slice(moves=5))
    assert child.cost_usd == pytest.approx(0.001)
    actions.abort(run, by=None)
    run.refresh_from_db()
    assert run.cost_usd == pytest.approx(0.002)
    assert shared_limits.limits_shared_by(copy)["cost_usd"].elsewhere == pytest.approx(0.002)


def _no_such_model(run: Run) -> Any:
    raise NoSuchModel(run.model)


def waiting_for_a_child() -> tuple[Run, Run]:
    """A run that has used 0.001 USD and waits for its child, which has not begun."""
    run = calling_a_child(THINKING[0], FINAL)
    driver.drive(run.pk)
    return run, Run.objects.get(parent=run)


def test_a_run_that_is_forked_in_a_slice_heeds_what_its_fork_uses_at_once() -> None:
    run = launch(*THINKING[:12], FINAL, limits={"cost_usd": 0.006}, max_steps=30)

    def forked() -> None:
        copy = work(fork(Run.objects.get(pk=run.pk)))
        assert pending(copy).kind == "limit"

    slice_of(run, WHOLE, after=at_call(3, forked))
    assert pending(run).kind == "limit"
    used = sum(member.cost_usd - member.copied_usd for member in (run, Run.objects.get(root=run)))
    assert used <= 0.006 + 0.001 + 1e-9, "one call may be under way"


def test_what_others_use_is_looked_up_only_where_there_is_a_limit_to_share() -> None:
    assert _lookups(launch(*THINKING[:4], FINAL)) == 0
    assert _lookups(launch(*THINKING[:4], FINAL, limits={"active_seconds": 1_000})) == 1
    child = {"machine": "ruled", "settings": {}}
    played = script(
        {"thought": "ask", "action": {"tool": "agent.helper", "args": {"goal": "look"}}},
        FINAL,
        subgraphs={"helper": {"replies": {"decision": [THINKING[0], FINAL]}}},
    )
    run = launch(played=played, subgraphs={"helper": child})
    driver.drive(run.pk)
    assert _lookups(Run.objects.get(parent=run)) == 1


def _lookups(run: Run) -> int:
    """How often a slice of the run asks for limits, or for runs that came from another."""
    with CaptureQueriesContext(connection) as asked:
        slice_of(run, WHOLE)
    looks = ('"runs_budget"."scope" = ', "SELECT 1 FROM runs_budget", "COALESCE(mine.root_id, ")
    assert run.finished
    return sum(any(look in query["sql"] for look in looks) for query in asked)


def test_calls_of_one_family_at_the_same_moment_cant_pass_the_limit_together() -> None:
    run = waiting_run(1.0)
    members = [run, *(fork(run) for _ in range(7))]
    worst = shared_limits.Worst(cost_usd=0.3, tokens=100)
    epochs = {member.pk: Run.objects.get(pk=member.pk).epoch for member in members}
    got = in_threads(8, lambda n: shared_limits.reserve(members[n], epochs[members[n].pk], worst, {}))
    assert sum(got) == 3
    reserved = sum(Run.objects.filter(pk__in=epochs).values_list("reserved_usd", flat=True))
    assert reserved == pytest.approx(0.9)


def test_without_the_lock_of_the_family_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: each looks at the family as it was before the others reserved."""
    run = waiting_run(1.0)
    members = [run, *(fork(run) for _ in range(3))]
    before = {member.pk: shared_limits.limits_shared_by(member) for member in members}
    monkeypatch.setattr("runs.store.shared_limits.limits_shared_by", lambda member: before[member.pk])
    worst = shared_limits.Worst(cost_usd=0.3, tokens=100)
    got = [
        shared_limits.reserve(member, Run.objects.get(pk=member.pk).epoch, worst, {}) for member in members
    ]
    assert sum(got) == 4, "1.2 of 1.0"


class Meeting:
    """Holds the first call of several slices until each slice is in its call or over: all are under way at once."""

    def __init__(self, slices: int) -> None:
        self.slices = slices
        self.changed = threading.Condition()

    def one_is_there(self) -> None:
        with self.changed:
            self.slices -= 1
            self.changed.notify_all()

    def in_a_call(self) -> None:
        self.one_is_there()
        with self.changed:
            assert self.changed.wait_for(lambda: self.slices <= 0, timeout=LONGEST_S)


def drive_together(members: list[Run]) -> None:
    """One slice of each at the same moment, all their first calls under way at once."""
    meeting = Meeting(len(members))

    def one(number: int) -> None:
        try:
            slice_of(
                members[number], WHOLE, worker=f"worker {number}", before=meeting.in_a_call, only="decision"
            )
        finally:
            meeting.one_is_there()

    in_threads(len(members), one)


def spent(members: list[Run]) -> float:
    """What they have paid, each copied call once."""
    runs = Run.objects.filter(pk__in=[member.pk for member in members])
    return round(sum(run.cost_usd - run.copied_usd for run in runs), 10)


@pytest.mark.parametrize(("limit", "calls"), [(0.0105, 7), (0.005, 5), (0.0035, 3)])
def test_scripts_of_one_family_at_the_same_moment_pass_no_limit(limit: float, calls: int) -> None:
    run = work(launch(THINKING[0], think("send", to="bob"), *THINKING, FINAL, limits={"cost_usd": limit}))
    members = [fork(run) for _ in range(5)]
    drive_together(members)
    assert spent([run, *members]) <= limit
    for member in members:
        assert pending(work(member)).kind in ("limit", "tool_call")
        assert driver.made_again(driver.record_of(member)).difference is None
    assert spent([run, *members]) == pytest.approx(0.001 * calls)


UNPRICED = replace(PRICE, input_usd=0.0, output_usd=0.0)


class UnpricedJourney(MeddledJourney):
    """A slice whose model has a price list without prices: its server tells the cost afterwards."""

    def prepare(self) -> None:
        super().prepare()
        self.ports.price = UNPRICED
        self.ports.context_tokens = self.reader.limit = PricedJourney.limit_tokens


def family_of_unpriced(limit: float) -> list[Run]:
    """Six runs that share a limit and have used 0.002 of it, the first one waiting for a person."""
    run = waiting_run(limit)
    return [run, *(fork(run) for _ in range(5))]


def test_calls_whose_cost_nobody_knows_are_made_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    run, *members = family_of_unpriced(0.0025)
    under_way: list[int] = []
    most: list[int] = []
    meeting = Meeting(len(members))

    def called() -> None:
        under_way.append(1)
        meeting.in_a_call()
        most.append(len(under_way))

    def one(number: int) -> None:
        with seat(members[number], f"worker {number}") as hold:
            try:
                UnpricedJourney(hold, before=called, only="decision").drive(WHOLE)
            finally:
                leases.let_go(hold.lease)
                meeting.one_is_there()

    in_threads(len(members), one)
    assert most == [1]
    assert spent([run, *members]) == pytest.approx(0.003), "one call passed it, as it may"
    resting = Run.objects.filter(pk__in=[member.pk for member in members], status="queued")
    assert resting.count() == 4
    assert set(resting.values_list("worker", flat=True)) == {""}
    for member in resting:
        with seat(member) as hold:
            UnpricedJourney(hold).drive(WHOLE)
        assert pending(member).kind == "limit"
    assert spent([run, *members]) == pytest.approx(0.003)


@pytest.mark.parametrize(
    ("limits", "costs"), [({"cost_usd": 1.0}, True), ({"tokens": 500_000}, False), ({}, False)]
)
def test_only_a_limit_on_cost_wants_a_price(limits: dict[str, float], costs: bool) -> None:  # noqa: FBT001
    assert shared_limits.limits_cost(launch(FINAL, limits=limits)) is costs


def test_where_a_shared_limit_is_used_up_a_call_of_unknown_cost_has_no_room() -> None:
    _, one, other = family_of_unpriced(1.0)[:3]
    unknown = shared_limits.Worst(None, 500)
    with seat(one, "first") as first:
        shared = shared_limits.limits_shared_by(one)["cost_usd"]
        rest = shared.limit - shared.elsewhere - one.cost_usd
        Run.objects.filter(pk=other.pk).update(cost_usd=other.cost_usd + rest)
        assert not shared_limits.reserve(one, first.lease.epoch, unknown, {})
    Run.objects.filter(pk=other.pk).update(cost_usd=other.cost_usd)


@pytest.mark.parametrize("how", ["lost", "paused", "left"])
def test_no_run_waits_for_a_call_that_is_lost(how: str) -> None:
    _, one, other = family_of_unpriced(1.0)[:3]
    unknown = shared_limits.Worst(None, 500)
    with seat(one, "first") as first, seat(other, "second") as second:
        assert shared_limits.reserve(one, first.lease.epoch, unknown, {})
        with pytest.raises(errors.NotYet):
            shared_limits.reserve(other, second.lease.epoch, unknown, {})
        match how:
            case "paused":
                actions.pause(one, by=None)
            case "left":
                leases.hand_back(first.lease)
        Run.objects.filter(pk=one.pk).update(lease_until=Now() - timedelta(seconds=1))
        assert shared_limits.reserve(other, second.lease.epoch, unknown, {})


def test_a_run_that_rests_is_taken_again_a_moment_later() -> None:
    _, one, other = family_of_unpriced(1.0)[:3]
    with seat(one, "first") as first, seat(other, "second") as second:
        assert shared_limits.reserve(one, first.lease.epoch, shared_limits.Worst(None, 500), {})
        wanting = UnpricedJourney(second).drive(WHOLE)
        leases.let_go(second.lease)
    other.refresh_from_db()
    assert (other.status, other.worker, wanting) == ("queued", "", [other.pk])
    assert 0 < (other.due_at - db.now()).total_seconds() <= TURN_S


def test_somebody_else_has_the_seat() -> None:
    run = waiting_run(1.0)
    with pytest.raises(errors.Fenced):
        shared_limits.reserve(run, run.epoch - 1, shared_limits.Worst(0.1, 1), {})


def test_a_price_that_is_not_known_bounds_tokens_only() -> None:
    run = launch(*THINKING, FINAL, limits={"cost_usd": 0.002}, max_steps=30)
    travel(run, replace(PRICE, input_usd=0.0, output_usd=0.0))
    assert run.cost_usd == pytest.approx(0.002)
