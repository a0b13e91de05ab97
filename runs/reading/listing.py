"""The list of runs and the queue of open questions: filters, cursors, the numbers of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from runs.machines import CATALOGUE
from runs.models import FINISHED, Budget, Interrupt, Run
from runs.reading import words
from runs.reading.cards import pending_for
from runs.reading.families import Family, families_of
from runs.reading.panels import progress_line, status_name, status_word
from runs.reading.statuses import exit_of
from runs.rights import decides
from runs.store.halting import is_halted

PAGE = 30
FIRST = 50
"""Runs waiting for the reader, shown before all others."""

STATUS_FILTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "active": ("Active", ("queued", "running", "waiting", "paused")),
    "waiting": ("Waiting", ("waiting", "paused")),
    "succeeded": ("Finished", ("succeeded",)),
    "failed": ("Failed or stopped", ("failed", "stopped", "cancelled")),
}


@dataclass(frozen=True)
class Filters:
    """The filters of the list; the URL uses the same names."""

    status: str = ""
    machine: str = ""
    text: str = ""
    before: int | None = None

    @property
    def narrow(self) -> bool:
        """Return True if anything is left out."""
        return bool(self.status or self.machine or self.text)


@dataclass(frozen=True)
class RunView:
    """One run in the list."""

    run: Run
    status: words.Word
    status_name: str
    progress: tuple[str, str]
    """The name of the counted progress, and the count."""
    cost: str
    needs_me: bool
    node: str
    exit: str
    family: Family | None
    """Its children; in a filtered list each run is listed by itself."""


@dataclass(frozen=True)
class RunPage:
    """One page of the list: runs that wait for the reader (on the first page), the others, the next cursor."""

    waiting: tuple[RunView, ...]
    runs: tuple[RunView, ...]
    next_before: int | None

    @property
    def empty(self) -> bool:
        """Return True if nothing is shown."""
        return not self.waiting and not self.runs


def filters_from(query: Any) -> Filters:
    """Return the filters in a query string; unknown ones filter nothing."""
    status, machine, before = query.get("status", ""), query.get("machine", ""), query.get("before", "")
    return Filters(
        status=status if status in STATUS_FILTERS else "",
        machine=machine if machine in CATALOGUE else "",
        text=query.get("q", "").strip()[:200],
        before=int(before) if before.isascii() and before.isdigit() and len(before) < 16 else None,
    )


def run_page(user: Any, filters: Filters) -> RunPage:
    """Return one page of the runs that `user` may see: those waiting for them first, then the newest first."""
    found = _filtered(user, filters)
    mine = pending_for(user).filter(run=OuterRef("pk"))
    found = found.annotate(needs_me=Exists(mine), asks=Exists(_pending()), site_halted=is_halted())
    waiting = list(found.filter(needs_me=True)[:FIRST]) if filters.before is None else []
    rest = found.exclude(pk__in=[run.pk for run in waiting])
    if not filters.narrow:
        rest = rest.filter(parent__isnull=True)  # a child stands below its parent
    if filters.before is not None:
        rest = rest.filter(pk__lt=filters.before, needs_me=False)
    page = list(rest[: PAGE + 1])
    runs = page[:PAGE]
    progress = _progress_of([*waiting, *runs])
    families = {} if filters.narrow else families_of(runs)
    return RunPage(
        waiting=tuple(_view(run, progress, user) for run in waiting),
        runs=tuple(_view(run, progress, user, families.get(run.pk)) for run in runs),
        next_before=runs[-1].pk if len(page) > PAGE else None,
    )


def _pending() -> QuerySet[Interrupt]:
    return Interrupt.objects.filter(run=OuterRef("pk"), status=Interrupt.Status.PENDING)


def _filtered(user: Any, filters: Filters) -> QuerySet[Run]:
    found: QuerySet[Run] = Run.objects.for_user(user).select_related("owner")
    if filters.status:
        found = found.filter(status__in=STATUS_FILTERS[filters.status][1])
    if filters.machine:
        found = found.filter(machine=filters.machine)
    if filters.text:
        text = Q(goal__icontains=filters.text)
        number = filters.text.lstrip("#")
        if number.isascii() and number.isdigit() and len(number) < 16:
            text |= Q(pk=int(number))
        found = found.filter(text)
    return found.order_by("-pk").defer("settings_json", "site_rules_json", "answer")


def _progress_of(runs: list[Run]) -> dict[int, tuple[str, str]]:
    """Return each run's progress: the name of the count, and the count."""
    lines: dict[int, list[Budget]] = {}
    for line in Budget.objects.filter(run__in=[run.pk for run in runs], scope="global").order_by("pk"):
        lines.setdefault(line.run_id, []).append(line)
    found = {}
    machines = {run.pk: run.machine for run in runs}
    for run_id, own in lines.items():
        shown = progress_line(machines[run_id], own)
        if shown is not None:
            found[run_id] = (
                words.spoken(shown.name).capitalize(),
                f"{words.number(shown.used)} of {words.number(shown.limit)}",
            )
    return found


def _view(run: Any, progress: dict[int, tuple[str, str]], user: Any, family: Family | None = None) -> RunView:
    return RunView(
        run=run,
        status=status_word(run, run.asks, decides(user)),
        status_name=status_name(run),
        progress=progress.get(run.pk, ("Steps", str(run.head))),
        cost=words.money(run.cost_usd),
        needs_me=run.needs_me,
        node="" if run.status in FINISHED else words.spoken(run.node),
        exit=exit_of(run),
        family=family,
    )
