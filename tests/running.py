"""Runs for tests of the runtime: a launch, workers that meet faults, and the check at the end of each test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.db.models.functions import Now

from runs import actions, driver
from runs.driver import Slice
from runs.driver.holds import held
from runs.driver.worker import Worker
from runs.engine.effects import Answer, ToolCall
from runs.engine.ports import ModelPort, ModelRequest, Watch
from runs.machines import CATALOGUE
from runs.models import FINISHED, LOOKS, Exchange, Interrupt, Run, RunStatus, Step
from runs.store import appending, leases, loading, log, verifying
from runs.store.creating import terms_hash
from runs.store.log import lock
from tests.stack import LONGEST_S

FINAL = {"thought": "FINAL ANSWER: 42", "action": None}
SEARCH = {
    "params": {"q": "string", "n": "integer"},
    "required": ["q"],
    "effects": "read",
    "results": [{"output": "three results"}],
}
SEND = {
    "params": {"to": "string", "text": "string", "n": "integer"},
    "required": ["to"],
    "effects": "send",
    "results": [{"output": "sent 1"}, {"output": "sent 2"}, {"output": "sent 3"}],
}
TOOLS = {"search": SEARCH, "send": SEND}
USAGE = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.001}
ALLOW = [{"when": {"tool": "*"}, "do": "allow"}]


def think(tool: str, **args: Any) -> dict[str, Any]:
    """A thought that calls a tool."""
    return {"thought": f"I use {tool}", "action": {"tool": tool, "args": args}}


def script(*replies: Any, tools: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """A script of one `ruled` run."""
    given = {
        "replies": {"decision": list(replies)},
        "tools": TOOLS if tools is None else tools,
        "usage": USAGE,
    }
    return given | parts


def launch(
    *replies: Any, owner: User | None = None, played: dict[str, Any] | None = None, **settings: Any
) -> Run:
    """A `ruled` run that has been launched and not begun."""
    return actions.start_run(
        machine="ruled",
        goal="Write a short report about tides",
        settings=settings,
        owner=owner,
        script=script(*replies) if played is None else played,
    )


# --- working ------------------------------------------------------------------------------------------------------


def work(run: Run) -> Run:
    """Let workers drive the run, and whoever they wake, as far as they go; delays are over at once."""
    wanting = [run.pk]
    while wanting:
        run_id = wanting.pop(0)
        make_due(run_id)
        wanting += driver.drive(run_id)
        if Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).exists() and run_id not in wanting:
            wanting.append(run_id)
    run.refresh_from_db()
    return run


def make_due(run_id: int) -> None:
    """The time that a delay waits for has come."""
    Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(due_at=Now() - timedelta(seconds=1))


def lose_worker(run: Run) -> None:
    """The worker that holds the run is dead, and its lease has run out long ago."""
    Run.objects.filter(pk=run.pk).exclude(worker="").update(
        lease_until=Now() - timedelta(hours=1), silent_looks=LOOKS
    )


class WorkerKilled(BaseException):
    """Stands for a worker that is gone: nothing after it runs but what `BaseException` lets run."""


Deed = Callable[[], None]


@dataclass
class Meddled:
    """A model and tools in whose calls something happens: before the answer is there, or after."""

    model: ModelPort
    tools: Any
    before: Deed = lambda: None
    after: Deed = lambda: None
    only: str = ""
    calls: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    tools_called: list[str] = field(default_factory=list)
    done: list[tuple[str, str]] = field(default_factory=list)
    """Tool and key of each call that was carried out, whether or not its worker lived to hear of it."""
    far_side: Any = None
    """What it says of a call whose worker was lost; None where the tool itself is asked."""
    far_side_is_silent: bool = False
    """Whether it is asked, and can't tell."""

    def ask(self, request: ModelRequest, watch: Watch) -> Any:
        return self._performed(request.role, lambda: self.model.ask(request, watch))

    def price(self, input_tokens: int) -> float:
        return self.model.price(input_tokens)

    @property
    def specs(self) -> Any:
        return self.tools.specs

    def call(self, call: ToolCall, nth: int, key: str) -> Any:
        self.keys.append(key)
        self.tools_called.append(call.tool)
        return self._performed(call.tool, lambda: self._carried_out(call, nth, key))

    def _carried_out(self, call: ToolCall, nth: int, key: str) -> Any:
        self.done.append((call.tool, key))
        return self.tools.call(call, nth, key)

    def happened(self, call: ToolCall, key: str) -> Any:
        return self.far_side or self.tools.happened(call, key)

    def can_ask(self, call: ToolCall) -> bool:
        return self.far_side_is_silent or bool(self.tools.can_ask(call))

    def _performed(self, name: str, perform: Callable[[], Answer]) -> Answer:
        self.calls.append(name)
        meddles = self.only in ("", name)
        if meddles:
            self.before()
        answer = perform()
        if meddles:
            self.after()
        return answer


class MeddledJourney(Worker):
    """A slice whose ports are meddled with."""

    def __init__(self, hold: Any, **deeds: Any) -> None:
        super().__init__(hold)
        self.deeds = deeds
        nobody: Any = None  # a slice that only asks whether the run goes on calls nothing
        self.world = Meddled(nobody, nobody, **deeds)

    def _prepare(self) -> None:
        super()._prepare()
        self.world = Meddled(self.ports.model, self.ports.tools, **self.deeds)
        self.ports.model = self.world
        self.ports.tools = self.world  # type: ignore[assignment]


SLICE = Slice()


def slice_of(run: Run, limit: Slice = SLICE, worker: str = "alpha", **deeds: Any) -> Meddled:
    """One slice as `drive` makes it, with deeds in the middle of calls; faults come out. What was called."""
    make_due(run.pk)
    lease = leases.claim(run.pk, worker)
    assert lease is not None, "somebody has the run"
    with held(lease) as hold:
        journey = MeddledJourney(hold, **deeds)
        try:
            journey.drive(limit)
        finally:
            leases.let_go(lease)
    run.refresh_from_db()
    return journey.world


def die_in(run: Run, worker: str = "doomed", **deeds: Any) -> MeddledJourney:
    """A worker takes the run and is gone in the middle of it: its lease is not given back, and runs out.

    What it was doing, for a test where it was only slow.
    """
    make_due(run.pk)
    lease = leases.claim(run.pk, worker)
    assert lease is not None, "somebody has the run"
    with held(lease) as hold:
        journey = MeddledJourney(hold, **deeds)
        with pytest.raises(WorkerKilled):
            journey.drive(Slice())
    # The thread of this process that renews leases may be about to renew this one, under its name.
    Run.objects.filter(pk=run.pk).exclude(worker="").update(worker="lost")
    lose_worker(run)
    return journey


def kill() -> None:
    """The end of a worker."""
    raise WorkerKilled


def in_threads(count: int, deed: Any) -> list[Any]:
    """`deed(number)` in so many threads at once, each with its own connection; their results."""
    gate = threading.Barrier(count)
    results: list[Any] = [None] * count
    faults: list[BaseException] = []

    def body(number: int) -> None:
        try:
            gate.wait()
            results[number] = deed(number)
        except BaseException as fault:
            faults.append(fault)
        finally:
            connection.close()

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    return results


def on_postgresql(because: str) -> pytest.MarkDecorator:
    """For a test of what only a server's database does; `because` says why not on SQLite."""
    return pytest.mark.skipif(connection.vendor != "postgresql", reason=because)


@contextmanager
def locked(*runs: Run) -> Iterator[None]:
    """Somebody else holds the rows of these for as long as it takes; on SQLite that is all of the database."""
    taken, over = threading.Event(), threading.Event()

    def held() -> None:
        with transaction.atomic():
            for run in runs:
                lock(run.pk)
            taken.set()
            over.wait(60)
        connection.close()

    thread = threading.Thread(target=held)
    thread.start()
    assert taken.wait(LONGEST_S)
    try:
        yield
    finally:
        over.set()
        thread.join()


# --- looking ------------------------------------------------------------------------------------------------------


def kinds(run: Run) -> list[str]:
    """The kinds of the rows, in order."""
    return list(run.steps.order_by("seq").values_list("kind", flat=True))


def pending(run: Run) -> Interrupt:
    """The question that is open."""
    return Interrupt.objects.get(run=run, status=Interrupt.Status.PENDING)


def decide(run: Run, verdict: str, **parts: Any) -> Any:
    """The operator answers the question that is open."""
    return actions.decide(pending(run).pk, verdict=verdict, by=None, channel="command", **parts)


def transitions(run: Run, edge: str | None = None) -> list[int]:
    """The seqs of the live transitions, by one edge or any."""
    rows = run.steps.filter(kind="transition", live=True).order_by("seq")
    return list((rows.filter(edge=edge) if edge else rows).values_list("seq", flat=True))


def person(name: str, *permissions: str) -> User:
    """Somebody with these permissions of the app."""
    user = User.objects.create_user(name)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="runs", codename__in=permissions)
    )
    return User.objects.get(pk=user.pk)


def with_own_run(user: User) -> User:
    """The same person, who owns a run that has ended: one look at "any run of theirs" must not let them in."""
    run = work(launch(FINAL))
    Run.objects.filter(pk=run.pk).update(owner=user)
    return user


def stranger(name: str, *permissions: str) -> User:
    """A person with these permissions and one run, which is not the one that the test is about."""
    return with_own_run(person(name, *permissions))


def check_everything() -> None:
    """What holds of every run at any time: its log verifies, and it can go on (docs/invariants.md, I1 to I3)."""
    for run in Run.objects.all():
        check_run(run)


def check_run(run: Run) -> None:
    """The same of one run."""
    misfit = verifying.verify(run, driver.tool_specs(run))
    assert misfit is None, f"run {run.pk}: {misfit}"
    rows = list(run.steps.order_by("seq").values_list("seq", "kind", "to"))
    assert [seq for seq, _, _ in rows] == list(range(1, run.head + 1))
    assert sum(kind == "stop" for _, kind, _ in rows) + sum(to == "end" for _, _, to in rows) <= 1
    _check_prompt(run)
    _check_way_on(run)


def _check_prompt(run: Run) -> None:
    blocks = loading.load_blocks(run, CATALOGUE[run.machine], run.head)
    assert run.prompt_hash == appending.prompt_chain("", blocks), (
        f"run {run.pk}: prompt_hash is not that of its rows"
    )


def _check_way_on(run: Run) -> None:
    """Ended, queued, held, or waiting for somebody who can answer."""
    if run.status != RunStatus.WAITING:
        assert run.status in (*FINISHED, "queued", "running", "paused")
        return
    ask = run.steps.filter(kind="ask", live=True).order_by("-seq").first()
    assert ask is not None
    exchange = Exchange.objects.get(run=run, seq=ask.seq)
    assert exchange.status == "asked", f"run {run.pk} waits for what has been answered"
    if exchange.kind == "human_call":
        assert pending(run).seq == ask.seq
    else:
        assert Run.objects.filter(parent=run, parent_seq=ask.seq, ended_at__isnull=True).exists()


@pytest.fixture(autouse=True)
def _every_run_verifies(transactional_db: None) -> Iterator[None]:
    """Whatever a test leaves behind must hold together."""
    yield
    check_everything()


def busy_run() -> Run:
    """Thoughts, a call, a question with its decision, a limit with its top-up, a rewind, an end."""
    run = work(
        launch(
            think("search", q="a"),
            think("send", to="bob"),
            FINAL,
            limits={"cost_usd": 0.001},
        )
    )
    decide(run, "top_up", args={"cost_usd": 1})
    work(run)
    decide(run, "rollback", to_step=transitions(run, "continue")[0])
    work(run)
    decide(run, "approve")
    assert work(run).status == "succeeded"
    return run


def unseal(run: Run) -> None:
    """Hash the steps as versions did whose hashes covered nothing beside them."""
    before = terms_hash(run)
    for step in run.steps.order_by("seq"):
        step.seals = ""
        before = log.chain(before, step)
        Step.objects.filter(pk=step.pk).update(seals="", hash=before)
    Run.objects.filter(pk=run.pk).update(head_hash=before)
