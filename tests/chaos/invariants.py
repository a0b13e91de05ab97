"""What every fault test checks at the end: I1 to I13 of docs/invariants.md, over the database and what lies beside it.

What the database alone can tell is `manage.py verify --all`'s to check; here it is asked, and the rest is added: the
far side's ledger (effects), limits (purses), pages, copies. Each check is said to which invariants it looks.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.db import transaction

from runs import driver
from runs.engine.effects import EFFECT, HumanCall
from runs.machines import CATALOGUE
from runs.models import FINISHED, Run, RunStatus
from runs.reading import panels
from runs.store import verifying
from tests.chaos import canaries, copies, effects, pages, purses, saved
from tests.chaos.findings import Findings, Violation
from tests.chaos.rounds import rounds_are_whole
from tests.running import check_prompt_hash

SAMPLE = 40
"""Runs that the dear checks look at, by chance: limits row by row, a state."""

PAGES = 12
"""The same of pages: their rows are rendered twice."""

IN_BROWSER = 3
"""Runs whose pages are asked for over HTTP."""


@dataclass(frozen=True)
class Counts:
    """How much was looked at, and what a report shows of it."""

    runs: int = 0
    effects: int = 0
    duplicates: int = 0
    lost: int = 0
    gaps: int = 0
    unfinished: int = 0


def check(runs: Iterable[Run], findings: Findings, dice: random.Random) -> Counts:
    """All that can be told of these runs, which nothing disturbs any more: they must have ended."""
    everything = list(runs)
    ledger = effects.happened()
    duplicates = lost = 0
    for run in everything:
        findings.take("I1 I2 I3 I5 I13", _log(run))
        findings.take("I1 D4b", _end(run))
        findings.take("I8", _prompt(run))
        twice, missing = effects.deeds(run, ledger)
        duplicates, lost = duplicates + len(twice), lost + len(missing)
        findings.take("I4", (*twice, *missing))
        findings.take("I5", effects.ungated(run, ledger))
        findings.take("I9", copies.acyclic(run))
        if run.origin:
            findings.take("I9", copies.whole(run))
    findings.take("I4", effects.outside(everything, ledger))
    _limits(everything, findings, dice)
    for before in copies.written_down():
        findings.take("I9", copies.unchanged(before))
    broken = {one.run for one in findings.violations if one.invariant in ("I2", "I3", "I13")}
    sound = [run for run in everything if run.pk not in broken]
    for run in _some(copies.restorable(sound), dice):
        findings.take("I9", copies.restores(run, dice))
    _pages(sound, findings, dice)
    for path in saved.found():
        findings.take("K12", saved.is_sound(path))
    return Counts(
        runs=len(everything),
        effects=sum(ledger.by_key.values()),
        duplicates=duplicates,
        lost=lost,
        gaps=sum(one.invariant == "I3" for one in findings.violations),
        unfinished=sum(not run.finished for run in everything),
    )


def _some(runs: list[Run], dice: random.Random, most: int = SAMPLE) -> list[Run]:
    return dice.sample(runs, min(most, len(runs)))


def _limits(runs: list[Run], findings: Findings, dice: random.Random) -> None:
    """I6, at the end and at each row of some."""
    ids = {run.pk for run in runs}
    roots = purses.limited() & ids
    for root in roots:
        findings.take("I6", purses.now([root]))
    findings.take("I6", purses.settled(Run.objects.filter(pk__in=ids)))
    limited = [run for run in runs if '"limits"' in run.settings_json]
    for run in _some(limited, dice):
        findings.take("I6", purses.events(run))


def _pages(runs: list[Run], findings: Findings, dice: random.Random) -> None:
    """I7 of pages that are opened now."""
    user, client = pages.onlooker()
    for run in _some(runs, dice, PAGES):
        page = pages.Page(run.pk)
        page.catch_up()
        findings.take("I7", pages.page_is_right(page, run))
        findings.take("I7", pages.numbers_are_right(run, panels.panels_of(run, user)))
    for run in _some(runs, dice, IN_BROWSER):
        findings.take("I7", pages.answers_are_right(run, user, client))


# --- one run ------------------------------------------------------------------------------------------------------


def _log(run: Run) -> Iterator[Violation]:
    """What `verify` finds; its sentence may name the invariant, else it is the chain's (I13)."""
    seqs = list(run.steps.order_by("seq").values_list("seq", flat=True))
    if seqs != list(range(1, run.head + 1)):
        yield Violation("I3", run.pk, f"its rows are {_short(seqs)}, and its head {run.head}")
        return
    misfit = verifying.verify(run, driver.tool_specs(run))
    if misfit is not None:
        named = re.match(r"I\d+", misfit.why)
        yield Violation(named.group() if named else "I13", run.pk, str(misfit))


def _short(seqs: list[int]) -> str:
    twice = [seq for seq, times in Counter(seqs).items() if times > 1]
    return f"{len(seqs)} (twice: {twice[:5]})" if twice else f"{seqs[:3]} … {seqs[-3:]}"


def _end(run: Run) -> Iterator[Violation]:
    """I1, and D4b: no run ends by lost workers; of one that kills its workers a person is asked."""
    if run.status not in (*FINISHED, RunStatus.PAUSED):
        yield Violation("I1", run.pk, f"it is {run.status} at row {run.head}, and nothing moves it")
    if not run.finished or run.origin == "replay":
        return
    poisoned, keyed = run.goal.startswith("poison"), run.goal.startswith(canaries.GOAL)
    if poisoned and not lost_before_questions(run):
        yield Violation("D4b", run.pk, "it kills every worker, and no question tells how many were lost")
    if run.status == RunStatus.FAILED and not keyed:
        yield Violation("D4b", run.pk, f"lost workers or a fault ended it: {_last(run)[:200]}")


def lost_before_questions(run: Run) -> list[int]:
    """Return, for each question about lost workers, how many it tells of."""
    asked = run.exchanges.filter(kind="human_call").order_by("seq").values_list("request_json", flat=True)
    effects = (EFFECT.validate_json(text) for text in asked)
    return [effect.lost for effect in effects if isinstance(effect, HumanCall) and effect.lost]


def _last(run: Run) -> str:
    return str(run.steps.order_by("-seq").values_list("facts_json", flat=True).first())


def _prompt(run: Run) -> Iterator[Violation]:
    """I8: what the model was shown is what the live rows say, and each call in it has its one result."""
    try:
        check_prompt_hash(run)
    except AssertionError as fault:
        yield Violation("I8", run.pk, str(fault))
    yield from rounds_are_whole(run, CATALOGUE[run.machine])


def flipped_byte_is_found(run: Run) -> bool:
    """I13: one byte of a row is changed, and the check names it; nothing is kept of that."""
    step = run.steps.exclude(facts_json="[]").order_by("?").first()
    if step is None:
        return False
    with transaction.atomic():
        at = len(step.facts_json) // 2
        swapped = "x" if step.facts_json[at] != "x" else "y"
        run.steps.filter(pk=step.pk).update(
            facts_json=step.facts_json[:at] + swapped + step.facts_json[at + 1 :]
        )
        misfit = verifying.verify(run, driver.tool_specs(run))
        transaction.set_rollback(True)
    return misfit is not None and misfit.seq == step.seq
