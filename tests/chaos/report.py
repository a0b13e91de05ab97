"""What the bench saw, and how it prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chaos.controls import CONTROLS
from tests.chaos.findings import NAMES, Findings
from tests.chaos.invariants import Counts
from tests.chaos.plants import PLANTS

SHOWN = 20
"""Violations that are printed in full."""

KILL_POINTS: Mapping[str, tuple[str, ...]] = {
    "K1": ("launcher at before_hint", "launcher at inside_commit"),
    "K2": ("after_claim",),
    "K3": ("model_asked", "summary_asked"),
    "K4": ("model_answered", "summary_answered"),
    "K5": ("after_started",),
    "K6": ("effect_begun",),
    "K7": ("effect_done", "after_effect", "before_conclusion_commit"),
    "K7 moves": ("between_moves",),
    "K8": ("after_commit_before_ring",),
    "K9": ("celery at before_claim",),
    "K10": ("inside_question", "before_ask_commit", "inside_commit"),
    "K11": ("person at before_hint",),
    "K12 fork": ("inside_fork", "after_fork_files"),
    "K12 rollback": ("inside_rollback",),
    "K12 compaction": ("inside_compaction",),
    "K12 backup": ("backup_after_table", "backup_before_rename"),
    "K12 file": ("inside_put",),
}
"""The kill points of docs/invariants.md, and which deaths of the bench are at them."""


@dataclass
class Report:
    """What happened, and what was found."""

    database: str
    seed: int
    lease_s: float
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    killed_holding: int = 0
    take_over_s: dict[str, list[float]] = field(default_factory=dict)
    """By the part of the play: from a worker's death to the next row of the run that it held."""
    counts: Counts = field(default_factory=Counts)
    statuses: Counter[str] = field(default_factory=Counter)
    findings: Findings = field(default_factory=Findings)
    seen: dict[str, str] = field(default_factory=dict)
    """What the checks had to look at, in words."""
    poison_kills: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of each part of the play."""
    controls: dict[str, str] = field(default_factory=dict)
    """By the control or the planted fault: what was seen, or empty where it did not turn red."""

    def killed_at(self, name: str) -> int:
        """How often somebody died at a kill point."""
        wanted = KILL_POINTS[name]
        return sum(
            times for how, times in self.kills.items() if how in wanted or how.partition(" at ")[2] in wanted
        )


def is_green(report: Report) -> bool:
    """No violation, and every control red."""
    return not report.findings.violations and all(report.controls.values())


def text_of(report: Report) -> str:
    """The whole report."""
    counts, findings = report.counts, report.findings
    found = Counter(one.invariant for one in findings.violations)
    lines = [
        f"chaos on {report.database}, seed {report.seed}, lease {report.lease_s:g} s, {report.seconds:.0f} s",
        f"  seconds             {', '.join(f'{part} {took:.0f}' for part, took in report.parts.items())}",
        f"  runs                {counts.runs} ({_listed(report.statuses)}), {counts.effects} effects",
        *(f"  {name:18}  {words}" for name, words in report.seen.items()),
        f"  kills               {report.kills.total()}, of a worker that held a run {report.killed_holding}",
        *(f"    {times:5}  {how}" for how, times in sorted(report.kills.items())),
        f"  kill points         {', '.join(f'{name} {report.killed_at(name)}' for name in KILL_POINTS)}",
        *(f"  faults  {times:5}  {what}" for what, times in sorted(report.faults.items())),
        *(f"  take-overs          {part}: {_times(took)}" for part, took in report.take_over_s.items()),
        f"  poison run          asked a person after {report.poison_kills} lost workers"
        if report.poison_kills
        else "  poison run          not played",
        f"  duplicates {counts.duplicates}, lost effects {counts.lost}, gaps {counts.gaps}, "
        f"unfinished {counts.unfinished}",
        f"  looked at           {', '.join(f'{name} {findings.looked[name]}' for name in NAMES)}",
        f"  violations          {len(findings.violations)}"
        f" ({', '.join(f'{name} {found[name]}' for name in NAMES)})",
        *(f"    {one}" for one in findings.violations[:SHOWN]),
    ]
    for name, seen in report.controls.items():
        kind, what = _what(name)
        mark = "red, as it must be" if seen else "GREEN: the bench is blind here"
        lines.append(f"  {kind:18}  {what}: {mark}{f' ({seen})' if seen else ''}")
    lines.append("GREEN" if is_green(report) else "RED")
    return "\n".join(lines)


def _what(name: str) -> tuple[str, str]:
    if name in CONTROLS:
        return "without protection", CONTROLS[name].what
    return "planted fault", PLANTS[name].what


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
