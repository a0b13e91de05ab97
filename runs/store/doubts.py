"""What a restored site can't know: whether a question was answered between the backup and the restore, and acted on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q

from runs.models import Interrupt, Step

THE_RESTORE = "the restore"
"""Who paused the runs. A person's name has no blanks."""

BY_THE_RESTORE = f'[{{"kind":"run.paused","by":"{THE_RESTORE}",'
_MADE_AT = re.compile(r"backup of (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")


def asked_before_restore(questions: Iterable[Interrupt]) -> dict[Any, datetime | None]:
    """Those questions that were asked already when a restore paused their run, by key: when the backup was made.

    What was answered since then is not known. Of several backups the first counts; None where its time is not told.
    """
    asked = list(questions)
    pauses = Step.objects.filter(
        run__in={one.run_id for one in asked}, kind=Step.Kind.PAUSE, facts_json__startswith=BY_THE_RESTORE
    )
    rows = list(pauses.order_by("seq").values_list("run_id", "seq", "facts_json"))
    found: dict[Any, datetime | None] = {}
    for one in asked:
        since = next((text for run_id, seq, text in rows if run_id == one.run_id and seq > one.seq), None)
        if since is not None:
            found[one.pk] = _made_at(since)
    return found


def lost_by_restore(run_id: int, seq: int) -> bool:
    """Whether what parted the run from the call of row `seq` was a restore, and no loss of a worker since."""
    restored = Q(kind=Step.Kind.PAUSE, facts_json__startswith=BY_THE_RESTORE)
    parted = Step.objects.filter(Q(kind=Step.Kind.RECOVERED) | restored, run=run_id, seq__gt=seq)
    return parted.order_by("-seq").values_list("kind", flat=True).first() == Step.Kind.PAUSE


def _made_at(text: str) -> datetime | None:
    told = _MADE_AT.search(text)
    return datetime.strptime(told[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if told else None
