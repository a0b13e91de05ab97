"""The current limits of a run, its own and the shared ones, and the held call's need of them.

A run may be held by its own limit or by its source run's. The reader learns the owner, the users, and how large a raise
lets the next call through.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Subquery

from runs.driver.ports import price_of
from runs.engine import gates
from runs.engine.effects import EFFECT, AtLimit, HumanCall, ModelCall
from runs.engine.settings import LIMIT_NAMES, PAID_LIMITS, LimitName
from runs.engine.snapshot import SharedLimit
from runs.models import Budget, Exchange, Interrupt, ModelProfile, Run
from runs.reading import words
from runs.store.appending import totals_of
from runs.store.shared_limits import Worst, shared_limits_of

CALLS_AHEAD = 10
"""A raised limit is to last for at least so many model calls."""


@dataclass(frozen=True)
class Standing:
    """A limit and its current use. `root` is the run that owns it, if other runs share it; else 0."""

    run: int
    name: str
    used: float
    limit: float
    root: int = 0
    others: float = 0.0
    """Usage and reservations of other runs."""

    @property
    def left(self) -> float:
        """Return the rest; below 0 if more was used than it allows."""
        return round(self.limit - self.used, 10)

    @property
    def figures(self) -> str:
        """Return how much of it is used."""
        return f"{figures(self.name, self.used, self.limit)} used"

    @property
    def whose(self) -> str:
        """Return whose limit it is."""
        if not self.root:
            return "This run’s limit"
        if self.root == self.run:
            return "Shared limit (this run and its forks)"
        return f"Shared limit (#{self.root} and forks)"

    @property
    def by_others(self) -> str:
        """Return the others' usage of it; empty if they have none."""
        return f"{words.amount(self.name, self.others)} by other runs" if self.others > 0 else ""


@dataclass(frozen=True)
class Wish:
    """A call's least usage, for the shortest useful reply, and its largest. 0 if unknown."""

    least: float = 0.0
    most: float = 0.0


def used_of(run: Run) -> dict[str, float]:
    """Return the run's usage of each limit."""
    totals = totals_of(run)
    return {name: totals.used(name) for name in LIMIT_NAMES}


def standings(run: Run, budgets: Iterable[Budget]) -> list[Standing]:
    """Return every limit of the run: its own lines first, then the shared ones."""
    return standings_of([run], {run.pk: [*budgets]})[run.pk]


def standings_of(runs: Collection[Run], budgets: Mapping[int, list[Budget]]) -> dict[int, list[Standing]]:
    """Return the same for many runs, by their keys; shared limits are read at once."""
    own = {run.pk: _own(run, budgets.get(run.pk, [])) for run in runs}
    shared = shared_limits_of([run.pk for run in runs if own[run.pk] or run.root_id is not None])
    return {run.pk: own[run.pk] + _shared(run, shared.get(run.pk, {})) for run in runs}


def _own(run: Run, budgets: Iterable[Budget]) -> list[Standing]:
    used = used_of(run)
    lines = [line for line in budgets if line.scope == "limits" and line.name in used]
    return [Standing(run.pk, line.name, used[line.name], line.limit) for line in lines]


def _shared(run: Run, limits: Mapping[LimitName, SharedLimit]) -> list[Standing]:
    used, copied = used_of(run), {"cost_usd": run.copied_usd, "tokens": run.copied_tokens}
    return [
        Standing(
            run.pk,
            name,
            round(used[name] + shared.elsewhere, 10),
            shared.limit,
            shared.root,
            round(shared.elsewhere + copied[name], 10),
        )
        for name, shared in limits.items()
    ]


def wishes_of(interrupts: Collection[Interrupt]) -> dict[Any, Wish]:
    """Return each held call's usage of the limit in question, by the question's key."""
    stored = Exchange.objects.filter(run=OuterRef("run"), seq=OuterRef("seq")).values("request_json")
    asked = Interrupt.objects.filter(pk__in=[found.pk for found in interrupts])
    requests = dict(asked.values_list("pk", Subquery(stored)))
    models = {found.run.model_name for found in interrupts}
    profiles = {one.name: one for one in ModelProfile.objects.filter(name__in=models, enabled=True)}
    return {
        found.pk: _wish(found.limit, requests.get(found.pk), profiles.get(found.run.model_name))
        for found in interrupts
    }


def _wish(limit: str, request: str | None, profile: ModelProfile | None) -> Wish:
    asked = EFFECT.validate_json(request) if request else None
    call = asked.holds if isinstance(asked, HumanCall) else None
    name = next((paid for paid in PAID_LIMITS if paid == limit), None)
    if name is None or profile is None or not isinstance(call, ModelCall) or not call.input_tokens:
        return Wish()
    price = price_of(profile)
    sizes = (gates.least_reply(price), price.reply_tokens * call.room)
    least, most = (Worst(price.cost(call.input_tokens, size), call.input_tokens + size) for size in sizes)
    return Wish(least.of(name), most.of(name))


@dataclass(frozen=True)
class LimitAsked:
    """A question's limit in its current state, and the held call's need of it."""

    standing: Standing
    wish: Wish
    add: float
    """A raise that is likely to be enough, and lets the call through with its longest reply; rounded up."""

    @property
    def headline(self) -> str:
        """Return how far the limit is used, and why the rest is too little."""
        name, most = self.standing.name, self.wish.most
        said = title(name, self.standing.used, self.standing.limit)
        if most > self.standing.left > 0:
            return f"{said}; the next call may use up to {words.amount(name, most)}"
        return said

    @property
    def why(self) -> str:
        """Return whose limit it is, the others' usage, and the rest."""
        one = self.standing
        others = (
            f": other runs have used {words.amount(one.name, one.others)} of it" if one.others > 0 else ""
        )
        left = f"{words.amount(one.name, one.left)} is left" if one.left > 0 else "Nothing is left"
        return f"{one.whose}{others}. {left} for the next call."


def limit_asked(interrupt: Interrupt, run: Run, found: Iterable[Standing], wish: Wish) -> LimitAsked | None:
    """Return the limit in a question; None if the run no longer has it.

    Of the run's own limit and the shared one it is the first that holds the call back, in the gate's order.
    """
    lines = [line for line in found if line.name == interrupt.limit]
    if not lines:
        return None
    held = (line for line in lines if line.left <= 0 or line.left < wish.least)
    about = next(held, None) or min(lines, key=lambda line: line.left)
    return LimitAsked(about, wish, _to_add(about.name, lines, wish, run))


def likely(name: str, run: Run) -> float:
    """Return the run's likely further usage of the limit: as much as its calls so far, and as CALLS_AHEAD of them."""
    used = used_of(run)[name]
    return used / run.model_calls * max(run.model_calls, CALLS_AHEAD) if run.model_calls else 0.0


def also_short(lines: list[Standing], run: Run) -> float:
    """Return the likely need of another limit than the one in question; 0 if enough is left."""
    name = lines[0].name
    short = likely(name, run) - min(line.left for line in lines)
    return rounded_up(name, short) if short > 0 else 0.0


def _to_add(name: str, lines: list[Standing], wish: Wish, run: Run) -> float:
    """Return the raise needed in every one of the lines."""
    want = max(wish.most, likely(name, run)) or max(line.limit for line in lines) or 1.0
    short = want - min(line.left for line in lines)
    return rounded_up(name, short if short > 0 else want)


def rounded_up(name: str, value: float) -> float:
    """Return a number above 0, rounded up to two digits; tokens are whole."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    if name == "tokens":
        step = max(1.0, step)
    return float(f"{math.ceil(round(value / step, 6)) * step:.12g}")


def plain(number: float) -> str:
    """Return a number in the form that forms and commands take."""
    return f"{number:.10f}".rstrip("0").rstrip(".")


# --- in words -----------------------------------------------------------------------------------------------------


def figures(name: str, used: float, limit: float) -> str:
    """Return how much of how much; in full if short numbers would look alike and are not."""
    shown = words.amount(name, used), words.amount(name, limit)
    if shown[0] == shown[1] and used != limit:
        before, after = {"cost_usd": ("$", ""), "active_seconds": ("", " s")}.get(name, ("", ""))
        shown = (f"{before}{plain(used)}{after}", f"{before}{plain(limit)}{after}")
    return f"{shown[0]} of {shown[1]}"


def title(name: str, used: float, limit: float, root: int = 0, aside: float = 0.0) -> str:
    """Return how far a limit is used; "reached" only if it is. `root` is the run that owns it, if shared; else 0.

    `aside`: the part reserved for calls in flight in other runs.
    """
    said = f"{words.LIMIT[name].removesuffix('s')} limit{f' of run {root} and its forks' if root else ''}"
    counts = "used or reserved" if aside else "used"
    return f"{said}{' reached' if used >= limit else ''}: {figures(name, used, limit)} {counts}"


def as_asked(stored: str, figures: Mapping[str, Any] | None) -> str:
    """Return the title of a question about a limit, in words: with the limit as of the question."""
    told = AtLimit.model_validate(figures) if figures else None
    if told is None or told.name not in words.LIMIT:
        return stored
    said = title(told.name, told.used, told.limit, told.root, told.aside)
    return said if told.used >= told.limit else f"{said}; the next call may use more than is left"
