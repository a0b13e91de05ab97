"""The commands' report on files of runs that are missing or changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from runs.models import Artifact, Run
from runs.reading.hidden_text import visible
from runs.store import artifacts

MOST_NAMED = 3


@dataclass(frozen=True)
class LostFiles:
    """Versions without stored bytes: missing ones, and ones replaced by others."""

    gone: tuple[Artifact, ...]
    changed: tuple[Artifact, ...]

    @property
    def notice(self) -> str:
        """Return their names and expected places; empty if none is lost."""
        folder = Path(settings.DATA_DIR) / "runs"
        said = []
        if self.gone:
            said.append(f"{_counted(self.gone)} missing in {folder}: {_named(self.gone)}.")
        if self.changed:
            said.append(
                f"{_counted(self.changed)} changed in {folder} since the run wrote it: {_named(self.changed)}."
            )
        return " ".join(said)


def lost_files(run: Run | None = None) -> LostFiles:
    """Return the lost files of one run, or of all."""
    gone: list[Artifact] = []
    changed: list[Artifact] = []
    for one in artifacts.lost_artifacts(run):
        (changed if artifacts.was_changed(one) else gone).append(one)
    return LostFiles(tuple(gone), tuple(changed))


def _counted(lost: Sequence[Artifact]) -> str:
    return "1 version of a run's file is" if len(lost) == 1 else f"{len(lost)} versions of runs' files are"


def _named(lost: Sequence[Artifact]) -> str:
    named = [f"{visible(one.name)} (version {one.version}) of run {one.run_id}" for one in lost[:MOST_NAMED]]
    if len(lost) > MOST_NAMED:
        named.append(f"{len(lost) - MOST_NAMED} more")
    return ", ".join(named)
