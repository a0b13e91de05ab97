"""Read for viewers: in threads, a page of steps at a time, rendered by the templates of the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from runs.engine.settings import LimitName
from runs.engine.snapshot import SharedLimit
from runs.models import Run, RunStatus
from runs.reading import in_flight, panels
from runs.reading.rows import render_row, row_views
from runs.store import halting, shared_limits

PAGE_ROWS: Final = 200
CHILDREN: Final = 20
DATABASE_AWAY = (DatabaseError, InterfaceError)

P = ParamSpec("P")
T = TypeVar("T")
Person = AbstractBaseUser | AnonymousUser

# Not `database_sync_to_async`: that has one thread for all sockets together and opens SQLite anew for every
# question (0.45 ms and a cold cache, against 0.02 ms).
_readers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="feed")


async def read(question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Query the database in a thread, so the event loop goes on."""
    return await asyncio.get_running_loop().run_in_executor(
        _readers, lambda: _with_connection(question, *args, **kwargs)
    )


def _with_connection(question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a query with a connection: SQLite's stays with the thread; a server's goes back to the pool."""
    try:
        return question(*args, **kwargs)
    except DATABASE_AWAY:
        connection.close()
        raise
    finally:
        if connection.vendor != "sqlite":
            close_old_connections()


class Moment(NamedTuple):
    """A run, as far as its panels depend on it."""

    head: int
    status: str
    stopping: bool
    children: tuple[tuple[int, int, str], ...] = ()
    """Of each unfinished child of a waiting run, and of theirs: its number, its head and its status."""
    doing: str = ""
    """The call in flight for longer than a moment."""
    halted: bool = False
    """True if the site is halted, as long as the run has not ended."""
    shared: tuple[tuple[LimitName, SharedLimit], ...] = ()
    """A waiting run's shared limits: other runs' usage changes them while nothing else about it changes."""
    unheard: in_flight.Unheard | None = None
    """The call in flight when the run was stopped: its outcome may become known after the last step."""
    used: tuple[float, ...] = ()
    """Usage of an ended run: a call that ends after it still counts."""


@dataclass(frozen=True)
class Row:
    """A rendered step, ready to be sent."""

    seq: int
    rewind_to: int | None
    json: str


@dataclass(frozen=True)
class Look:
    """The result of one reading: the moment, and the new steps."""

    moment: Moment
    rows: tuple[Row, ...]


class Gone(Exception):
    """The run is no longer there."""

    def __init__(self, run_id: int) -> None:
        super().__init__(f"Run {run_id} is no longer there.")
        self.run_id = run_id


def look(run_id: int, after: int | None) -> Look:
    """Return the run now, with the steps after `after` unless they are too many for one page; raises Gone."""
    run = found(run_id)
    rows: tuple[Row, ...] = ()
    if after is not None and 0 < run.head - after <= PAGE_ROWS:
        rows = rendered(run, after)
    head = max([run.head, *(row.seq for row in rows)])
    halted = run.site_halted and not run.finished
    moment = Moment(head, run.status, run.stopping, doing=run.doing_json, halted=halted)
    if run.status in (RunStatus.WAITING, RunStatus.PAUSED):
        moment = moment._replace(children=children_of(run), shared=shared_by(run))
    elif run.finished:
        used = (run.model_calls, run.tool_calls, run.input_tokens, run.output_tokens, run.cost_usd)
        moment = moment._replace(unheard=in_flight.unheard_of(run), used=used)
    return Look(moment, rows)


def children_of(run: Run) -> tuple[tuple[int, int, str], ...]:
    """Return the unfinished children of a waiting run, and theirs: its page has their lines and questions."""
    found: list[tuple[int, int, str]] = []
    parents = [run.pk]
    while parents and len(found) < CHILDREN:
        unfinished = Run.objects.filter(parent_id__in=parents, ended_at__isnull=True).order_by("pk")
        level = list(unfinished.values_list("pk", "head", "status")[:CHILDREN])
        found += level
        parents = [child for child, _, status in level if status == RunStatus.WAITING]
    return tuple(found)


def shared_by(run: Run) -> tuple[tuple[LimitName, SharedLimit], ...]:
    """Return a run's current shared limits; most runs have none."""
    return tuple(shared_limits.limits_shared_by(run).items()) if shared_limits.may_share(run) else ()


def rows_after(run_id: int, after: int) -> tuple[Row, ...]:
    """Return a page of steps, oldest first; raises Gone."""
    return rendered(found(run_id), after)


def found(run_id: int) -> Any:
    """Return as much of the run as its steps need, and whether the site is halted; raises Gone."""
    used = ("model_calls", "tool_calls", "input_tokens", "output_tokens", "cost_usd")
    columns = (
        "head",
        "status",
        "worker",
        "lease_until",
        "doing_json",
        "created_at",
        "root",
        "exit_reason",
        *used,
    )
    known = Run.objects.annotate(site_halted=halting.is_halted())
    run = known.filter(pk=run_id).only(*columns).order_by().first()
    if run is None:
        raise Gone(run_id)
    return run


def rendered(run: Run, after: int) -> tuple[Row, ...]:
    """Return a page of steps, rendered by the template of the page."""
    views = (
        row_views(run, after=after, limit=PAGE_ROWS)
        if after
        else row_views(run, before=PAGE_ROWS + 1, limit=PAGE_ROWS)
    )
    return tuple(
        Row(view.seq, view.rewind_to, json.dumps({"seq": view.seq, "html": render_row(view)}))
        for view in views
    )


def panels_of(run_id: int, person: Person) -> dict[str, str]:
    """Return the run's panels as `person` sees them; raises Gone."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None:
        raise Gone(run_id)
    return panels.panels_of(run, person)
