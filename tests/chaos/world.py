"""What the bench's processes have that a site has not: played models with a price, and more places to be killed at.

Nothing of this exists in the product: functions are replaced in the test's own processes.
"""

from __future__ import annotations

from typing import Any

from runs.driver import replaying, worker
from runs.engine.ports import ModelPort, ModelRequest, Watch
from runs.engine.replaying import Record
from runs.engine.snapshot import Price
from runs.failpoints import failpoint
from runs.models import Run
from runs.store import log

PRICE = Price(reply_tokens=400, input_usd=0.000001, output_usd=0.00001)
"""What one call of a played model may use at most; the plays' own charge is always below it."""

WINDOW_TOKENS = 100_000
"""What a priced model reads at once, where the run's settings name nothing smaller."""


class Stalked:
    """A model with places to be killed at around its calls."""

    def __init__(self, model: ModelPort) -> None:
        self.model = model

    def ask(self, request: ModelRequest, watch: Watch) -> Any:
        """The reply; what it may cost is set aside before, and what it did cost is written after."""
        call = "summary" if request.role == "summary" else "model"
        failpoint(f"{call}_asked")
        answer = self.model.ask(request, watch)
        failpoint(f"{call}_answered")
        return answer

    def price(self, input_tokens: int) -> float:
        """As the model says."""
        return self.model.price(input_tokens)


def is_priced(run: Run) -> bool:
    """Whether the run's played model has a price: where a limit holds for the run, its own or its root's."""
    return run.script_id is not None and (run.root_id is not None or '"limits"' in run.settings_json)


def furnish() -> None:
    """Give this process all of it."""
    _give_prices()
    _give_records_prices()
    _stalk_commits()


def _give_prices() -> None:
    plain = worker.ports_of

    def ports_of(run: Run) -> Any:
        ports = plain(run)
        ports.model = Stalked(ports.model)
        if is_priced(run):
            ports.price, ports.context_tokens = PRICE, WINDOW_TOKENS
        return ports

    worker.ports_of = ports_of


def _give_records_prices() -> None:
    """A replay reckons with the same prices."""
    plain = replaying.record_of

    def record_of(run: Run) -> Record:
        record = plain(run)
        if not is_priced(run):
            return record
        return record.model_copy(update={"price": PRICE, "context_tokens": WINDOW_TOKENS})

    replaying.record_of = record_of


def _stalk_commits() -> None:
    """Places inside the transactions of certain moves, after their first statement."""
    plain = log._take_the_seat

    def take_the_seat(cursor: Any, batch: log.Batch, head_hash: str) -> None:
        plain(cursor, batch, head_hash)
        if batch.rows[-1].kind == "compaction":
            failpoint("inside_compaction")
        if batch.dead_after is not None:
            failpoint("inside_rollback")
        if batch.interrupt is not None:
            failpoint("inside_question")

    log._take_the_seat = take_the_seat
