"""What a check finds, and how often each invariant was looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

NAMES = (*(f"I{number}" for number in range(1, 14)), "D4", "D4b", "K12")
"""The names that docs/invariants.md explains, but for the kill points: of these K12, whose outcome is files."""


@dataclass(frozen=True)
class Violation:
    """Something that must never be, with the invariant's name."""

    invariant: str
    run: int | None
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}{f' run {self.run}' if self.run else ''}: {self.what}"


@dataclass
class Findings:
    """The violations so far, and how often each invariant was looked at."""

    violations: list[Violation] = field(default_factory=list)
    looked: Counter[str] = field(default_factory=Counter)

    def take(self, names: str, found: Iterable[Violation]) -> None:
        """The outcome of one check, which looks at these invariants (their names, parted by blanks)."""
        self.looked.update(names.split())
        self.violations += found
