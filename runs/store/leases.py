"""Leases: a worker claims a run by one conditional update that raises the epoch, on the database's clock."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import takewhile
from typing import Any, Literal

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, When
from django.db.models.functions import Coalesce, Now

from runs.engine.fact_kinds import name_of
from runs.engine.facts import MADE_ANEW, RECOVERED, Paused
from runs.engine.values import canonical, clean_text
from runs.engine.worker_questions import lost_in_a_row as losses_in_words
from runs.failpoints import failpoint
from runs.machines import CATALOGUE
from runs.models import LOOKS, LOST, Run, RunStatus, Step, tells, tells_of
from runs.store.appending import append, tell_fault, tell_lost, tell_stopped
from runs.store.db import NOW, again, first, impatient
from runs.store.halting import is_halted
from runs.store.held_back import halted_after, tell_of_halts

LEASE_S: float = settings.LEASE_SECONDS
"""Seconds until a claim expires without renewal."""

RENEW_S = LEASE_S / 4
"""Seconds between renewals."""

MOST_LOST = 3
"""Workers lost in a row on a run that does not move, until a person is asked."""

MOST_OF_A_FAULT = 2_000
"""Characters of a fault's message in its step."""

LONGEST_WAIT = timedelta(minutes=15)
"""No run is queued for later than that; a later due time means that the clock was set back."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """A worker's hold on a run. Writes with another epoch than the run's do nothing."""

    run_id: int
    epoch: int
    worker: str


def new_worker() -> str:
    """Return a name for a worker: that of its process, if it has one, and a unique part."""
    return "-".join(filter(None, (settings.PROCESS_NAME, secrets.token_hex(8))))


class Suspect(Exception):
    """The run has not moved since its last worker was lost: it may bring down the next one, too."""

    def __init__(self, run_id: int) -> None:
        self.run_id = run_id
        super().__init__(f"Run {run_id} is driven in a process of its own.")


@again
def claim(run_id: int, worker: str, suspects: Literal["taken", "refused"] = "taken") -> Lease | None:
    """Claim the run if it is due, free, and the site is not halted. `suspects` may refuse it with `Suspect`.

    Runs of an unknown machine are not claimed: they wait for a version that knows it. After a lost worker or an
    abandoned call the run gets a `recovered` step, after a halt a note of it.
    """
    with transaction.atomic():
        sql, params = _claimable(connection.vendor)
        found: Any = next(iter(Run.objects.raw(sql, (*params, run_id))), None)
        if found is None or found.machine not in CATALOGUE:
            return None
        lost = found.status == RunStatus.RUNNING
        if suspects == "refused" and (lost or found.not_moved):
            raise Suspect(run_id)
        taken = Run.objects.filter(_DUE, _FREE, pk=run_id, epoch=found.epoch, status=found.status).update(
            epoch=F("epoch") + 1,
            worker=worker,
            status=RunStatus.RUNNING,
            lease_until=Now() + timedelta(seconds=LEASE_S),
            silent_looks=0,
            started_at=Coalesce("started_at", Now()),
        )
        if not taken:
            return None
        failpoint("inside_claim")
        cut_off = found.reserved_usd or found.reserved_tokens
        if lost or cut_off or found.was_halted:
            run = Run.objects.get(pk=run_id)  # a worker taken for lost may have written until now
            if lost:
                tell_lost(run, "The worker stopped; another one continues from the last step.")
            elif cut_off:
                tell_stopped(run, "The worker stopped during a model call; another one repeats it.")
            if found.was_halted:
                tell_of_halts(run, found.lease_until if lost else found.due_at)
    return Lease(run_id, found.epoch + 1, worker)


_DUE = Q(status=RunStatus.QUEUED, due_at__lte=Now()) | LOST
_FREE = (Q(worker="") | Q(lease_until__lt=Now())) & ~is_halted()

_WANTING = Case(When(status=RunStatus.RUNNING, then=F("lease_until")), default=F("due_at"))
"""Since when a claimable run has wanted a worker."""

_NOT_MOVED = Exists(Step.objects.filter(run=OuterRef("pk"), seq=OuterRef("head"), kind=Step.Kind.RECOVERED))
"""True if no step followed the one about a lost worker."""


@cache
def _claimable(vendor: str) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that finds a claimable run, except for its number; Django builds it once."""
    wanting = Run.objects.filter(_DUE, _FREE).annotate(wanting=_WANTING)
    looked = wanting.annotate(was_halted=halted_after("wanting"), not_moved=_NOT_MOVED).order_by()
    columns = ("machine", "epoch", "status", "reserved_usd", "reserved_tokens", "due_at", "lease_until")
    sql, params = looked.only(*columns).query.sql_with_params()
    return f"SELECT * FROM ({sql}) AS found WHERE id = %s", params


def _held(lease: Lease) -> QuerySet[Run]:
    """Return the run, as long as it has this lease."""
    return Run.objects.filter(pk=lease.run_id, epoch=lease.epoch, worker=lease.worker)


def renew(lease: Lease) -> bool:
    """Renew the lease; False if it was lost. Raises `OperationalError` if its row is locked, and the outcome is
    unknown."""
    with impatient():
        return bool(_held(lease).update(lease_until=Now() + timedelta(seconds=LEASE_S), silent_looks=0))


def tell_doing(lease: Lease, told: dict[str, Any]) -> None:
    """Note the worker's current call, for people who look at the run."""
    with impatient():
        _held(lease).update(doing_json=canonical({**told, "epoch": lease.epoch}))


def look_for_lost(runs: QuerySet[Run] | None = None) -> None:
    """Count a look at each run whose lease has expired, or lasts too long because a clock was set back.

    The sweep calls it about once a second; `runs` narrows it to those that the caller waits for.
    """
    Run.objects.filter(status=RunStatus.QUEUED, due_at__gt=Now() + LONGEST_WAIT).update(due_at=Now())
    over = Q(lease_until__lt=Now()) | Q(lease_until__gt=Now() + 2 * timedelta(seconds=LEASE_S))
    silent = (Run.objects if runs is None else runs).filter(over, status=RunStatus.RUNNING)
    silent.filter(silent_looks__lt=LOOKS).update(silent_looks=F("silent_looks") + 1)
    silent.filter(silent_looks__gte=LOOKS, lease_until__gt=Now()).update(lease_until=Now())


def let_go(lease: Lease) -> None:
    """Release the run, due at once if unfinished. A lost lease is only left."""
    with connection.cursor() as cursor:
        now = NOW[connection.vendor]
        cursor.execute(_LET_GO.format(now=now), (lease.epoch, lease.epoch, lease.run_id, lease.worker))


_LET_GO = """
UPDATE runs_run SET worker = '',
    status = CASE WHEN status = 'running' AND epoch = %s THEN 'queued' ELSE status END,
    due_at = CASE WHEN status = 'running' AND epoch = %s THEN {now} ELSE due_at END
WHERE id = %s AND worker = %s
"""


def rest(lease: Lease, seconds: float) -> None:
    """Release the run for so many seconds, so no worker has to wait."""
    mine = Run.objects.filter(pk=lease.run_id, epoch=lease.epoch, status=RunStatus.RUNNING)
    mine.update(status=RunStatus.QUEUED, due_at=Now() + timedelta(seconds=seconds))


def give_back(run_id: int, worker: str) -> None:
    """Release the run, due at once, if this worker has it: it may not have learned that its claim succeeded."""
    mine = Run.objects.filter(pk=run_id, worker=worker)
    with transaction.atomic():
        mine.filter(status=RunStatus.RUNNING).update(status=RunStatus.QUEUED, due_at=Now())
        mine.update(worker="")


def hand_back(lease: Lease) -> bool:
    """Release the run during a repeatable call: the result of the call is fenced."""
    mine = Run.objects.filter(pk=lease.run_id, epoch=lease.epoch, worker=lease.worker)
    back = mine.filter(status=RunStatus.RUNNING).update(
        status=RunStatus.QUEUED, due_at=Now(), worker="", epoch=F("epoch") + 1
    )
    return bool(back)


@contextmanager
def kept_still(run_ids: Iterable[int]) -> Iterator[None]:
    """Keep other connections from writing these runs. Raises `OperationalError` if a row is locked for longer than a
    moment."""
    with impatient():
        kept = Run.objects.select_for_update(no_key=True).filter(pk__in=list(run_ids))
        list(kept.order_by("pk").values_list("pk"))
        yield


def want_a_hint(run_id: int) -> None:
    """Ask for another hint by the next sweep: this one reached a worker that takes no more runs."""
    Run.objects.filter(pk=run_id, status=RunStatus.QUEUED).update(hinted_at=None)


def lose(worker: str) -> None:
    """Take the lease from a worker whose process has certainly ended; its name is that of one claim."""
    _lost(Run.objects.filter(worker=worker))


def lose_all(process: str) -> None:
    """Take all leases of a process, and of its children, that have certainly ended."""
    _lost(Run.objects.filter(worker__startswith=f"{process}-"))


def _lost(held: QuerySet[Run]) -> None:
    running = held.filter(status=RunStatus.RUNNING)
    running.update(lease_until=Now() - timedelta(seconds=1), silent_looks=LOOKS)


def postpone(lease: Lease, seconds: float, fault: Exception) -> None:
    """After a fault of our own code: let another worker try later, not at once. A step records the fault."""
    mine = Run.objects.filter(pk=lease.run_id, epoch=lease.epoch, status=RunStatus.RUNNING)
    try:
        with transaction.atomic():
            run = mine.select_for_update(no_key=True).first()
            if run is not None:
                told = clean_text(f"{type(fault).__name__}: {fault}")[:MOST_OF_A_FAULT]
                tell_fault(run, told, f"The worker met a fault. Next try in {seconds:g} s. {told}")
    except Exception:  # whatever it is, the run must not be due again at once
        log.exception("run %s: no step can be written", lease.run_id)
    mine.update(status=RunStatus.QUEUED, due_at=Now() + timedelta(seconds=seconds))


IS_MADE_ANEW = Q(kind=Step.Kind.ASK) & tells_of("react.notice", code=MADE_ANEW)
"""Steps that retry a lost call: the far side said that it did not happen."""

_NO_MOVE = (
    (Q(kind=Step.Kind.NOTE) & tells("run.held_back"))
    | (Q(kind=Step.Kind.RECOVERED) & tells_of("run.recovered", stopped=True))
    | IS_MADE_ANEW
)
"""Steps that may come between two losses: a halt, a worker that left in order, the retry of a lost call."""

_BETWEEN = (name_of("run.held_back"), name_of("react.notice", "code", MADE_ANEW))
"""Names of such a step's facts, if it does not record a lost worker."""


def others_wait() -> bool:
    """Return True if a run waits for a worker."""
    return Run.objects.due().exists()


def lost_in_a_row(run: Run) -> int:
    """Return how many workers were lost, or met a fault, since the run last moved; counted up to MOST_LOST."""
    return len(_losses(run))


def faults_in_a_row(run: Run) -> list[str]:
    """Return the faults of our own code among those losses, the last one first."""
    return [fault for facts in _losses(run) if (fault := RECOVERED.validate_json(facts)[0].fault)]


def pause_after_losses(run: Run, times: int, faults: int) -> None:
    """Pause the run, for its worker: too many were lost on it while an answer was waiting."""
    told = f"{losses_in_words(times, faults)} The answer for it is kept."
    cure = "Check the worker's log, then resume the run."
    append(run, "pause", (Paused(by="the runtime", message=f"{told} {cure}"),), status=RunStatus.PAUSED)


def _losses(run: Run) -> list[str]:
    """Return the facts of each loss since the run last moved, the last one first; at most MOST_LOST."""
    head = first("SELECT kind, fact_kinds FROM runs_step WHERE run_id = %s ORDER BY seq DESC LIMIT 1", run.pk)
    if head is None or (head[0] != Step.Kind.RECOVERED and not any(name in head[1] for name in _BETWEEN)):
        return []
    last = run.steps.exclude(_NO_MOVE).order_by("-seq").values_list("kind", "facts_json")[:MOST_LOST]
    return [facts for _, facts in takewhile(lambda row: row[0] == Step.Kind.RECOVERED, last)]
