"""Limits that a run shares with its children and forks, and reservations for calls before they are made.

A run's limits on cost and tokens hold for itself and for every run that came from it. A model call with a known worst
case is reserved first, under a lock on the root's row. So simultaneous calls of a family can't pass a limit together.
The concluding step settles the reservation. A script's call is known exactly. Calls of unknown cost are made one at a
time in a family with a shared limit on cost. See docs/runtime.md, "Limits".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now

from runs.engine.facts import LimitRaised
from runs.engine.settings import LIMIT_NAMES, PAID_LIMITS, LimitName
from runs.engine.snapshot import SharedLimit, Worst
from runs.models import Budget, Interrupt, Run
from runs.store.appending import append, totals_of
from runs.store.db import again, first, places, quoted, rows
from runs.store.errors import Fenced, NotYet
from runs.store.loading import MOVES
from runs.store.log import lock

SHARED = "shared"
"""Scope of the budget lines for people's raises of a shared limit in one of the runs.

`used` is the part that the root has taken over as its own since.
"""


def root_of(run: Run) -> int:
    """Return the run whose limits hold for this one too."""
    return run.root_id or run.pk


_SHARED_ONCE_FORKED = (
    "SELECT 1 FROM runs_budget WHERE run_id = %s AND scope = 'limits'"
    f" AND name IN ({quoted(PAID_LIMITS)}) LIMIT 1"
)


def may_share(run: Run) -> bool:
    """Return True if the run shares a limit from its launch, or will once it is forked or has a child."""
    return first(_SHARED_ONCE_FORKED, root_of(run)) is not None


def limits_cost(run: Run) -> bool:
    """Return True if a limit on cost holds for the run: its own, or a shared one."""
    limits = Budget.objects.filter(scope="limits", name="cost_usd")
    return limits.filter(run__in=(run.pk, root_of(run))).exists()


def limits_shared_by(run: Run) -> Mapping[LimitName, SharedLimit]:
    """Return the run's shared limits, with the others' usage and reservations; none if it is alone."""
    return shared_limits_of([run.pk])[run.pk]


def shared_limits_of(runs: Collection[int]) -> dict[int, Mapping[LimitName, SharedLimit]]:
    """Return the same for many runs, by their keys: with as many queries as for one."""
    shared: dict[int, Mapping[LimitName, SharedLimit]] = {run: {} for run in runs}
    spent = _elsewhere(runs)
    limits = _limits({root for root, _ in spent.values()})
    for run, (root, elsewhere) in spent.items():
        shared[run] = {
            name: SharedLimit(limit, elsewhere[name].all, root, elsewhere[name].aside)
            for name, limit in limits[root].items()
        }
    return shared


_LIMITS = f"""
SELECT own.run_id, own.name, own."limit" + COALESCE((
    SELECT SUM(more."limit" - more.used)
    FROM runs_budget more JOIN runs_run run ON run.id = more.run_id
    WHERE (run.id = own.run_id OR run.root_id = own.run_id) AND more.scope = '{SHARED}' AND more.name = own.name
), 0)
FROM runs_budget own
WHERE own.run_id IN ({{runs}}) AND own.scope = 'limits' AND own.name IN ({quoted(PAID_LIMITS)})
ORDER BY own.name
"""
"""One statement, so a raise which the root takes over meanwhile counts once."""


def _limits(roots: Collection[int]) -> dict[int, dict[LimitName, float]]:
    """Return the limits of each root, with people's raises in any of the runs that share them."""
    limits: dict[int, dict[LimitName, float]] = {root: {} for root in roots}
    for root, name, limit in _rows(_LIMITS, roots):
        limits[root][name] = limit
    return limits


class _Elsewhere(NamedTuple):
    """Other runs' usage and reservations of a limit, and the reserved part alone."""

    all: float
    aside: float


TOLD = f"""({{0}}.ended_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM runs_step
    WHERE run_id = {{0}}.parent_id AND seq > {{0}}.parent_seq AND kind IN ({quoted(MOVES)})
))"""
"""SQL: True if the parent has moved since its ask for the run: with that move it took the child's cost. Additions by
people or the runtime to the parent are no moves."""

_ELSEWHERE = f"""
SELECT mine.id, COALESCE(mine.root_id, mine.id),
    SUM(other.cost_usd - other.copied_usd + other.reserved_usd) FILTER (WHERE NOT {TOLD.format("other")}),
    SUM(other.reserved_usd) FILTER (WHERE NOT {TOLD.format("other")}),
    CASE WHEN {TOLD.format("mine")} THEN mine.cost_usd ELSE mine.copied_usd END,
    SUM(other.input_tokens + other.output_tokens - other.copied_tokens + other.reserved_tokens),
    SUM(other.reserved_tokens),
    mine.copied_tokens
FROM runs_run mine JOIN runs_run other
    ON other.id <> mine.id
    AND (other.id = COALESCE(mine.root_id, mine.id) OR other.root_id = COALESCE(mine.root_id, mine.id))
WHERE mine.id IN ({{runs}})
GROUP BY mine.id
"""


def _elsewhere(runs: Collection[int]) -> dict[int, tuple[int, dict[LimitName, _Elsewhere]]]:
    """Return the root of each run with others beside it, and those others' own usage and reservations.

    A child's cost becomes its parent's once the parent knows it; the child itself then sees it among the others. The
    usage of a run's copied steps is another run's, and its own too.
    """
    return {
        run: (
            root,
            {
                "cost_usd": _Elsewhere(round((usd or 0.0) - usd_, 10), round(aside_usd or 0.0, 10)),
                "tokens": _Elsewhere(int(tokens) - tokens_, int(aside_tokens)),
            },
        )
        for run, root, usd, aside_usd, usd_, tokens, aside_tokens, tokens_ in _rows(_ELSEWHERE, runs)
    }


def _rows(sql: str, runs: Collection[int]) -> list[Any]:
    """Return the rows of a statement about `runs`."""
    return rows(sql.format(runs=places(runs)), *runs) if runs else []


@again
def reserve(run: Run, epoch: int, worst: Worst, limits: Mapping[LimitName, float]) -> bool:
    """Reserve the largest usage of a call, if it fits the run's own limits and the shared ones; return whether it did.

    Raises `NotYet` if its cost is unknown, and another such call of the family is in flight.
    """
    with transaction.atomic():
        lock(root_of(run))
        used = Run.objects.values_list("cost_usd", F("input_tokens") + F("output_tokens")).get(pk=run.pk)
        own = {"cost_usd": used[0], "tokens": used[1]}
        shared = limits_shared_by(run)
        for name in PAID_LIMITS:
            if name in limits and not worst.fits(name, limits[name] - own[name]):
                return False
            if name not in shared:
                continue
            left = shared[name].limit - shared[name].elsewhere - own[name]
            if round(left, 10) <= 0 or not worst.fits(name, left):
                return False
            if name == "cost_usd" and worst.cost_usd is None and _makes_an_unpriced_call(run):
                raise NotYet(run.pk)
        held = Run.objects.filter(pk=run.pk, epoch=epoch)
        aside = {"reserved_usd": worst.of("cost_usd"), "reserved_tokens": worst.tokens}
        if not held.update(**aside, reserved_epoch=epoch):
            raise Fenced(run.pk, epoch)
    return True


def _makes_an_unpriced_call(run: Run) -> bool:
    """Return True if another run of the family is in a call with only its tokens reserved.

    It counts only during its lease: no run waits for a lost worker's call.
    """
    root = root_of(run)
    others = Run.objects.filter(Q(pk=root) | Q(root=root)).exclude(pk=run.pk)
    return others.filter(reserved_tokens__gt=0, reserved_usd=0, lease_until__gt=Now()).exists()


def raise_shared(run: Run, name: str, amount: float) -> float | None:
    """Raise the run's shared limit; return its new value, or None if the run shares none of that name."""
    if run.root_id is None:
        return None
    limit = _limits([root_of(run)])[root_of(run)]
    if name not in limit:
        return None
    line, _ = Budget.objects.get_or_create(run=run, scope=SHARED, name=name, defaults={"used": 0, "limit": 0})
    Budget.objects.filter(pk=line.pk).update(limit=F("limit") + amount)
    return float(limit[name] + amount)


def take_over(run: Run) -> bool:
    """Raise the root's own limits by the raises in runs that came from it; return whether there were any.

    Its own limit and the shared one are the same: it need not ask for an amount given already. The root's worker writes
    the steps, before anything else of a slice.
    """
    added = Budget.objects.filter(scope=SHARED, run__root=run.pk, limit__gt=F("used")).order_by("pk")
    if not added.exists():
        return False
    with transaction.atomic():
        lock(run.pk)
        for line in added.select_for_update(of=("self",)):
            more = round(line.limit - line.used, 10)
            own = Budget.objects.get(run=run, scope="limits", name=line.name)
            own.limit = round(own.limit + more, 10)
            own.save(update_fields=["limit"])
            by = f"an answer in run {line.run_id}"
            append(run, "limit", (LimitRaised(name=line.name, added=more, limit=own.limit, by=by),))
            Budget.objects.filter(pk=line.pk).update(used=line.limit)
    return True


def held_with_room(run: Run) -> list[Interrupt]:
    """Return the questions at a limit in other runs of its family that have become unnecessary.

    Not those of restored runs about calls with side effects: a person has to look.
    """
    root = root_of(run)
    family = Interrupt.objects.filter(Q(run=root) | Q(run__root=root), kind="limit").exclude(run=run)
    waiting = family.filter(status=Interrupt.Status.PENDING).select_related("run").order_by("seq", "run")
    return [question for question in waiting if not question.may_be_done and has_room(question)]


def has_room(question: Interrupt) -> bool:
    """Return True if more is left of the limit than at the question."""
    left = left_of(question)
    return left is not None and left > ((question.figures or {}).get("left") or 0.0) + 1e-9


def left_of(question: Interrupt) -> float | None:
    """Return the rest of the limit in question, of the run's own and the shared one the smaller.

    The root has only the shared one. Below 0 if more was used; None if the run no longer has that limit.
    """
    run = question.run
    name = next(name for name in LIMIT_NAMES if name == question.limit)
    used, shared = totals_of(run).used(name), limits_shared_by(run).get(name)
    left = [] if shared is None else [shared.limit - shared.elsewhere - used]
    if shared is None or shared.root != run.pk:
        own = Budget.objects.filter(run=run, scope="limits", name=name)
        left += [limit - used for limit in own.values_list("limit", flat=True)]
    return min(left, default=None)
