"""How a run ended: the cause with its step, the step to retry from, and failures that the agent's answer omits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runs.models import Run, Step, tells
from runs.reading.speaking import reads_of
from runs.reading.words import plural


@dataclass(frozen=True)
class Ending:
    """The end of a run, for the top of its page."""

    message: str
    """Why it ended, in the words of the step that ended it; empty if the reason says all."""
    seq: int
    """The step that ended it."""
    retry_at: int
    """The last transition: a fork from there repeats the failed ask. 0: from the beginning."""
    beside: tuple[str, ...]
    """Calls that failed or did not run, and skipped plan steps: the end reason does not mention them."""
    beside_seq: int
    """The first step of these."""


def ending_of(run: Run) -> Ending | None:
    """Return how the run ended; None while it goes on."""
    if not run.finished:
        return None
    live = Step.objects.filter(run=run, live=True)
    transitions = live.filter(kind=Step.Kind.TRANSITION).exclude(to="end")
    last = transitions.order_by("-seq").values_list("seq", flat=True).first()
    seq, message = _cause(live)
    beside, first = _beside(live, run.machine)
    return Ending(message, seq or run.head, last or 0, beside, first)


def _cause(live: Any) -> tuple[int, str]:
    found = live.filter(tells("react.exit")).order_by("-seq").first()
    if found is None:
        return 0, ""
    facts = json.loads(found.facts_json)
    return found.seq, next((fact["message"] for fact in facts if fact["kind"] == "react.exit"), "")


def _beside(live: Any, machine: str) -> tuple[tuple[str, ...], int]:
    """Return the failures on the way, counted, and the first one's step."""
    found: Counter[str] = Counter()
    first = 0
    own = {kind: reads.counts for kind, reads in reads_of(machine).items() if reads.counts}
    counts = {"react.tool.result": "call", **own}
    told = live.filter(tells(*counts))
    for seq, text in told.order_by("seq").values_list("seq", "facts_json"):
        kinds = [kind for fact in json.loads(text) if (kind := _kind(fact, counts))]
        found.update(kinds)
        first = first or (seq if kinds else 0)
    parts = (
        plural(found["failed"], "call failed", "calls failed") if found["failed"] else "",
        plural(found["not run"], "call did not run", "calls did not run") if found["not run"] else "",
        plural(found["skipped"], "plan step was skipped", "plan steps were skipped")
        if found["skipped"]
        else "",
    )
    return tuple(part for part in parts if part), first


def _kind(fact: dict[str, Any], counts: Mapping[str, str]) -> str:
    match counts.get(fact["kind"]), fact:
        case "call", {"error": str(), "ran": ran}:
            return "failed" if ran else "not run"
        case "skip", _:
            return "skipped"
    return ""
