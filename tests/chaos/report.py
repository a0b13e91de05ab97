"""What the bench prints."""

from __future__ import annotations

from collections import Counter

from tests.chaos.bench import Report
from tests.chaos.controls import CONTROLS
from tests.chaos.invariants import NAMES

SHOWN = 20
"""Violations that are printed in full."""


def is_green(report: Report) -> bool:
    """No violation, and every control red."""
    return not report.violations and all(report.controls.values())


def text_of(report: Report) -> str:
    """The whole report."""
    assert report.counts is not None
    counts = report.counts
    found = Counter(one.invariant for one in report.violations)
    lines = [
        f"chaos on {report.database}, seed {report.seed}, lease {report.lease_s:g} s, {report.seconds:.0f} s",
        f"  seconds             {', '.join(f'{part} {took:.0f}' for part, took in report.parts.items())}",
        f"  runs                {counts.runs} ({_listed(report.statuses)}), {counts.effects} effects",
        f"  kills               {report.kills.total()}, of a worker that held a run {report.killed_holding}",
        *(f"    {times:5}  {how}" for how, times in sorted(report.kills.items())),
        *(f"  faults  {times:5}  {what}" for what, times in sorted(report.faults.items())),
        *(f"  take-overs          {part}: {_times(took)}" for part, took in report.take_over_s.items()),
        f"  poison run          ended after {report.poison_kills} lost workers"
        if report.poison_kills
        else "  poison run          not played",
        f"  duplicates {counts.duplicates}, lost effects {counts.lost}, gaps {counts.gaps}, "
        f"unfinished {counts.unfinished}",
        f"  violations          {len(report.violations)}"
        f" ({', '.join(f'{name} {found[name]}' for name in NAMES)})",
        *(f"    {one}" for one in report.violations[:SHOWN]),
    ]
    for name, seen in report.controls.items():
        mark = "red, as it must be" if seen else "GREEN: the bench is blind here"
        lines.append(f"  without protection  {CONTROLS[name].what}: {mark}{f' ({seen})' if seen else ''}")
    lines.append("GREEN" if is_green(report) else "RED")
    return "\n".join(lines)


def _listed(statuses: Counter[str]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(statuses.items()))


def _times(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    ordered = sorted(seconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return (
        f"{len(ordered)}, from death to the run's next row: p50 {p50:.2f} s, p99 {p99:.2f} s, "
        f"longest {ordered[-1]:.2f} s"
    )
