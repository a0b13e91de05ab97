"""What one transaction holds while another one needs it; and those that the database gives up, which are made again."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection, connections, transaction
from django.db.models.functions import Now
from django.db.models.signals import post_save

import runs
from runs import actions, driver
from runs.driver import Slice
from runs.models import Decision, Exchange, Interrupt, Run
from runs.store import after_row, copying, creating, db, decisions, errors, log, shared_limits
from tests import pages
from tests.cast import person, signed_in
from tests.launching import FINAL, launch, script, think
from tests.priced import fork, waiting_run
from tests.running import in_threads, locked, on_postgresql, pending, transitions, work
from tests.stack import LONGEST_S
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

two_wait = on_postgresql("SQLite has one writer: nobody waits for two")

GIVE_UP = "DO $$ BEGIN RAISE EXCEPTION 'given up' USING ERRCODE = '{code}'; END $$"

ASK = {"thought": "ask", "action": {"tool": "agent.helper", "args": {"goal": "look"}}}
HELPER = {"machine": "ruled", "settings": {}}


def parent_of(*inner: Any) -> tuple[Run, Run]:
    """A run that waits for its child, and the child, which has not begun."""
    played = script(
        ASK, think("send", to="bob"), FINAL, subgraphs={"helper": {"replies": {"decision": inner}}}
    )
    run = launch(played=played, subgraphs={"helper": HELPER})
    driver.drive(run.pk)
    return run, Run.objects.get(parent=run)


def at_once(*deeds: Callable[[], Any]) -> None:
    """All of them at the same moment; none may fail."""
    in_threads(len(deeds), lambda number: deeds[number]())


# --- a run's row, and the rows that name it -----------------------------------------------------------------------


@two_wait
def test_a_fork_of_a_fork_does_not_deadlock_with_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork holds its source and names the root; the reservation holds the root and needs the source."""
    run = waiting_run(1.0)
    source = fork(run)
    at, epoch = transitions(source)[0], Run.objects.get(pk=source.pk).epoch
    both = threading.Barrier(2, timeout=LONGEST_S)
    lock, limits = log.lock, shared_limits.limits_shared_by

    def held(run_id: int) -> None:
        lock(run_id)
        both.wait()

    def read(member: Run) -> Any:
        both.wait()
        return limits(member)

    monkeypatch.setattr(db, "TIMES", 1)
    monkeypatch.setattr(copying, "lock", held)
    monkeypatch.setattr(shared_limits, "limits_shared_by", read)
    worst = shared_limits.Worst(cost_usd=0.01, tokens=10)
    at_once(
        lambda: actions.fork(source, at=at, by=None), lambda: shared_limits.reserve(source, epoch, worst, {})
    )
    assert Run.objects.filter(copied_from=source, root=run).count() == 1
    assert Run.objects.get(pk=source.pk).reserved_usd == 0.01


@two_wait
def test_the_stop_of_a_run_does_not_deadlock_with_a_fork_of_its_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fork holds the child and names the root; the stop holds the root and needs the child."""
    run, child = parent_of(think("search", q="a"), think("send", to="bob"), FINAL)
    work(child)
    at = transitions(child)[0]
    both = threading.Barrier(2, timeout=LONGEST_S)
    lock, seated = log.lock, decisions.seated

    def held(run_id: int) -> None:
        lock(run_id)
        both.wait()

    def taken(run_id: int) -> Run:
        found = seated(run_id)
        if run_id == run.pk:
            both.wait()
        return found

    monkeypatch.setattr(db, "TIMES", 1)
    monkeypatch.setattr(copying, "lock", held)
    monkeypatch.setattr(decisions, "seated", taken)
    at_once(lambda: actions.fork(child, at=at, by=None), lambda: actions.abort(run, by=None))
    child.refresh_from_db()
    assert child.status == "cancelled"
    assert Run.objects.filter(copied_from=child, root=run).count() == 1


@two_wait
def test_a_childs_end_does_not_deadlock_with_a_fork_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork holds the child and names the root; the end holds the root, which it tells, and needs the child."""
    run, child = parent_of(think("search", q="a"), FINAL)
    slice_of(child, Slice(moves=5))
    assert not child.finished
    at = transitions(child)[0]
    ending, forking = threading.Event(), threading.Event()
    lock = log.lock

    def parents(run_id: int) -> None:
        lock(run_id)
        if run_id == run.pk:
            ending.set()
            assert forking.wait(LONGEST_S)

    def held(run_id: int) -> None:
        assert ending.wait(LONGEST_S)
        lock(run_id)
        forking.set()

    monkeypatch.setattr(db, "TIMES", 1)
    monkeypatch.setattr(copying, "lock", held)
    monkeypatch.setattr(log, "lock", parents)
    at_once(lambda: actions.fork(child, at=at, by=None), lambda: slice_of(child))
    child.refresh_from_db()
    assert child.status == "succeeded"
    assert Run.objects.filter(copied_from=child, root=run).count() == 1


# --- given up, and made again -------------------------------------------------------------------------------------


@two_wait
def test_a_stop_that_the_database_gives_up_for_another_transaction_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one takes the rows in the wrong order, and is the one that PostgreSQL lets through."""
    run, child = parent_of(FINAL)
    lock, child_held, parent_held, out = log.lock, threading.Event(), threading.Event(), threading.Event()
    taken: list[int] = []

    def held(run_id: int) -> None:
        assert (out if taken else child_held).wait(
            LONGEST_S
        )  # who is given up may be back before the other has woken
        lock(run_id)
        taken.append(run_id)
        parent_held.set()

    def in_the_way() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL deadlock_timeout = '1min'")  # whoever looks first is given up
            lock(child.pk)
            child_held.set()
            assert parent_held.wait(LONGEST_S)
            lock(run.pk)
        out.set()

    monkeypatch.setattr(decisions, "lock", held)
    at_once(in_the_way, lambda: actions.abort(child, by=None))
    assert taken == [run.pk, run.pk]
    child.refresh_from_db()
    run.refresh_from_db()
    assert (child.status, run.status) == ("cancelled", "queued")
    assert child.steps.filter(kind="stop").count() == 1


def given_up(monkeypatch: pytest.MonkeyPatch, when: Callable[[int], bool], code: str = "40P01") -> list[int]:
    """PostgreSQL gives up the commits that `when` is true of, by their number; how many there were is appended."""
    tried: list[int] = []

    def fail(name: str) -> None:
        if name != "inside_commit":
            return
        tried.append(len(tried))
        if when(tried[-1]):
            with connection.cursor() as cursor:
                cursor.execute(GIVE_UP.format(code=code))

    monkeypatch.setattr(log, "failpoint", fail)
    return tried


@two_wait
@pytest.mark.parametrize("code", ["40P01", "40001"])
def test_each_commit_of_a_worker_may_be_given_up_once(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """With a child, a question and a file in them: the second time writes what the first one would have."""
    made = {"output": "made", "files": [{"name": "a.txt", "text": "x"}]}
    tools = {
        "search": {"params": {"q": "string"}, "effects": "read", "results": [made]},
        "send": {"effects": "send"},
    }
    helper = {"replies": {"decision": [think("search", q="a"), FINAL]}, "tools": tools}
    played = script(
        ASK, think("search", q="b"), think("send"), FINAL, tools=tools, subgraphs={"helper": helper}
    )
    calm = work(launch(played=played, subgraphs={"helper": HELPER}))
    tried = given_up(monkeypatch, lambda number: number % 2 == 0, code)
    run = work(launch(played=played, subgraphs={"helper": HELPER}))
    assert len(tried) > 10
    assert _told(run) == _told(calm)
    assert [_told(child) for child in run.children.all()] == [_told(child) for child in calm.children.all()]
    assert run.children.count() == run.interrupts.count() == run.artifacts.count() == 1
    assert pending(run).kind == "tool_call"


def _told(run: Run) -> list[Any]:
    exchanges = (
        Exchange.objects.filter(run=run).order_by("seq").values_list("seq", "kind", "status", "cost_usd")
    )
    return [
        (run.status, run.head, run.cost_usd, run.model_calls, run.tool_calls),
        *run.steps.order_by("seq").values_list("seq", "kind", "node", "edge"),
        *exchanges,
    ]


@two_wait
@pytest.mark.parametrize("nth", [0, 1])
def test_a_question_and_its_prepared_answer_are_given_up_together(
    monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    run = launch(think("send", to="bob"), FINAL, answers=[{"verdict": "approve"}])
    opened: list[int] = []

    def recorded(**given: Any) -> None:
        opened.append(len(tried))

    tried = given_up(monkeypatch, lambda number: False)
    post_save.connect(recorded, sender=Decision)
    work(run)
    post_save.disconnect(recorded, sender=Decision)
    question = opened[0] - 1  # the commit before the decision's own
    again_ = launch(think("send", to="bob"), FINAL, answers=[{"verdict": "approve"}])
    given_up(monkeypatch, lambda number: number == question + nth)
    work(again_)
    assert again_.status == "succeeded"
    assert _told(again_) == _told(run)
    assert Interrupt.objects.get(run=again_).decision.verdict == "approve"


@two_wait
def test_another_fault_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = launch(FINAL)
    tried = given_up(monkeypatch, lambda number: True, code="57014")
    with pytest.raises(OperationalError):
        decisions.note(run.pk, "told", "Once.")
    assert len(tried) == 1


@two_wait
def test_within_a_transaction_it_is_the_callers_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = launch(FINAL)
    tried = given_up(monkeypatch, lambda number: True)
    with pytest.raises(OperationalError), transaction.atomic():
        decisions.pause(run.pk, "bob")
    assert len(tried) == 1


# --- what a person is told ----------------------------------------------------------------------------------------


@two_wait
def test_a_person_whose_change_is_given_up_for_good_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alice = person("alice", "add_run")
    run, client = launch(FINAL, owner=alice), signed_in(alice)
    tried = given_up(monkeypatch, lambda number: True)
    answer = client.post(f"/runs/{run.pk}/pause/")
    assert len(tried) == db.TIMES
    assert answer.status_code == 302
    assert [str(message) for message in get_messages(answer.wsgi_request)] == [errors.Busy().sentence]
    assert not run.steps.filter(kind="pause").exists()


@two_wait
def test_a_late_answer_is_not_taken_where_its_deadline_could_not_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = work(launch(think("send", to="bob"), FINAL))
    question = pending(run)
    Interrupt.objects.filter(pk=question.pk).update(deadline=Now() - timedelta(seconds=5))
    given_up(monkeypatch, lambda number: number < db.TIMES)
    with pytest.raises(errors.Busy):
        actions.decide(question.pk, verdict="approve", by=None, channel="command")
    assert pending(run) == question


def test_a_person_who_waits_in_vain_is_told_so() -> None:
    run = launch(FINAL)
    with locked(run), _little_patience(), pytest.raises(errors.Busy):
        actions.pause(run, by=None)
    actions.pause(run, by=None)
    assert run.steps.filter(kind="pause").count() == 1


@two_wait
def test_a_launch_that_is_given_up_for_good_says_so_above_the_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[Any] = []

    def open_budgets(*given: Any) -> None:
        tried.append(given)
        with connection.cursor() as cursor:
            cursor.execute(GIVE_UP.format(code="40P01"))

    monkeypatch.setattr(creating, "open_budgets", open_budgets)
    answer = pages.post_launch(signed_in(person("alice", "add_run")))
    assert len(tried) == db.TIMES
    assert answer.status_code == 422
    assert errors.Busy().sentence in answer.content.decode()
    assert not Run.objects.exists()


COMMANDS = [("rollback", "--to"), ("fork", "--at"), ("rerun", "--at")]


@two_wait
@pytest.mark.parametrize(("name", "row"), COMMANDS)
def test_a_command_that_is_given_up_is_made_again(
    monkeypatch: pytest.MonkeyPatch, name: str, row: str
) -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    tried: list[str] = []
    for kind in ("rollback_mark", "copy_mark"):
        mark = getattr(after_row, kind)

        def given_up_once(run: Run, at: int, mark: Any = mark) -> str:
            """The command reads the mark; the deed reads it again, in its transaction, and is given up there once."""
            tried.append(mark(run, at))
            if len(tried) == 2:
                with connection.cursor() as cursor:
                    cursor.execute(GIVE_UP.format(code="40P01"))
            return tried[-1]

        monkeypatch.setattr(after_row, kind, given_up_once)
    call_command(name, str(run.pk), row, str(transitions(run, "executed")[0]))
    assert len(tried) == 3
    assert run.steps.filter(kind="rewind").count() + run.copies.count() == 1


@pytest.mark.parametrize(("name", "row"), COMMANDS)
def test_a_command_that_waits_in_vain_says_so(name: str, row: str) -> None:
    run = work(launch(think("search", q="a"), think("send", to="bob"), FINAL))
    to = str(transitions(run, "executed")[0])
    with locked(run), _little_patience(), pytest.raises(CommandError, match="The database is busy") as told:
        call_command(name, str(run.pk), row, to)
    assert told.value.returncode == 2
    assert not run.steps.filter(kind="rewind").exists()
    assert not run.copies.exists()


@contextmanager
def _little_patience() -> Iterator[None]:
    """This connection waits for a lock no longer than 0.1 s."""
    if connection.vendor == "sqlite":
        mine: Any = connections["default"]
        usual, mine.patience_s = mine.patience_s, 0.1
        try:
            yield
        finally:
            mine.patience_s = usual
        return
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '100ms'")
        try:
            yield
        finally:
            cursor.execute("RESET lock_timeout")


@pytest.mark.parametrize("room", ["admin", "forms", "management", "reading", "views"])
def test_no_page_and_no_command_opens_a_transaction_or_takes_a_lock(room: str) -> None:
    """Deeds are `actions`, and what would come of them is read."""
    for path in (Path(runs.__file__).parent / room).rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        named = {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
        named |= {
            f"{ast.unparse(node.value)}.{node.attr}" for node in nodes if isinstance(node, ast.Attribute)
        }
        assert not named & {"transaction", "for_people", "lock", "db.for_people", "log.lock"}, path
