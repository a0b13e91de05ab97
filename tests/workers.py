"""Workers for tests: they meet faults in the middle of calls, and die."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from runs.driver import Slice
from runs.driver.holds import Hold, held
from runs.driver.worker import Worker
from runs.engine.effects import Answer, ModelReplied, ToolCall, Usage
from runs.engine.ports import ModelPort, ModelRequest, Watch
from runs.models import Run
from runs.store import leases
from tests.running import lose_worker, make_due


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

    def call(self, call: ToolCall, nth: int, key: str, **heard: Any) -> Any:
        self.keys.append(key)
        self.tools_called.append(call.tool)
        return self._performed(call.tool, lambda: self._carried_out(call, nth, key, heard))

    def _carried_out(self, call: ToolCall, nth: int, key: str, heard: dict[str, Any]) -> Any:
        self.done.append((call.tool, key))
        return self.tools.call(call, nth, key, **heard)

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

    def prepare(self) -> None:
        super().prepare()
        self.world = Meddled(self.ports.model, self.ports.tools, **self.deeds)
        self.ports.model = self.world
        self.ports.tools = self.world  # type: ignore[assignment]


SLICE = Slice()


@contextmanager
def seat(run: Run, worker: str = "alpha") -> Iterator[Hold]:
    """Give a worker's hold on the run, which is due."""
    make_due(run.pk)
    lease = leases.claim(run.pk, worker)
    assert lease is not None, "somebody has the run"
    with held(lease) as hold:
        yield hold


def slice_of(run: Run, limit: Slice = SLICE, worker: str = "alpha", **deeds: Any) -> Meddled:
    """One slice as `drive` makes it, with deeds in the middle of calls; faults come out. What was called."""
    with seat(run, worker) as hold:
        journey = MeddledJourney(hold, **deeds)
        try:
            journey.drive(limit)
        finally:
            leases.let_go(hold.lease)
    run.refresh_from_db()
    return journey.world


def die_in(run: Run, worker: str = "doomed", **deeds: Any) -> MeddledJourney:
    """A worker takes the run and is gone in the middle of it: its lease is not given back, and runs out.

    What it was doing, for a test where it was only slow.
    """
    with seat(run, worker) as hold:
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


DEAR = Usage(input_tokens=500, output_tokens=50, cost_usd=0.005)

OTHER = ModelReplied(text='{"thought": "FINAL ANSWER: 41", "action": null}', usage=DEAR)
"""What the model said to the worker that was taken for lost: something else, and dearer."""


def at_call(number: int, deed: Callable[[], None]) -> Callable[[], None]:
    """`deed` in the call of that number."""
    calls: list[int] = []

    def meddle() -> None:
        calls.append(1)
        if len(calls) == number:
            deed()

    return meddle


def wake(journey: MeddledJourney) -> None:
    """The first worker's answer is there; its seat is not."""
    journey.keep(journey.at.asked, OTHER)
