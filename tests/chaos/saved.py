"""K12 of backups: one that was killed leaves nothing that could be taken for one, and each that is there is whole."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from agentsite import archive
from runs.models import Run, Step
from tests.chaos.findings import Violation

NAMES = ("first.zip", "second.zip", "third.zip")
"""Each is written over again and again."""


def folder() -> Path:
    """Where the bench's backups are."""
    return Path(settings.DATA_DIR) / "backups"


def found() -> list[Path]:
    """Everything in there, hidden names too."""
    return sorted(folder().iterdir()) if folder().exists() else []


def is_sound(path: Path) -> Iterator[Violation]:
    """A backup under a name of its own is whole, and of one moment; anything else is hidden and named as a part."""
    if path.name not in NAMES:
        if path.name not in {f".{name}.partial" for name in NAMES}:
            yield Violation("K12", None, f"{path.name} is among the backups, and nobody made it")
        return
    try:
        with archive.checked(path) as backup:
            yield from _of_one_moment(path, backup)
    except archive.BadBackup as why:
        yield Violation("K12", None, f"a backup is not whole: {why.why}")


def _of_one_moment(path: Path, backup: archive.Backup) -> Iterator[Violation]:
    """Every run in it has its rows to the head, and the head's hash is that of its last row."""
    steps: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for row in _rows(backup, Step):
        steps[row["run_id"]].append((row["seq"], row["hash"]))
    for row in _rows(backup, Run):
        own = sorted(steps.pop(row["id"], []))
        if [seq for seq, _ in own] != list(range(1, row["head"] + 1)):
            yield Violation("K12", row["id"], f"{path.name} has {len(own)} of its {row['head']} rows")
        elif own and own[-1][1] != row["head_hash"]:
            yield Violation("K12", row["id"], f"its head in {path.name} is not its last row there")
    if steps:
        yield Violation("K12", next(iter(steps)), f"{path.name} has rows of it, and not the run")


def _rows(backup: archive.Backup, table: Any) -> Iterator[dict[str, Any]]:
    lines = backup.lines(table)
    names = json.loads(next(lines))
    for line in lines:
        yield dict(zip(names, json.loads(line), strict=True))
