"""I6: what runs have spent and set aside, against their limits and those that a family shares.

Reckoned here anew from the runs' rows, not asked of the store that keeps the purse.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator

from django.db.models import Q, QuerySet

from runs.models import FINISHED, Budget, Exchange, Run, RunStatus, Step
from runs.store import copying
from runs.store.db import snapshot
from tests.chaos.findings import Violation

NAMES = ("cost_usd", "tokens")

IN_REST = (*FINISHED, RunStatus.WAITING)
"""A run that stands so makes no call, so nothing is set aside for one."""

MOVES = (Step.Kind.TRANSITION, Step.Kind.ASK, Step.Kind.STOP, Step.Kind.REWIND, Step.Kind.COMPACTION)
SLACK = 1e-9


def now(roots: Iterable[int]) -> Iterator[Violation]:
    """The families of these roots at this one moment, whoever works on them."""
    wanted = set(roots)
    with snapshot():
        found = list(families(wanted))
    yield from found


def families(roots: Iterable[int]) -> Iterator[Violation]:
    """These families as the database has them at this look."""
    wanted = set(roots)
    members = list(Run.objects.filter(Q(pk__in=wanted) | Q(root_id__in=wanted)))
    yield from _spent(members)
    yield from _left_in_rest(members)


def limited() -> set[int]:
    """The roots of the families that have a limit."""
    given = Budget.objects.filter(scope="limits", name__in=NAMES).values_list("run_id", "run__root_id")
    return {root or run for run, root in given}


def moving() -> set[int]:
    """Those of which some run is unfinished."""
    unfinished = Run.objects.filter(ended_at__isnull=True).values_list("pk", "root_id")
    return limited() & {root or run for run, root in unfinished}


def settled(runs: QuerySet[Run]) -> Iterator[Violation]:
    """Nobody works any more: nothing is set aside at all."""
    for run in runs.filter(Q(reserved_usd__gt=0) | Q(reserved_tokens__gt=0)):
        amount = f"{run.reserved_tokens} tokens, ${run.reserved_usd:g}"
        yield Violation("I6", run.pk, f"it is {run.status}, nobody owns it, and {amount} are set aside")


def _left_in_rest(members: Iterable[Run]) -> Iterator[Violation]:
    for run in members:
        if run.status in IN_REST and (run.reserved_usd or run.reserved_tokens):
            yield Violation(
                "I6", run.pk, f"it is {run.status}, and {run.reserved_tokens} tokens are set aside"
            )


def _spent(members: Iterable[Run]) -> Iterator[Violation]:
    families: dict[int, list[Run]] = defaultdict(list)
    for run in members:
        families[run.root_id or run.pk].append(run)
    ids = [run.pk for family in families.values() for run in family]
    given: dict[tuple[int, str], float] = {}
    added: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    root_of = {run.pk: root for root, family in families.items() for run in family}
    for line in Budget.objects.filter(run_id__in=ids, scope__in=("limits", "shared"), name__in=NAMES):
        if line.scope == "limits":
            given[line.run_id, line.name] = line.limit
        else:
            added[root_of[line.run_id]][line.name] += line.limit
    for root, family in families.items():
        for name in NAMES:
            for run in family:
                children = [child for child in family if child.parent_id == run.pk]
                told = sum(map(_told, children)) if name == "cost_usd" else 0.0
                yield from _alone(run, name, given.get((run.pk, name)), told)
            if (limit := given.get((root, name))) is not None:
                yield from _together(root, family, name, limit + added[root][name])


def _alone(run: Run, name: str, limit: float | None, told: float) -> Iterator[Violation]:
    """One run against its own limit.

    What a fork was born with it has not spent; what a child spent was within the limit of the family, to which people
    may have added in the child.
    """
    if limit is None:
        return
    used = _used(run, name) - told
    if used > max(limit, _copied(run, name)) + SLACK:
        yield Violation("I6", run.pk, f"{name}: {used:g} of {limit:g}")


def _together(root: int, family: list[Run], name: str, limit: float) -> Iterator[Violation]:
    """A family against the limit of its root: nothing counts twice, and nothing is left out."""
    spent = sum(_used(run, name) - _copied(run, name) for run in family)
    if name == "cost_usd":
        spent -= sum(_told(run) for run in family if run.parent_id is not None)
    if spent > limit + SLACK:
        yield Violation("I6", root, f"{name} of it and all that came from it: {spent:g} of {limit:g}")


def _used(run: Run, name: str) -> float:
    """Settled and reserved."""
    if name == "cost_usd":
        return run.cost_usd + run.reserved_usd
    return run.input_tokens + run.output_tokens + run.reserved_tokens


def _copied(run: Run, name: str) -> float:
    return run.copied_usd if name == "cost_usd" else run.copied_tokens


def _told(child: Run) -> float:
    """What of a child's cost its parent counts as its own by now."""
    assert child.parent_id is not None and child.parent_seq is not None
    moved = Step.objects.filter(run_id=child.parent_id, seq__gt=child.parent_seq, kind__in=MOVES)
    asked = Exchange.objects.filter(run_id=child.parent_id, seq=child.parent_seq).first()
    if asked is None or asked.answer_json is None or not moved.exists():
        return 0.0
    return float(json.loads(asked.answer_json).get("cost_usd") or 0.0)


def events(run: Run) -> Iterator[Violation]:
    """At each row: what was settled by then, against the limit in force then.

    A guess at a lost call may have been taken back later, which no row tells: such a run is passed over. So is one with
    children, whose cost the family's limit bounds.
    """
    if run.children.exists() or run.exchanges.filter(kind="child_run").exists():
        return
    limits = copying.limits_at(run, run.head)
    sums = copying.totals_at(run, run.head)
    charged = (sums.cost_usd, sums.input_tokens + sums.output_tokens)
    if not limits or any(
        abs(one - other) > SLACK
        for one, other in zip(charged, (run.cost_usd, run.input_tokens + run.output_tokens), strict=True)
    ):
        return
    for seq in range((run.copied_upto or 0) + 1, run.head + 1):
        limits, sums = copying.limits_at(run, seq), copying.totals_at(run, seq)
        for name, used in (("cost_usd", sums.cost_usd), ("tokens", sums.input_tokens + sums.output_tokens)):
            if used > max(limits.get(name, used), _copied(run, name)) + SLACK:
                yield Violation("I6", run.pk, f"row {seq}: {name} is {used:g} of {limits[name]:g}")


def set_aside() -> int:
    """Runs for which something is set aside at this moment."""
    found: int = Run.objects.filter(reserved_tokens__gt=0).count()
    return found


def lost_calls() -> float:
    """Tokens of calls whose worker was lost, as limits count them."""
    facts = Step.objects.filter(kind=Step.Kind.RECOVERED).values_list("facts_json", flat=True)
    return float(sum(json.loads(text)[0].get("tokens") or 0 for text in facts))
