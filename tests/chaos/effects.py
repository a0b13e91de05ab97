"""I4 and I5: what happened at the far side, against what the log says of it and what people have approved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runs.models import Decision, Exchange, Interrupt, Run
from tests.chaos.far_side import ABOVE, EFFECTS
from tests.chaos.findings import Violation
from tests.chaos.plays import DEEDS

CHANGING = (*DEEDS, "toil")

Deed = tuple[str, int]
"""A call: its label and its number."""


@dataclass(frozen=True)
class Happened:
    """The ledger, by key and by what was wanted in which run."""

    by_key: Counter[str]
    by_call: Counter[tuple[int, str, int]]
    """By run, label and number: a fork makes calls of the same label as the run that it comes from."""


def happened() -> Happened:
    """The far side's ledger as it stands."""
    rows = EFFECTS.all()
    return Happened(
        Counter(key for _, key, _, _ in rows), Counter((run_of(key), label, n) for _, key, label, n in rows)
    )


def run_of(key: str) -> int:
    """The run whose call has this key."""
    return int(key.split("-")[1])


def deeds(run: Run, effects: Happened) -> tuple[list[Violation], list[Violation]]:
    """I4: what happened twice, and what the log says has happened and has not."""
    twice, missing = [], []
    refused = _refused(run)
    for exchange in run.exchanges.filter(kind="tool_call", name__in=CHANGING):
        times = effects.by_key[exchange.key]
        answer = json.loads(exchange.answer_json) if exchange.answer_json else None
        if times > 1:
            twice.append(
                Violation("I4", run.pk, f"{exchange.name} happened {times} times under {exchange.key}")
            )
        returned = answer is not None and answer["kind"] == "tool_returned" and answer.get("ran", True)
        if returned and times == 0:
            missing.append(Violation("I4", run.pk, f"row {exchange.seq}: {exchange.name} never happened"))
    if run.goal.startswith("steered") or run.steps.filter(kind="rewind").exists():
        return twice, missing
    for deed in _wanted(run) | refused:
        times = effects.by_call[run.pk, *deed]
        if times > 1 or (times and deed in refused):
            twice.append(Violation("I4", run.pk, f"call {deed} happened {times} times, under several keys"))
    return twice, missing


def _wanted(run: Run) -> set[Deed]:
    """The calls that the run made or was to make."""
    asked = run.exchanges.filter(kind="tool_call", name__in=CHANGING).values_list("request_json", flat=True)
    return {(args["label"], args["n"]) for args in (json.loads(text)["args"] for text in asked)}


def _refused(run: Run) -> set[Deed]:
    found = Interrupt.objects.filter(run=run, kind="tool_call", decision__verdict="reject")
    return {(one.args["label"], one.args["n"]) for one in found}


def ungated(run: Run, effects: Happened) -> Iterator[Violation]:
    """I5: a call that a rule holds back happens once for each time that a person let it, and never without.

    What was approved in rows that a fork has copied lets nothing happen in the fork.
    """
    decided = Decision.objects.filter(
        interrupt__run=run,
        interrupt__kind__in=("tool_call", "may_have_happened"),
        interrupt__seq__gt=run.copied_upto or 0,
        verdict="approve",
    ).select_related("interrupt")
    approved = Counter((one.interrupt.args["label"], one.interrupt.args["n"]) for one in decided)
    for deed in _wanted(run):
        times = effects.by_call[run.pk, *deed]
        if deed[1] > ABOVE and times > approved[deed]:
            yield Violation(
                "I5", run.pk, f"call {deed} happened {times} times, and was approved {approved[deed]} times"
            )
    for one in decided:
        if one.interrupt.deadline is not None and one.at > one.interrupt.deadline:
            yield Violation("I5", run.pk, f"row {one.interrupt.seq} was approved after its deadline")


def outside(runs: Iterable[Run], effects: Happened) -> Iterator[Violation]:
    """I4: no effect of which the database knows nothing."""
    ids = {run.pk for run in runs}
    known = set(Exchange.objects.filter(run_id__in=ids, kind="tool_call").values_list("key", flat=True))
    for key in effects.by_key:
        if run_of(key) in ids and key not in known:
            yield Violation("I4", run_of(key), f"the effect {key} is in no row")
