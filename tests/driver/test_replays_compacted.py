"""Runs whose context was compacted, mended and compacted on demand come out the same again."""

from __future__ import annotations

import pytest

from runs import actions
from runs.driver import Slice
from runs.models import Run
from tests.compacting import WRONG, long_run
from tests.launching import ALLOW, FINAL, launch, think
from tests.prompts import drive, hiding_run
from tests.prompts import long_run as searching_run
from tests.replaying import check_as_read, check_replay, relaunched
from tests.running import decide, transitions, work
from tests.workers import slice_of

pytestmark = pytest.mark.usefixtures("every_run_verifies")


def compactions(run: Run) -> int:
    return run.steps.filter(kind="compaction").count()


def test_a_run_that_was_compacted_is_replayed_and_plays_from_its_script() -> None:
    run = work(searching_run(14))
    assert compactions(run) > 1
    check_replay(run)
    again = relaunched(run)
    assert (compactions(again), again.head) == (compactions(run), run.head)


def test_so_is_one_whose_provider_counts_the_tokens() -> None:
    run = searching_run(14)
    while not run.finished:
        drive(run, moves=9)
    assert compactions(run) > 1
    check_as_read(run)


def test_so_is_one_that_hid_a_result() -> None:
    run = hiding_run()
    while not run.finished:
        drive(run)
    check_as_read(run)


def test_what_people_do_to_the_context_comes_in_its_order() -> None:
    run = work(long_run())
    seq = run.steps.filter(kind="compaction").values_list("seq", flat=True)[0]
    actions.edit_summary(run, seq=seq, version=1, text="Paid: 45.", reason="It was 45.", by=None)
    actions.pin(run, path=f"st:{transitions(run, 'executed')[-1]}", by=None, reason="needed")
    decide(run, "approve")
    work(run)
    newest = run.steps.filter(kind="compaction").order_by("-seq").values_list("seq", flat=True)[0]
    actions.undo_summary(run, seq=newest, reason="no", by=None)
    actions.compact_now(run, by=None, reason="now")
    while not run.finished:
        decide(run, "approve")
        work(run)
    assert compactions(run) > 1
    check_replay(run)


def test_a_compaction_that_was_asked_for_without_any_limit_is_replayed() -> None:
    run = work(long_run(limit=None, summaries=(WRONG, "Second.")))
    actions.compact_now(run, by=None, reason="now")
    while not run.finished:
        decide(run, "approve")
        work(run)
    assert compactions(run) == 1
    check_replay(run)


def test_a_fork_after_a_compaction_goes_on_from_its_summary() -> None:
    run = work(searching_run(14))
    at = transitions(run)[-5]
    forked = work(actions.fork(run, at=at, by=None))
    assert compactions(forked) >= 1
    check_replay(forked)


@pytest.mark.parametrize("back_to", [1, 5])
def test_a_fork_that_went_back_over_rows_that_it_was_given_is_replayed(back_to: int) -> None:
    """Until it went back they were in its window (the chaos bench found the replay that lacked them)."""
    run = work(searching_run(14))
    forked = actions.fork(run, at=transitions(run, "executed")[7], by=None)
    given = compactions(forked)
    while compactions(forked) == given:
        slice_of(forked, Slice(moves=4))
    actions.rewind(forked, to=transitions(forked, "executed")[back_to], by=None)
    check_replay(work(forked))


def test_a_fork_that_went_back_over_calls_that_it_was_given_is_replayed() -> None:
    """Until it went back they counted."""
    again = [think("search", q="a"), think("search", q="b"), think("search", q="a")]
    run = launch(*again, FINAL, rules=[{"when": {"same_call": 2}, "do": "ask"}, *ALLOW])
    work(run)
    decide(run, "approve")
    forked = work(actions.fork(work(run), at=transitions(run, "executed")[1], by=None))
    decide(forked, "rollback", to_step=transitions(forked)[0])
    while not work(forked).finished:
        decide(forked, "approve")
    check_replay(forked)
