"""What the commands say about files that runs made and that are gone."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from runs import store
from runs.models import Artifact, Run
from runs.reading.visible import visible

MOST_NAMED = 3


def lost_notice(run: Run | None = None) -> str:
    """Which versions, of one run or of all, are kept nowhere, and where they should be; empty where none is lost."""
    lost = list(store.lost_artifacts(run))
    if not lost:
        return ""
    counted = (
        "1 version of a file that a run made is"
        if len(lost) == 1
        else f"{len(lost)} versions of files that runs made are"
    )
    named = [*map(_named, lost[:MOST_NAMED])]
    if len(lost) > MOST_NAMED:
        named.append(f"{len(lost) - MOST_NAMED} more")
    return f"{counted} not in {Path(settings.DATA_DIR) / 'runs'} (any more): {', '.join(named)}."


def _named(one: Artifact) -> str:
    return f"{visible(one.name)} (version {one.version}) of run {one.run_id}"
