"""A process that is told to end: what it lets go, what it finishes, and that it takes nothing more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from runs import driver, tasks
from runs.driver import spool
from runs.engine.effects import ToolReturned
from runs.models import Run
from runs.store import errors, leases
from tests.launching import ALLOW, FINAL, launch, script, think
from tests.running import in_threads, lose_worker, make_due, work
from tests.stack import LONGEST_S, wait_for
from tests.workers import Meddled, slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


@pytest.fixture(autouse=True)
def _open_again() -> Iterator[None]:
    """The tests' own process goes on."""
    yield
    driver.reopen()


def drained(handed_on: list[int] | None = None, seconds: float = 0.0) -> bool:
    given: list[int] = [] if handed_on is None else handed_on
    return driver.drain(seconds, given.append)


def drain_now() -> None:
    drained()


def drain_impatiently() -> None:
    """As a process that ends in the middle of what it has not let go; this one goes on."""
    drained(seconds=0.01)
    driver.cut_off(lambda: None)


def slice_while(deed: Callable[[], None], run: Run, only: str) -> Meddled | BaseException:
    """A slice in whose call `deed` happens; what was called, or why it ended."""
    try:
        return slice_of(run, before=deed, only=only)
    except errors.Fenced as fenced:
        return fenced


def test_nothing_new_is_taken_and_the_hint_goes_to_another_worker() -> None:
    run = launch(FINAL)
    tasks.sweep()
    assert drained()
    assert driver.drive(run.pk) == []
    run.refresh_from_db()
    assert (run.status, run.epoch) == ("queued", 0)
    assert tasks.sweep() == 1, "its hint came here, so the next sweep sends another one at once"


def test_a_run_between_two_moves_is_let_go_at_once() -> None:
    """The worker had just taken it."""
    run = launch(think("search", q="tides"), FINAL)
    drained()
    assert slice_of(run).calls == []
    assert (run.status, run.worker) == ("queued", "")
    driver.reopen()
    work(run)
    assert (run.status, run.model_calls, run.tool_calls, run.cost_usd) == ("succeeded", 2, 1, 0.002)


@pytest.mark.parametrize("only", ["decision", "search"])
def test_a_call_that_may_be_repeated_is_given_back_while_it_lasts(only: str) -> None:
    """Another worker has the run before the call has come to an end."""
    run = launch(think("search", q="tides"), FINAL)
    handed_on: list[int] = []
    taken: list[object] = []

    def told() -> None:
        assert drained(handed_on), "nothing is left to wait for"
        driver.reopen()
        taken.append(leases.claim(run.pk, "another"))

    slice_while(told, run, only)
    assert handed_on == [run.pk]
    assert taken != [None], "the run need not wait for the lease"
    run.refresh_from_db()
    assert run.worker == "another"
    lose_worker(run)
    work(run)
    assert (run.status, run.model_calls, run.tool_calls) == ("succeeded", 2, 1), "attempts of one call"


def test_a_streamed_reply_is_cut_and_counts_as_not_made() -> None:
    run = launch(played=script(FINAL, pace={"model_s": 0.3}))
    slice_while(drain_now, run, "decision")
    run.refresh_from_db()
    assert (run.status, run.head, run.model_calls, run.cost_usd) == ("queued", 0, 0, 0.0)
    driver.reopen()
    work(run)
    assert (run.status, run.model_calls, run.cost_usd) == ("succeeded", 1, 0.001)


def test_a_deed_is_waited_for_and_its_answer_kept() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    lost: list[int] = []
    world = slice_while(lambda: lost.append(drained()), run, "send")
    assert isinstance(world, Meddled) and world.calls == ["decision", "send"]
    assert lost == [False], "the deed was under way: with no seconds to wait it was not let go"
    assert run.exchanges.get(name="send").status == "answered"
    assert (run.status, run.worker) == ("queued", "")
    driver.reopen()
    world = slice_of(run)
    assert world.calls == ["decision"]
    assert (run.status, run.tool_calls) == ("succeeded", 1)


def said_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "runs.driver.draining"]


def test_what_is_waited_for_is_said_and_what_was_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """The drain's patience is over while the deed is still under way."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    slice_while(drain_impatiently, run, "send")
    assert said_of(caplog) == [
        f"Waiting up to 0.01 s for 1 call: run {run.pk}, send.",
        f"Cut off mid-call: run {run.pk}, send. The outcome is unknown.",
    ]


def test_several_calls_are_named_together(caplog: pytest.LogCaptureFixture) -> None:
    """And those that are given back, or are no calls, are not."""
    first, second = (launch(think("send", to=name), FINAL, rules=ALLOW) for name in ("bob", "eve"))
    silent = launch(FINAL)

    def in_the_second() -> None:
        slice_while(drain_impatiently, silent, "decision")

    def in_the_first() -> None:
        slice_while(in_the_second, second, "send")

    slice_while(in_the_first, first, "send")
    calls = f"run {first.pk}, send; run {second.pk}, send"
    assert said_of(caplog) == [
        f"Waiting up to 0.01 s for 2 calls: {calls}.",
        f"Cut off mid-call: {calls}. The outcomes are unknown.",
    ]


def test_a_drain_that_waits_for_no_call_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    slice_while(drain_impatiently, launch(FINAL), "decision")
    drain_impatiently()
    assert said_of(caplog) == []


def test_a_call_whose_answer_waits_on_this_disk_is_not_said_to_be_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next worker on this machine uses it."""
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)

    def answered() -> None:
        drained(seconds=0.01)
        spool.put(run.exchanges.get(name="send").key, ToolReturned(value="sent"))
        driver.cut_off(lambda: None)

    slice_while(answered, run, "send")
    assert said_of(caplog) == [f"Waiting up to 0.01 s for 1 call: run {run.pk}, send."]


def test_between_the_last_words_and_the_end_no_answer_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    deed, ended = threading.Event(), threading.Event()
    seen: list[str] = []

    def end() -> None:
        deed.set()  # the answer is there, and can't be written
        seen.append(run.exchanges.get(name="send").status)
        assert not ended.wait(0.3)
        seen.append(run.exchanges.get(name="send").status)

    def both(number: int) -> None:
        if number:
            began.wait(LONGEST_S)
            drained(seconds=0.01)
            driver.cut_off(end)
            return
        slice_of(run, before=lambda: (began.set(), deed.wait(LONGEST_S)), only="send")  # type: ignore[func-returns-value]
        ended.set()

    began = threading.Event()
    in_threads(2, both)
    assert seen == ["started", "started"]
    assert said_of(caplog)[1:] == [f"Cut off mid-call: run {run.pk}, send. The outcome is unknown."]


def test_a_drain_that_can_not_read_what_is_called_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, lost = launch(think("send", to="bob"), FINAL, rules=ALLOW), list[bool]()

    def drained_blindly() -> None:
        with monkeypatch.context() as patched:
            patched.setattr("runs.driver.draining.Exchange.objects", None)
            lost.append(drained(seconds=0.01))
            driver.cut_off(lambda: None)

    slice_while(drained_blindly, run, "send")
    assert lost == [False]
    assert said_of(caplog) == ["The calls under way can't be named."] * 2


def test_the_drain_ends_when_the_deed_does() -> None:
    run = launch(think("send", to="bob"), FINAL, rules=ALLOW)
    make_due(run.pk)

    def the_deed() -> None:
        began.wait()
        wait_for(driver.closing)

    def both(number: int) -> object:
        if number == 0:
            return slice_of(run, before=the_deed, only="send").calls
        began.wait()
        return drained(seconds=30)

    began = threading.Barrier(2)
    calls, in_time = in_threads(2, both)
    assert (calls, in_time) == (["decision", "send"], True)
    run.refresh_from_db()
    assert run.status == "queued"


def test_without_the_drain_the_run_waits_for_the_lease() -> None:
    """The negative control: a worker in a silent call keeps the run from all others."""
    run = launch(FINAL)
    taken: list[object] = []
    slice_of(run, before=lambda: taken.append(leases.claim(run.pk, "another")), only="decision")
    assert taken == [None]
