"""A run's status, told truthfully, and as a reader sees it."""

from __future__ import annotations

from django.utils import timezone

from runs.models import Run, RunStatus
from runs.reading import words
from runs.reading.words import Word


def status_name(run: Run) -> str:
    """The run's status, told truthfully: one that has yet to stop is `stopping`."""
    return "stopping" if run.stopping else run.status


def status_word(run: Run, asks: bool, for_me: bool) -> Word:  # noqa: FBT001
    """The run's status as a reader sees it. `asks`: an interrupt is pending; `for_me`: the reader may decide it."""
    if run.stopping:
        return words.STATUS["stopping"]
    if asks and not for_me and run.status == RunStatus.WAITING:
        return Word("Needs a person", "hand", "ask")
    if run.status == RunStatus.WAITING and not asks:
        return Word("Waiting for a child", "clock", "quiet")
    if run.status == RunStatus.QUEUED and run.head and run.due_at > timezone.now():
        return Word("Trying again soon", "clock", "quiet")
    return words.STATUS[run.status]
