"""I8: in what a model reads each call has exactly one result, in order, and no summary parts the two."""

from __future__ import annotations

from collections.abc import Iterator

from runs.engine.facts import ToolCalled, ToolReported
from runs.engine.machine import Machine
from runs.engine.timeline import folded
from runs.models import Run
from runs.store.loading import load_blocks
from tests.chaos.findings import Violation


def rounds_are_whole(run: Run, machine: Machine) -> Iterator[Violation]:
    """Over the live rows, and over each summary that stands for some of them."""
    called: tuple[int, str] | None = None
    pairs: list[tuple[int, int]] = []
    rows = run.steps.filter(live=True).exclude(facts_json="[]").order_by("seq")
    for seq, text in rows.values_list("seq", "facts_json"):
        for fact in machine.facts.validate_json(text):
            match fact:
                case ToolCalled(tool=tool):
                    if called is not None:
                        yield Violation(
                            "I8", run.pk, f"row {seq} calls {tool} before row {called[0]} has a result"
                        )
                    called = (seq, tool)
                case ToolReported(tool=tool, ran=ran):
                    if called is None and ran:
                        yield Violation(
                            "I8", run.pk, f"row {seq} has a result of {tool}, which nobody called"
                        )
                    if called is not None:
                        if called[1] != tool:
                            yield Violation("I8", run.pk, f"row {seq} has a result of {tool} for {called[1]}")
                        pairs.append((called[0], seq))
                    called = None
    for summary in folded(load_blocks(run, machine, run.head)).standing():
        for call, result in pairs:
            if summary.covers(call) != summary.covers(result):
                yield Violation(
                    "I8", run.pk, f"the summary of row {summary.seq} parts row {call} from {result}"
                )
