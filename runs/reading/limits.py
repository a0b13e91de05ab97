"""The limits of a run as they stand: its own and those that it shares, and what a call that is held back wants of them.

What holds a run back may be its own limit or that of the run it came from; either way the reader is told whose it is,
who has used it, and how much more lets the next call through.
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
"""Calls of the model that a raised limit is to last for, at least."""


@dataclass(frozen=True)
class Standing:
    """A limit and what counts against it. `root` is the run whose it is, where others count in it; else 0."""

    run: int
    name: str
    used: float
    limit: float
    root: int = 0
    others: float = 0.0
    """What of it other runs have used, or set aside for a call under way."""

    @property
    def left(self) -> float:
        """What can still be used; below 0 where more was used than it allows."""
        return round(self.limit - self.used, 10)

    @property
    def figures(self) -> str:
        """How much of it is used."""
        return f"{figures(self.name, self.used, self.limit)} used"

    @property
    def whose(self) -> str:
        """Whose limit it is."""
        if not self.root:
            return "This run’s limit"
        if self.root == self.run:
            return "Shared limit (this run and its forks)"
        return f"Shared limit (#{self.root} and forks)"

    @property
    def by_others(self) -> str:
        """What others have of it; empty where they have nothing."""
        return f"{words.amount(self.name, self.others)} by other runs" if self.others > 0 else ""


@dataclass(frozen=True)
class Wish:
    """What a call may use: at least, for the shortest reply that is of use, and at most. 0 where that is not known."""

    least: float = 0.0
    most: float = 0.0


def used_of(run: Run) -> dict[str, float]:
    """What the run has used of each limit."""
    totals = totals_of(run)
    return {name: totals.used(name) for name in LIMIT_NAMES}


def standings(run: Run, budgets: Iterable[Budget]) -> list[Standing]:
    """Every limit that holds for the run: its own lines first, then those that it shares."""
    return standings_of([run], {run.pk: [*budgets]})[run.pk]


def standings_of(runs: Collection[Run], budgets: Mapping[int, list[Budget]]) -> dict[int, list[Standing]]:
    """The same of many runs, by their keys; what they share is read at once."""
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
    """What the call that each question holds back may use of the limit that it is about, by the question's key."""
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
    """The limit that a question is about, as it stands now, and what the held call wants of it."""

    standing: Standing
    wish: Wish
    add: float
    """What is likely to be enough, and lets the call through with its longest reply; rounded up."""

    @property
    def headline(self) -> str:
        """How far the limit is used, and why that is not enough."""
        name, most = self.standing.name, self.wish.most
        said = title(name, self.standing.used, self.standing.limit)
        if most > self.standing.left > 0:
            return f"{said}; the next call may use up to {words.amount(name, most)}"
        return said

    @property
    def why(self) -> str:
        """Whose limit it is, whether others have used it, and what is left."""
        one = self.standing
        others = (
            f": other runs have used {words.amount(one.name, one.others)} of it" if one.others > 0 else ""
        )
        left = f"{words.amount(one.name, one.left)} is left" if one.left > 0 else "Nothing is left"
        return f"{one.whose}{others}. {left} for the next call."


def limit_asked(interrupt: Interrupt, run: Run, found: Iterable[Standing], wish: Wish) -> LimitAsked | None:
    """What a question about a limit is about; None where the run has no such limit any more.

    Of the run's own limit and the shared one it is the first that holds the call back, as the gate looks at them.
    """
    lines = [line for line in found if line.name == interrupt.limit]
    if not lines:
        return None
    held = (line for line in lines if line.left <= 0 or line.left < wish.least)
    about = next(held, None) or min(lines, key=lambda line: line.left)
    return LimitAsked(about, wish, _to_add(about.name, lines, wish, run))


def likely(name: str, run: Run) -> float:
    """What the run may use of the limit from here on: as much as its calls so far, and as CALLS_AHEAD of them."""
    used = used_of(run)[name]
    return used / run.model_calls * max(run.model_calls, CALLS_AHEAD) if run.model_calls else 0.0


def also_short(lines: list[Standing], run: Run) -> float:
    """What is likely to be wanted of another limit than the one that is asked about; 0 where enough is left."""
    name = lines[0].name
    short = likely(name, run) - min(line.left for line in lines)
    return rounded_up(name, short) if short > 0 else 0.0


def _to_add(name: str, lines: list[Standing], wish: Wish, run: Run) -> float:
    """What has to be added to every one of the lines."""
    want = max(wish.most, likely(name, run)) or max(line.limit for line in lines) or 1.0
    short = want - min(line.left for line in lines)
    return rounded_up(name, short if short > 0 else want)


def rounded_up(name: str, value: float) -> float:
    """A number above 0 with two digits that is no less; tokens are whole."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    if name == "tokens":
        step = max(1.0, step)
    return float(f"{math.ceil(round(value / step, 6)) * step:.12g}")


def plain(number: float) -> str:
    """A number as a form and a command take it."""
    return f"{number:.10f}".rstrip("0").rstrip(".")


# --- in words -----------------------------------------------------------------------------------------------------


def figures(name: str, used: float, limit: float) -> str:
    """How much of how much; in full where short numbers would look alike and are not."""
    shown = words.amount(name, used), words.amount(name, limit)
    if shown[0] == shown[1] and used != limit:
        before, after = {"cost_usd": ("$", ""), "active_seconds": ("", " s")}.get(name, ("", ""))
        shown = (f"{before}{plain(used)}{after}", f"{before}{plain(limit)}{after}")
    return f"{shown[0]} of {shown[1]}"


def title(name: str, used: float, limit: float, root: int = 0, aside: float = 0.0) -> str:
    """How far a limit is used; "reached" only where it is. `root` is the run whose it is, where others count in it.

    `aside`: what of that is only set aside, for calls that are under way in others.
    """
    said = f"{words.LIMIT[name].removesuffix('s')} limit{f' of run {root}' if root else ''}"
    by = " by it and all that came from it" if root else ""
    counts = "used or set aside" if aside else "used"
    return f"{said}{' reached' if used >= limit else ''}: {figures(name, used, limit)} {counts}{by}"


def as_asked(stored: str, figures: Mapping[str, Any] | None) -> str:
    """The title of a question about a limit, in words: as the limit stood when it was asked."""
    told = AtLimit.model_validate(figures) if figures else None
    if told is None or told.name not in words.LIMIT:
        return stored
    said = title(told.name, told.used, told.limit, told.root, told.aside)
    return said if told.used >= told.limit else f"{said}; the next call may use more than is left"
