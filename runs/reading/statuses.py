"""A run's true status, and its words for readers."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Q
from django.utils import timezone

from runs.machines import CATALOGUE
from runs.models import Run, RunStatus
from runs.reading import words
from runs.reading.doing import waits_for_turn
from runs.reading.words import Word
from runs.store.halting import halt_now

_STOPPING: dict[str, str] = {RunStatus.PAUSED: "pausing", RunStatus.CANCELLED: "cancelling"}
"""The words for a run that a worker still holds, by its status."""


def status_name(run: Run) -> str:
    """Return the run's true status: one that has yet to stop is `stopping`."""
    return "stopping" if run.stopping else run.status


def status_word(run: Run, asks: bool, for_me: bool) -> Word:  # noqa: FBT001
    """Return the run's status for a reader. `asks`: an interrupt is pending; `for_me`: the reader may decide it."""
    if run.stopping and run.status in _STOPPING:
        return words.STATUS[_STOPPING[run.status]]
    if run.machine not in CATALOGUE and not run.finished:
        return Word("Machine not installed", "alert", "warn")
    if run.status in (RunStatus.QUEUED, RunStatus.RUNNING) and _halted(run):
        return words.STATUS["halted" if run.status == RunStatus.QUEUED else "halting"]
    if asks and not for_me and run.status == RunStatus.WAITING:
        return Word("Waiting for a reviewer", "hand", "ask")
    if run.status == RunStatus.WAITING and not asks:
        return Word("Waiting for a child", "clock", "quiet")
    if waits_for_turn(run) is not None:
        return Word("Queued for model", "clock", "quiet")
    if run.status == RunStatus.QUEUED and run.head and run.due_at > timezone.now():
        return Word("Retrying soon", "clock", "quiet")
    return words.STATUS["replayed" if run.replayed_only else run.status]


def exit_of(run: Run) -> str:
    """Return why the run ended, as the rest of a sentence; empty if it has not."""
    if run.replayed_only:
        return words.REPLAYED
    return words.exit_words(run.exit_reason) if run.exit_reason else ""


def _halted(run: Run) -> bool:
    """Return True if the site is halted; a list of runs has queried this for all of them."""
    known: bool | None = getattr(run, "site_halted", None)
    return halt_now() is not None if known is None else known


@dataclass(frozen=True)
class Standing:
    """How many runs of the whole site are running or queued, and how many wait or are paused."""

    working: int
    waiting: int


def standing() -> Standing:
    """Return the runs that a halt would stop now."""
    working = Q(status__in=(RunStatus.QUEUED, RunStatus.RUNNING))
    waiting = Q(status__in=(RunStatus.WAITING, RunStatus.PAUSED))
    found = Run.objects.aggregate(working=Count("pk", filter=working), waiting=Count("pk", filter=waiting))
    return Standing(**found)
