"""Workers whose model has a price, and runs that share limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runs import actions
from runs.driver import Slice
from runs.driver.holds import Hold, held
from runs.driver.worker import Worker
from runs.engine.snapshot import Price
from runs.models import Run
from runs.store import leases
from tests.launching import FINAL, launch, think
from tests.running import lose_worker, make_due, transitions, work
from tests.workers import WorkerKilled, kill

LONG = Slice(10_000, 1_000)

PRICE = Price(reply_tokens=400, input_usd=0.000001, output_usd=0.00001)

THINKING = [think("search", q=str(number)) for number in range(30)]


class Counted:
    """A scripted model that looks what is reserved while it is called."""

    def __init__(self, model: Any, run: Run) -> None:
        self.model = model
        self.run = run
        self.seen: list[tuple[float, int, int]] = []
        self.roles: list[str] = []
        self.late: Any = None
        """What came of a call after its worker was gone."""

    def ask(self, request: Any, watch: Any) -> Any:
        self.run.refresh_from_db()
        self.roles.append(request.role)
        self.seen.append((self.run.reserved_usd, self.run.reserved_tokens, request.reply_tokens))
        return self.model.ask(request, watch)

    def price(self, input_tokens: int) -> float:
        return float(self.model.price(input_tokens))


class PricedJourney(Worker):
    """A slice whose model has a price, so that its worst case is known before a call."""

    price = PRICE
    limit_tokens = 100_000

    def prepare(self) -> None:
        super().prepare()
        self.model = Counted(self.ports.model, Run.objects.get(pk=self.run.pk))
        self.ports.model = self.model
        self.ports.price = self.price
        self.ports.context_tokens = self.reader.limit = self.limit_tokens


@contextmanager
def seat(run: Run, worker: str = "alpha") -> Iterator[Hold]:
    """A worker's hold on the run, which is due."""
    make_due(run.pk)
    lease = leases.claim(run.pk, worker)
    assert lease is not None, "somebody has the run"
    with held(lease) as hold:
        yield hold


def travel(run: Run, price: Price = PRICE, limit_tokens: int = PricedJourney.limit_tokens) -> Counted:
    """One slice of the run with a model that has a price."""
    with seat(run) as hold:
        journey = PricedJourney(hold)
        journey.price, journey.limit_tokens = price, limit_tokens
        try:
            journey.drive(LONG)
        finally:
            leases.let_go(hold.lease)
    run.refresh_from_db()
    return journey.model


class Doomed(Counted):
    """A model whose worker is lost while it waits for the reply."""

    def ask(self, request: Any, watch: Any) -> Any:
        self.late = super().ask(request, watch)
        kill()


class DoomedJourney(PricedJourney):
    """A slice that ends in its first model call."""

    def prepare(self) -> None:
        super().prepare()
        self.model = self.ports.model = Doomed(self.model.model, Run.objects.get(pk=self.run.pk))


def die_in_a_call(hold: Hold) -> DoomedJourney:
    """A slice whose worker is gone in the middle of its first model call."""
    journey = DoomedJourney(hold)
    with pytest.raises(WorkerKilled):
        journey.drive(LONG)
    return journey


def lost_in_a_call(run: Run) -> DoomedJourney:
    """The worker dies in the model call; its lease runs out."""
    with seat(run, "doomed") as hold:
        journey = die_in_a_call(hold)
    lose_worker(run)
    return journey


def fork(run: Run, **changes: Any) -> Run:
    return actions.fork(run, at=transitions(run)[0], by=None, **changes)


def waiting_run(cost: float, **settings: Any) -> Run:
    """A run that has used 0.002 USD and waits for a person."""
    run = launch(THINKING[0], think("send", to="bob"), FINAL, limits={"cost_usd": cost}, **settings)
    return work(run)
