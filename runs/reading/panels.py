"""The small parts of the run page that change while it is open: each one a piece of HTML with a name.

A panel stays the same as long as nothing has happened: no clock runs in it (scripts show the time). So a page leaves
unchanged parts alone, and a person's input stays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

from django.db.models import Count
from django.template import loader

from runs.engine.settings import PAID_LIMITS
from runs.machines import CATALOGUE
from runs.models import Budget, Interrupt, Run, RunStatus, Step, tells_of
from runs.reading import words
from runs.reading.artifacts import MOST_LISTED, files_of
from runs.reading.cards import card_of
from runs.reading.children import child_html, children_of
from runs.reading.doing import doing_of
from runs.reading.drawing import graph_svg, order_of
from runs.reading.ending import ending_of
from runs.reading.filling import Filling, filling_of, sources_of
from runs.reading.gauges import Gauge, filled
from runs.reading.in_flight import unheard_html, unheard_of
from runs.reading.limits import Standing, standings, used_of
from runs.reading.machine_panel import machine_panel
from runs.reading.restored import why_restored
from runs.reading.statuses import exit_of, status_name, status_word
from runs.rights import decides, may_launch, may_steer
from runs.store.halting import halt_now

PANELS = ("header", "gauges", "needs", "doing", "strip", "answer", "files", "context", "sources", "children")
"""Panels with a template of their own.

Others are `machine`, `child-SEQ` for each child run, and `unheard` if the run was stopped in a call.
"""

_COUNTED = 256
"""Runs whose visits are kept counted."""


@dataclass(frozen=True)
class Visited:
    """A node of the strip."""

    name: str
    label: str
    visits: int
    current: bool


def panels_of(run: Run, user: Any) -> dict[str, str]:
    """Return every panel by its name, as `user` may see it."""
    pending = pending_of(run) or pending_below(run)
    budgets = list(Budget.objects.filter(run=run))
    asker = run if pending is None or pending.run_id == run.pk else pending.run
    card = card_of(pending, user, asker) if pending else None
    visits = visits_of(run)
    files = files_of(run)
    filling = filling_of(run)
    unheard = unheard_of(run) if run.finished else None
    children = children_of(run)
    ending = ending_of(run)
    status = status_word(run, pending is not None, decides(user))
    if ending is not None and ending.beside and status.tone == "good":
        status = status._replace(tone="quiet")
    context = {
        "run": run,
        "status": status,
        "status_name": status_name(run),
        "exit": exit_of(run),
        "ending": ending,
        "may_launch": may_launch(user),
        "may_steer": may_steer(user, run),
        "gauges": [*gauges_of(run, budgets), *_context_gauge(filling)],
        "card": card,
        "asker": asker,
        "doing": doing_of(run),
        "restored": why_restored(run) if run.status == RunStatus.PAUSED else "",
        "halt": None if run.finished else halt_now(),
        "strip": strip_of(run, visits),
        "graph": graph_svg(run.machine, run.node, tuple(sorted(visits.items()))),
        "filling": filling,
        "sources": sources_of(run),
        "files": files[:MOST_LISTED],
        "unheard": unheard,
        "more_files": max(0, len(files) - MOST_LISTED),
        "children": children[::-1],
    }
    found = {name: _template(name).render(context).strip() for name in PANELS}
    found["machine"] = machine_panel(run, [file.name for file in files if file.on_disk], unheard)
    if unheard is not None:
        found["unheard"] = unheard_html(unheard)
    return found | {f"child-{child.parent_seq}": child_html(child) for child in children}


@cache
def _template(name: str) -> Any:
    return loader.get_template(f"runs/_panel_{name}.html")


def pending_of(run: Run) -> Interrupt | None:
    """Return the interrupt that the run waits for, if there is one."""
    if run.finished:
        return None
    pending = Interrupt.objects.filter(run=run, status=Interrupt.Status.PENDING)
    return pending.order_by("-seq").first()


def pending_below(run: Run) -> Interrupt | None:
    """Return the question of the child of a waiting run, or of that one's child."""
    while run.status == RunStatus.WAITING:
        child = Run.objects.filter(parent=run, ended_at__isnull=True).order_by("-pk").first()
        if child is None:
            return None
        if (found := pending_of(child)) is not None:
            return found
        run = child
    return None


def gauges_of(run: Run, budgets: list[Budget]) -> list[Gauge]:
    """Return steps, cost, tokens, time: each with its limit if one is set."""
    standing = standings(run, budgets)
    shared = {line.name: line for line in standing if line.root}
    limits = {line.name: line for line in standing if not line.root and _holds_too(line, shared, run)}
    own = progress_line(run.machine, budgets)
    gauges = []
    if own is not None:
        label = words.spoken(own.name).capitalize()
        gauges.append(
            Gauge(label, words.number(own.used), words.number(own.limit), *filled(own.used, own.limit))
        )
    estimated = not run.script_id and run.steps.filter(tells_of("run.spent", estimated=True)).exists()
    for name, amount in used_of(run).items():
        about = words.ESTIMATED if estimated and name in PAID_LIMITS else ""
        if name in limits:
            gauges.append(_limit_gauge(limits[name], words.LIMIT[name], about))
        else:
            gauges.append(Gauge(words.LIMIT[name], about + words.amount(name, amount)))
        if name in shared:
            label = f"{words.LIMIT[name]}, {_with_whom(run, shared[name])}"
            gauges.append(_limit_gauge(shared[name], label, about))
    return gauges


def _holds_too(line: Standing, shared: dict[str, Standing], run: Run) -> bool:
    """Return True if the run's own limit holds beside the shared one: it differs, and the run has not ended."""
    beside = shared.get(line.name)
    if beside is None or beside.root != run.pk:
        return True
    return beside.limit > line.limit and not run.finished


def _with_whom(run: Run, line: Standing) -> str:
    """Return who shares a limit."""
    return "with children and forks" if line.root == run.pk else f"shared with run {line.root}"


def _limit_gauge(line: Standing, label: str, about: str) -> Gauge:
    used, limit = about + words.amount(line.name, line.used), words.amount(line.name, line.limit)
    return Gauge(label, used, limit, *filled(line.used, line.limit))


def _context_gauge(filling: Filling | None) -> list[Gauge]:
    """Return how full the model's window is; nothing before the first call."""
    if filling is None:
        return []
    limit = words.count(filling.limit) if filling.limit else ""
    share = None if filling.filled is None else min(100.0, filling.filled)
    return [Gauge("Context", words.count(filling.tokens), limit, share, filling.tone)]


def progress_line(machine: str, budgets: Iterable[Budget]) -> Budget | None:
    """Return the line of a machine's own budget that shows a run's progress."""
    lines = sorted((line for line in budgets if line.scope == "global"), key=lambda line: line.pk)
    own = {line.name: line for line in lines}
    name = CATALOGUE[machine].presentation.progress if machine in CATALOGUE else ""
    return own.get(name) or next(iter(own.values()), None)


def strip_of(run: Run, visits: dict[str, int]) -> list[Visited]:
    """Return the machine's nodes in order, with how often each was left."""
    return [
        Visited(name, words.spoken(name), visits.get(name, 0), name == run.node)
        for name in order_of(CATALOGUE[run.machine])
    ]


# --- visits -----------------------------------------------------------------------------------------------------

_visits: OrderedDict[tuple[int, Any], tuple[int, dict[str, int]]] = OrderedDict()
_lock = Lock()


def visits_of(run: Run) -> dict[str, int]:
    """Return how often each node was left, without dead steps. Only new steps are counted."""
    key = (run.pk, run.created_at)
    with _lock:
        head, counts = _visits.get(key, (0, {}))
    if head > run.head:
        head, counts = 0, {}
    rows = Step.objects.filter(run=run, seq__gt=head, seq__lte=run.head)
    if head and rows.filter(kind=Step.Kind.REWIND).exists():
        counts, rows = {}, Step.objects.filter(run=run, seq__lte=run.head)
    new = rows.filter(kind=Step.Kind.TRANSITION, live=True).values_list("node").annotate(times=Count("pk"))
    counts = dict(counts)
    for node, times in new.order_by():
        counts[node] = counts.get(node, 0) + times
    if run.finished and run.node == "end":
        counts["end"] = 1
    with _lock:
        _visits[key] = (run.head, counts)
        _visits.move_to_end(key)
        while len(_visits) > _COUNTED:
            _visits.popitem(last=False)
    return counts
