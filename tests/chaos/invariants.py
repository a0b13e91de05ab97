"""What every fault test checks at the end: I1 to I13 of reliability.md, over the database and the far side's ledger.

What the database alone can tell is `manage.py verify --all`'s to check; here it is asked, and the rest is added.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import transaction

from runs import driver, store
from runs.models import FINISHED, Budget, Decision, Exchange, Interrupt, Run, RunStatus, Step
from runs.reading.exporting import export
from runs.store import MOST_LOST
from tests.chaos.far_side import ABOVE, EFFECTS
from tests.chaos.plays import DEEDS
from tests.runs.running import _check_prompt

NAMES = (*(f"I{number}" for number in range(1, 14)), "D4b")


@dataclass(frozen=True)
class Violation:
    """Something that must never be, with the invariant's name."""

    invariant: str
    run: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}{f' run {self.run}' if self.run else ''}: {self.what}"


@dataclass(frozen=True)
class Counts:
    """How much was looked at, and what a report shows of it."""

    runs: int
    effects: int
    duplicates: int
    lost: int
    gaps: int
    unfinished: int


def check(runs: Iterable[Run]) -> tuple[list[Violation], Counts]:
    """All invariants of these runs, which nothing disturbs any more: they must have ended."""
    found: list[Violation] = []
    everything = list(runs)
    effects = _effects()
    duplicates = lost = 0
    for run in everything:
        found += _log(run)
        found += _end(run)
        found += _page(run)
        found += _prompt(run)
        found += _limits(run)
        twice, missing = _deeds(run, effects)
        duplicates, lost = duplicates + len(twice), lost + len(missing)
        found += (*twice, *missing, *_ungated(run, effects))
    found += _outside(everything, effects)
    found += _leaks()
    counts = Counts(
        runs=len(everything),
        effects=sum(effects.by_key.values()),
        duplicates=duplicates,
        lost=lost,
        gaps=sum(one.invariant == "I3" for one in found),
        unfinished=sum(not run.finished for run in everything),
    )
    return found, counts


@dataclass(frozen=True)
class _Effects:
    """The ledger, by key and by what was wanted."""

    by_key: Counter[str]
    by_call: Counter[tuple[str, int]]


def _effects() -> _Effects:
    rows = EFFECTS.all()
    return _Effects(Counter(key for _, key, _, _ in rows), Counter((label, n) for _, _, label, n in rows))


def _log(run: Run) -> Iterator[Violation]:
    """What `verify` finds; its sentence may name the invariant, else it is the chain's (I13)."""
    seqs = list(run.steps.order_by("seq").values_list("seq", flat=True))
    if seqs != list(range(1, run.head + 1)):
        yield Violation("I3", run.pk, f"its rows are {_short(seqs)}, and its head {run.head}")
        return
    misfit = store.verify(run, driver.tool_specs(run))
    if misfit is not None:
        named = re.match(r"I\d+", misfit.why)
        yield Violation(named.group() if named else "I13", run.pk, str(misfit))


def _short(seqs: list[int]) -> str:
    twice = [seq for seq, times in Counter(seqs).items() if times > 1]
    return f"{len(seqs)} (twice: {twice[:5]})" if twice else f"{seqs[:3]} … {seqs[-3:]}"


def _end(run: Run) -> Iterator[Violation]:
    """I1, and D4b: only the run that kills its workers ends by that."""
    if run.status not in (*FINISHED, RunStatus.PAUSED):
        yield Violation("I1", run.pk, f"it is {run.status} at row {run.head}, and nothing moves it")
    poisoned = run.goal.startswith("poison")
    lost = store.lost_in_a_row(run) >= MOST_LOST
    if not run.finished:
        return
    if poisoned and (run.exit_reason != "fatal_error" or "workers in a row" not in _last(run)):
        yield Violation("D4b", run.pk, f"it kills every worker, and ended as {run.exit_reason}")
    if not poisoned and (lost or run.status == RunStatus.FAILED):
        yield Violation("D4b", run.pk, f"a poisoned neighbour or a fault ended it: {_last(run)[:200]}")


def _last(run: Run) -> str:
    return str(run.steps.order_by("-seq").values_list("facts_json", flat=True).first())


def _page(run: Run) -> Iterator[Violation]:
    """I7: what a page shows has every row once, in order."""
    shown = [row["seq"] for row in export(run)["steps"]]
    if shown != sorted(set(shown)) or len(shown) != run.head:
        yield Violation("I7", run.pk, f"its page shows {len(shown)} rows of {run.head}")


def _prompt(run: Run) -> Iterator[Violation]:
    """I8: what the model was shown is what the live rows say."""
    try:
        _check_prompt(run)
    except AssertionError as fault:
        yield Violation("I8", run.pk, str(fault))


def _limits(run: Run) -> Iterator[Violation]:
    """I6: nothing used beyond a limit."""
    for line in Budget.objects.filter(run=run, scope="limits"):
        if line.used > line.limit + 1e-9:
            yield Violation("I6", run.pk, f"{line.name}: {line.used:g} of {line.limit:g}")


# --- effects ------------------------------------------------------------------------------------------------------


def _deeds(run: Run, effects: _Effects) -> tuple[list[Violation], list[Violation]]:
    """I4: what happened twice, and what the log says has happened and has not."""
    twice, missing = [], []
    rejected = _rejected(run)
    done = Counter[tuple[str, int]]()
    for exchange in run.exchanges.filter(kind="tool_call", name__in=DEEDS):
        times = effects.by_key[exchange.key]
        answer = json.loads(exchange.answer_json) if exchange.answer_json else None
        args = json.loads(exchange.request_json)["args"]
        call = (args["label"], args["n"])
        if times > 1:
            twice.append(
                Violation("I4", run.pk, f"{exchange.name} happened {times} times under {exchange.key}")
            )
        if answer is not None and answer["kind"] == "tool_returned" and answer.get("ran", True):
            done[call] += 1
            if times == 0:
                missing.append(Violation("I4", run.pk, f"row {exchange.seq}: {exchange.name} never happened"))
    if run.goal.startswith("steered") or run.steps.filter(kind="rewind").exists():
        return twice, missing
    for call in _wanted(run):
        times = effects.by_call[call]
        if times > 1 or (times and call in rejected):
            twice.append(Violation("I4", run.pk, f"call {call} happened {times} times, under several keys"))
    return twice, missing


def _wanted(run: Run) -> set[tuple[str, int]]:
    """The calls that the run made or was to make."""
    asked = run.exchanges.filter(kind="tool_call", name__in=DEEDS).values_list("request_json", flat=True)
    calls = [json.loads(text)["args"] for text in asked]
    return {(args["label"], args["n"]) for args in calls} | _rejected(run)


def _rejected(run: Run) -> set[tuple[str, int]]:
    found = Interrupt.objects.filter(run=run, kind="tool_call", decision__verdict="reject")
    return {(one.args["label"], one.args["n"]) for one in found}


def _ungated(run: Run, effects: _Effects) -> Iterator[Violation]:
    """I5: a call that a rule holds back happened only where a person had approved it."""
    approved = Counter(
        (one.interrupt.args["label"], one.interrupt.args["n"])
        for one in Decision.objects.filter(
            interrupt__run=run, interrupt__kind="tool_call", verdict="approve"
        ).select_related("interrupt")
    )
    for call in _wanted(run):
        if call[1] > ABOVE and effects.by_call[call] and not approved[call]:
            yield Violation("I5", run.pk, f"call {call} happened, and nobody had approved it")


def _outside(runs: list[Run], effects: _Effects) -> Iterator[Violation]:
    """I4: no effect of which the database knows nothing."""
    ids = {run.pk for run in runs}
    known = set(Exchange.objects.filter(run_id__in=ids, kind="tool_call").values_list("key", flat=True))
    for key in effects.by_key:
        run_id = int(key.split("-")[1])
        if run_id in ids and key not in known:
            yield Violation("I4", run_id, f"the effect {key} is in no row")


# --- the rest -----------------------------------------------------------------------------------------------------


def _leaks() -> Iterator[Violation]:
    """I10: the site's secret is in no log and in no row."""
    secret = settings.SECRET_KEY
    for path in (Path(settings.DATA_DIR) / "logs").glob("*.log"):
        if secret in path.read_text(errors="replace"):
            yield Violation("I10", None, f"the secret key is in {path.name}")
    if Step.objects.filter(facts_json__contains=secret).exists():
        yield Violation("I10", None, "the secret key is in a row")


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
        misfit = store.verify(run, driver.tool_specs(run))
        transaction.set_rollback(True)
    return misfit is not None and misfit.seq == step.seq


def weight_of(pid: int) -> dict[str, int]:
    """I12: descriptors, threads and memory (KiB) of a process."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208
        "threads": int(status["Threads"]),
        "memory": int(status["VmRSS"].split()[0]),
    }
