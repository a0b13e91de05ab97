"""Limits that a run shares with its children and forks, and what is set aside for a call before it is made.

A run's limits on cost and tokens hold for itself and for every run that came from it. A model call whose worst case is
known is reserved first, under the root's row, so that calls of the same family at the same moment can't pass a limit
together; the row that concludes the call settles it. Source: reliability.md, D15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum

from runs.engine.settings import PAID_LIMITS, LimitName
from runs.engine.snapshot import SharedLimit
from runs.models import Budget, Run, Step
from runs.store.again import again
from runs.store.errors import Fenced
from runs.store.loading import MOVES
from runs.store.log import lock

SHARED = "shared"
"""Scope of the budget lines that hold what people added to a shared limit in one of the runs."""


@dataclass(frozen=True, slots=True)
class Worst:
    """What one call may use at most."""

    cost_usd: float
    tokens: int

    def of(self, name: LimitName) -> float:
        """The amount that counts against the limit of that name."""
        return self.cost_usd if name == "cost_usd" else self.tokens


def root_of(run: Run) -> int:
    """The run whose limits hold for this one too."""
    return run.root_id or run.pk


def _family(run: Run) -> QuerySet[Run]:
    """The run, the one whose limits hold for it, and all that came from that."""
    root = root_of(run)
    return Run.objects.filter(Q(pk=root) | Q(root_id=root))


def may_share(run: Run) -> bool:
    """Whether there is a limit that the run shares, or will once it is forked or has a child: given at the launch."""
    return Budget.objects.filter(run=root_of(run), scope="limits", name__in=PAID_LIMITS).exists()


def shared_limits(run: Run) -> Mapping[LimitName, SharedLimit]:
    """The limits that the run shares, with what others have used and set aside; none where it is alone."""
    root, members = root_of(run), _family(run)
    if run.root_id is None and not members.exclude(pk=run.pk).exists():
        return {}
    limits = _limits(root, members)
    if not limits:
        return {}
    spent = _spent(members.exclude(pk=run.pk))
    mine = Run.objects.values_list("copied_usd", "copied_tokens").get(pk=run.pk)
    own = {"cost_usd": mine[0], "tokens": mine[1]}
    return {
        name: SharedLimit(limit, round(spent[name] - own[name], 10), root) for name, limit in limits.items()
    }


def _limits(root: int, members: QuerySet[Run]) -> dict[LimitName, float]:
    """The root's limits, and what people added to them in any of the runs."""
    given = dict(Budget.objects.filter(run=root, scope="limits").values_list("name", "limit"))
    added = Budget.objects.filter(run__in=members, scope=SHARED).values_list("name").annotate(Sum("limit"))
    more = dict(added)
    return {name: given[name] + more.get(name, 0.0) for name in PAID_LIMITS if name in given}


_TOLD = Q(ended_at__isnull=False) & Exists(
    Step.objects.filter(run=OuterRef("parent"), seq__gt=OuterRef("parent_seq"), kind__in=MOVES)
)
"""A child whose parent has moved since the ask for it: with that move it took the child's cost. What people or the
runtime add to the parent meanwhile is no move."""


def _spent(members: QuerySet[Run]) -> dict[LimitName, float]:
    """What the runs have used themselves, and what is set aside. A child's cost is its parent's once that knows it."""
    tokens = F("input_tokens") + F("output_tokens") - F("copied_tokens") + F("reserved_tokens")
    sums = members.aggregate(tokens=Sum(tokens))
    costs = members.exclude(_TOLD).aggregate(usd=Sum(F("cost_usd") - F("copied_usd") + F("reserved_usd")))
    return {"cost_usd": costs["usd"] or 0.0, "tokens": sums["tokens"] or 0}


@again
def reserve(run: Run, epoch: int, worst: Worst, limits: Mapping[LimitName, float]) -> bool:
    """Set aside what a call may use at most, where it fits the run's own limits and the shared ones; whether it did."""
    with transaction.atomic():
        lock(root_of(run))
        used = Run.objects.values_list("cost_usd", F("input_tokens") + F("output_tokens")).get(pk=run.pk)
        own = {"cost_usd": used[0], "tokens": used[1]}
        shared = shared_limits(run)
        for name in PAID_LIMITS:
            amount = own[name] + worst.of(name)
            if name in limits and amount > limits[name] + 1e-9:
                return False
            if name in shared and amount + shared[name].elsewhere > shared[name].limit + 1e-9:
                return False
        held = Run.objects.filter(pk=run.pk, epoch=epoch)
        aside = {"reserved_usd": worst.cost_usd, "reserved_tokens": worst.tokens, "reserved_epoch": epoch}
        if not held.update(**aside):
            raise Fenced(run.pk, epoch)
    return True


def raise_shared(run: Run, name: str, amount: float) -> float | None:
    """Add to the limit that the run shares; what it is now, or None where it shares none of that name."""
    if run.root_id is None:
        return None
    limit = _limits(root_of(run), _family(run))
    if name not in limit:
        return None
    line, _ = Budget.objects.get_or_create(run=run, scope=SHARED, name=name, defaults={"used": 0, "limit": 0})
    Budget.objects.filter(pk=line.pk).update(limit=F("limit") + amount)
    return float(limit[name] + amount)
