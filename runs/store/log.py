"""Steps, their hash chain, and the one transaction of a move.

Plain SQL through Django's connection: a transition costs a few statements and one sync, whatever the length of the run.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from runs.engine.effects import ANSWER, Answer, ChildFinished, Failed, ModelReplied, Summarised
from runs.engine.fact_kinds import fact_kinds
from runs.engine.machine import END
from runs.engine.presentation import BudgetRow
from runs.engine.settings import Settings
from runs.engine.snapshot import Totals
from runs.failpoints import failpoint
from runs.models import Budget, Exchange, Interrupt, Run, RunStatus, Step
from runs.store.artifacts import Made, write_artifacts
from runs.store.creating import insert, terms_hash
from runs.store.db import again, rows
from runs.store.deeds import LookAgain, still_holds
from runs.store.errors import Fenced
from runs.store.halting import Halted, halted_for_intent
from runs.store.seals import COLUMNS, seal

HASHED = ("seq", "kind", "node", "edge", "to", "facts_json", "state_json", "at", "ms", "seals")
"""The columns of a step covered by its hash, as both `Row` and `Step` name them."""
_STEP_COLUMNS = ("run_id", *HASHED, "fact_kinds", "live", "hash")
_hashed, _AT = attrgetter(*HASHED), HASHED.index("at")


@dataclass(slots=True)
class Row:
    """A step to write. `state` is None if it equals the previous step's."""

    seq: int
    kind: str
    node: str
    edge: str | None = None
    to: str | None = None
    facts_json: str = "[]"
    state_json: str | None = None
    at: datetime = field(default_factory=timezone.now)
    ms: float = 0.0
    seals: str = ""
    """Digests of the rows beside it."""

    def cover(self, name: str, seq: int, beside: Any) -> None:
        """Let the hash cover a row beside the step (`runs.store.seals`)."""
        self.seals = f"{self.seals} {seal(name, seq, beside)}".lstrip()

    def hashed(self, before: str) -> str:
        """Return the chain's next hash, after the one before."""
        return chain(before, self)


def chain(before: str, step: Row | Step) -> str:
    """Return the SHA-256 of the previous hash and a step's content, without `live`, which may change."""
    moment = step.at.astimezone(UTC).isoformat(timespec="microseconds")
    place = [before, str(step.seq), step.kind, step.node, step.edge or "", step.to or ""]
    parts = [*place, step.facts_json, step.state_json or "", moment, f"{step.ms:.3f}"]
    if step.seals:
        parts.append(step.seals)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(slots=True)
class Asked:
    """An exchange to write: an ask, with its answer if it came."""

    seq: int
    kind: str
    name: str
    request_json: str
    status: str
    key: str
    nth: int = 0
    attempt: int = 1
    answer_json: str | None = None
    fingerprint: str = ""
    prompt_hash: str = ""
    prompt_chars: int = 0
    prompt_upto: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    started_at: datetime = field(default_factory=timezone.now)
    answered_at: datetime | None = None

    @classmethod
    def stored(cls, exchange: Exchange) -> Asked:
        """Return a stored exchange."""
        return cls(**{name: getattr(exchange, name) for name in ASKED})

    def answered(self, answer: Answer) -> None:
        """Take the answer, with its usage."""
        self.status = "answered"
        self.answer_json = answer.model_dump_json()
        self.answered_at = timezone.now()
        usage = getattr(answer, "usage", None)
        if usage is not None:
            self.input_tokens, self.output_tokens = usage.input_tokens, usage.output_tokens
            self.cost_usd = usage.cost_usd


ASKED = tuple(one.name for one in fields(Asked))
"""The columns of an exchange, without its run and whether the cache remembers it."""


@dataclass(slots=True)
class Batch:
    """One transaction's writes for a run, whose head it moves to the last step."""

    run_id: int
    epoch: int
    node: str
    totals: Totals
    known: Totals
    """The totals from which `totals` was computed; charges made beside them meanwhile are not lost."""
    head_hash: str
    prompt_hash: str
    rows: list[Row]
    asked: list[Asked] = field(default_factory=list)
    concluded: Asked | None = None
    """A stored exchange, answered now."""
    left_behind: int | None = None
    """An open ask at the end of the run."""
    remembered: int | None = None
    """The model exchange whose reply has passed validation."""
    artifacts: tuple[tuple[int, Made], ...] = ()
    """The steps' artifacts, each with its step's number."""
    budgets: list[BudgetRow] = field(default_factory=list)
    changes: dict[str, Any] = field(default_factory=dict)
    """Other columns of the run."""
    dead_after: int | None = None
    """A rewind: the steps after this one are no longer live."""
    interrupt: Interrupt | None = None
    child: tuple[Run, Settings, Row | None] | None = None
    """A child run that this batch starts, with its checked settings and its first step, if any."""
    parent: tuple[int, int, ChildFinished] | None = None
    """The parent's run and ask, answered by this run's end."""
    site_rules: str = ""
    """The text of the site's rules that decided its moves."""
    host: str = ""
    """The host that the new call contacts only because a person allowed it for this run."""


@again
def commit(batch: Batch, *, savepoint: bool = True) -> str:
    """Write the batch in one transaction, and return the new head hash. Raises `Fenced` without the lease.

    Without a savepoint a fault undoes the caller's transaction too.
    """
    head_hash, values = _chained(batch.run_id, batch.rows, batch.head_hash)
    with transaction.atomic(savepoint=savepoint):
        if batch.parent is not None:
            lock(batch.parent[0])
        with connection.cursor() as cursor:
            _take_the_seat(cursor, batch, head_hash)
            if batch.dead_after is not None:
                cursor.execute(
                    "UPDATE runs_step SET live = %s WHERE run_id = %s AND seq > %s",
                    (False, batch.run_id, batch.dead_after),
                )
            _insert_rows(cursor, values)
            _check_may_begin(batch)
            for asked in batch.asked:
                _insert_exchange(cursor, batch.run_id, asked)
            if batch.concluded is not None:
                _conclude(cursor, batch.run_id, batch.concluded)
            if batch.left_behind is not None:
                pay(batch.run_id, _answer_of(batch.run_id, batch.left_behind))
            if batch.remembered is not None:
                cursor.execute(
                    "UPDATE runs_exchange SET remembered = %s WHERE run_id = %s AND seq = %s",
                    (True, batch.run_id, batch.remembered),
                )
            for budget in batch.budgets:
                _write_budget(cursor, batch.run_id, budget)
        if batch.dead_after is not None or batch.node == END:
            supersede(batch.run_id)
        if batch.artifacts:
            write_artifacts(batch.run_id, batch.artifacts)
        if batch.interrupt is not None:
            batch.interrupt.save(force_insert=True)
        if batch.child is not None:
            child, checked, row = batch.child
            insert(child, checked)
            if row is not None:
                with connection.cursor() as cursor:
                    _insert_rows(cursor, _chained(child.pk, [row], terms_hash(child))[1])
        if batch.parent is not None:
            parent, seq, finished = batch.parent
            cost = Run.objects.values_list("cost_usd", flat=True).get(pk=batch.run_id)
            tell_parent(parent, seq, finished.model_copy(update={"cost_usd": cost}))
        failpoint("inside_commit")
    return head_hash


def hash_after(batch: Batch) -> str:
    """Return the hash of the batch's last step."""
    head_hash = batch.head_hash
    for row in batch.rows:
        head_hash = row.hashed(head_hash)
    return head_hash


def _chained(run_id: int, rows: list[Row], head_hash: str) -> tuple[str, list[Any]]:
    """Return the head hash after the steps, and their columns one after the other."""
    values: list[Any] = []
    adapted = connection.ops.adapt_datetimefield_value
    for row in rows:
        head_hash = row.hashed(head_hash)
        columns = [*_hashed(row)]
        columns[_AT] = adapted(row.at)
        values += [run_id, *columns, fact_kinds(row.facts_json), True, head_hash]
    return head_hash, values


def _insert_rows(cursor: Any, values: list[Any]) -> None:
    rows = ", ".join([_ROW] * (len(values) // len(_STEP_COLUMNS)))
    cursor.execute(f"{_STEPS} {rows}", values)


def _check_may_begin(batch: Batch) -> None:
    """Refuse to begin an ask's effect while the site is halted, or if it must be checked again."""
    for asked in batch.asked:
        if asked.status != "started":
            continue
        holds = still_holds(batch.run_id, asked.seq, batch.site_rules, batch.host)
        if halted_for_intent() is not None or not holds:
            asked.status = "asked"


_UPDATE_HEAD = (
    "UPDATE runs_run SET head = %s, head_hash = %s, prompt_hash = %s, node = %s,"
    " active_seconds = CASE WHEN active_seconds = %s THEN %s ELSE active_seconds + %s END,"
    " model_calls = model_calls + %s, cached_model_calls = cached_model_calls + %s, tool_calls = tool_calls + %s,"
    " input_tokens = input_tokens + %s, output_tokens = output_tokens + %s,"
    " cost_usd = CASE WHEN cost_usd = %s THEN %s ELSE cost_usd + %s END,"
    " reserved_usd = CASE WHEN reserved_epoch = %s THEN 0 ELSE reserved_usd END,"
    " reserved_tokens = CASE WHEN reserved_epoch = %s THEN 0 ELSE reserved_tokens END"
)
"""A sum of costs or seconds is computed and rounded before: as a rule it replaces its earlier value."""


def _take_the_seat(cursor: Any, batch: Batch, head_hash: str) -> None:
    totals, known = batch.totals, batch.known
    values: list[Any] = [batch.rows[-1].seq, head_hash, batch.prompt_hash, batch.node]
    values += [known.active_seconds, totals.active_seconds, totals.active_seconds - known.active_seconds]
    values += [totals.model_calls - known.model_calls, totals.cached_model_calls - known.cached_model_calls]
    values += [totals.tool_calls - known.tool_calls, totals.input_tokens - known.input_tokens]
    values += [totals.output_tokens - known.output_tokens]
    values += [known.cost_usd, totals.cost_usd, totals.cost_usd - known.cost_usd, batch.epoch, batch.epoch]
    columns = "".join(f", {name} = %s" for name in batch.changes)
    values += [_adapted(value) for value in batch.changes.values()]
    cursor.execute(
        f"{_UPDATE_HEAD}{columns} WHERE id = %s AND epoch = %s", (*values, batch.run_id, batch.epoch)
    )
    if cursor.rowcount != 1:
        raise Fenced(batch.run_id, batch.epoch)


def _adapted(value: Any) -> Any:
    """Return a value as the database's own clock would write it: SQLite compares times as text."""
    if not isinstance(value, datetime):
        return value
    moment = connection.ops.adapt_datetimefield_value(value)
    return moment.removesuffix("000") if isinstance(moment, str) else moment


_QUOTED = ", ".join(f'"{name}"' for name in _STEP_COLUMNS)
_STEPS = f"INSERT INTO runs_step ({_QUOTED}) VALUES"
_ROW = f"({', '.join(['%s'] * len(_STEP_COLUMNS))})"


_EXCHANGE = (
    f"INSERT INTO runs_exchange (run_id, remembered, {', '.join(ASKED)})"
    f" VALUES ({', '.join(['%s'] * (len(ASKED) + 2))})"
)


def _insert_exchange(cursor: Any, run_id: int, asked: Asked) -> None:
    cursor.execute(_EXCHANGE, [run_id, False, *_values(asked, ASKED)])


_ANSWERED = (
    f"UPDATE runs_exchange SET status = 'answered', {', '.join(f'{name} = %s' for name in COLUMNS['answer'])}"
    " WHERE run_id = %s AND seq = %s"
)


def _values(asked: Asked, names: tuple[str, ...]) -> list[Any]:
    return [_adapted(getattr(asked, name)) for name in names]


def _conclude(cursor: Any, run_id: int, asked: Asked) -> None:
    """Write the concluded answer. One that came meanwhile, to a worker taken for lost, is only paid."""
    if not answer_first(cursor, run_id, asked):
        pay(run_id, _answer_of(run_id, asked.seq))
        cursor.execute(_ANSWERED, _of_answer(run_id, asked))


def answer_first(cursor: Any, run_id: int, asked: Asked) -> bool:
    """Give the exchange its answer if it has none yet, and the ask is the same; return whether it took it."""
    cursor.execute(
        f"{_ANSWERED} AND status <> 'answered' AND key = %s", (*_of_answer(run_id, asked), asked.key)
    )
    return bool(cursor.rowcount)


def _of_answer(run_id: int, asked: Asked) -> tuple[Any, ...]:
    return (*_values(asked, COLUMNS["answer"]), run_id, asked.seq)


def _write_budget(cursor: Any, run_id: int, budget: BudgetRow) -> None:
    cursor.execute(
        'UPDATE runs_budget SET used = %s, "limit" = %s WHERE run_id = %s AND scope = %s AND name = %s',
        (budget.used, budget.limit, run_id, budget.scope, budget.name),
    )
    if cursor.rowcount == 0:
        cursor.execute(
            'INSERT INTO runs_budget (run_id, scope, name, used, "limit") VALUES (%s, %s, %s, %s, %s)',
            (run_id, budget.scope, budget.name, budget.used, budget.limit),
        )


def lock(run_id: int) -> None:
    """Lock the run's row to the end of the transaction; a parent's before its child's, or two may block each other.

    Rows that refer to it (a child's, a fork's) can be written meanwhile.
    """
    list(Run.objects.select_for_update(no_key=True).filter(pk=run_id).values_list("pk"))


def _answer_of(run_id: int, seq: int) -> Answer | None:
    text = Exchange.objects.values_list("answer_json", flat=True).get(run_id=run_id, seq=seq)
    return ANSWER.validate_json(text) if text else None


def pay(run_id: int, answer: Answer | None) -> None:
    """Add the cost of an answer that is not used. A tool called by two workers at one ask counts once."""
    if isinstance(answer, ModelReplied | Summarised | Failed):
        charge(run_id, answer)


@again
def start(run_id: int, epoch: int, seq: int, site_rules: str, host: str = "") -> None:
    """Mark an unrepeatable ask as started, before its call; raises `Fenced` if the lease is lost.

    Raises `Halted` if nothing may begin; `LookAgain` if the site's rules differ from `site_rules`, which let it pass,
    or an approval no longer counts.
    """
    held = Run.objects.filter(pk=run_id, epoch=epoch)
    with transaction.atomic():
        if not held.update(epoch=epoch):
            raise Fenced(run_id, epoch)
        if (halt := halted_for_intent()) is not None:
            raise Halted(halt)
        if not still_holds(run_id, seq, site_rules, host):
            raise LookAgain
        Exchange.objects.filter(run_id=run_id, seq=seq, status=Exchange.Status.ASKED).update(status="started")


def check_seat(run_id: int, epoch: int) -> None:
    """Check the lease directly before an unrepeatable call; raises `Fenced` if it was lost since the intent.

    A worker may sleep in between. It may still fall asleep after this; a far side that knows keys handles the rest.
    """
    if not Run.objects.filter(pk=run_id, epoch=epoch).exists():
        raise Fenced(run_id, epoch)


def charge(run_id: int, answer: Answer) -> None:
    """Add an answer's cost that no step of the run will account for."""
    add_beside(run_id, Totals().after(answer))


def add_beside(run_id: int, used: Totals) -> None:
    """Add to the totals beside the steps. The cost of an ended child is its parent's too."""
    if used == Totals():
        return
    Run.objects.filter(pk=run_id).update(
        model_calls=F("model_calls") + used.model_calls,
        cached_model_calls=F("cached_model_calls") + used.cached_model_calls,
        tool_calls=F("tool_calls") + used.tool_calls,
        input_tokens=F("input_tokens") + used.input_tokens,
        output_tokens=F("output_tokens") + used.output_tokens,
        cost_usd=F("cost_usd") + used.cost_usd,
        active_seconds=F("active_seconds") + used.active_seconds,
    )
    ended = Run.objects.filter(pk=run_id, ended_at__isnull=False)
    parent = ended.values_list("parent_id", flat=True).first()
    if parent is not None:
        add_beside(parent, Totals(cost_usd=used.cost_usd))


def tell_parent(run_id: int, seq: int, finished: ChildFinished) -> None:
    """Answer the parent's ask with an ended child's result, and queue the parent."""
    now = timezone.now()
    asked = Exchange.objects.filter(run_id=run_id, seq=seq, status=Exchange.Status.ASKED)
    if asked.update(status="answered", answer_json=finished.model_dump_json(), answered_at=now):
        Run.objects.filter(pk=run_id, status=RunStatus.WAITING).update(status=RunStatus.QUEUED, due_at=Now())


def supersede(run_id: int) -> None:
    """Close pending interrupts of a run that was rolled back or ended: they can no longer be decided."""
    pending = Interrupt.objects.filter(run_id=run_id, status=Interrupt.Status.PENDING)
    pending.update(status=Interrupt.Status.SUPERSEDED, decided_at=timezone.now())


def budgets_of(run_id: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the run's stored budget lines: used and limit by scope and name."""
    found = rows('SELECT scope, name, used, "limit" FROM runs_budget WHERE run_id = %s ORDER BY id', run_id)
    return {(scope, name): (used, limit) for scope, name, used, limit in found}


assert {Run._meta.db_table, Step._meta.db_table, Exchange._meta.db_table, Budget._meta.db_table} == {
    "runs_run",
    "runs_step",
    "runs_exchange",
    "runs_budget",
}, "the plain SQL above names these tables"
