"""How much of each run has been sent to OpenTelemetry. Written beside the log, never with it."""

from __future__ import annotations

from django.db.models import F, Max, Q

from runs.models import FINISHED, UNFINISHED, Run, SentSpans

AT_ONCE = 50
"""Runs of one look."""

BEHIND = 1000
"""Runs of so much smaller a number are still noticed: a later number may be committed first."""


def begin() -> None:
    """Before the first use, pass over the past: finished runs, and the steps so far of the others."""
    if SentSpans.objects.exists():
        return
    newest = Run.objects.aggregate(pk=Max("pk"))["pk"] or 0
    past = Run.objects.filter(Q(status__in=UNFINISHED) | Q(pk__gt=newest - BEHIND))
    SentSpans.objects.bulk_create(
        (SentSpans(run=run, upto=run.head, head=run.head, whole=run.finished) for run in past),
        ignore_conflicts=True,
    )


def wanting() -> list[SentSpans]:
    """Return the runs with something to send, oldest first; new runs are noted before."""
    newest = SentSpans.objects.aggregate(pk=Max("run_id"))["pk"] or 0
    new = Run.objects.filter(pk__gt=newest - BEHIND, sent_spans=None).order_by("pk")
    SentSpans.objects.bulk_create((SentSpans(run=run) for run in new[: 10 * AT_ONCE]), ignore_conflicts=True)
    grown = Q(head__lt=F("run__head")) | Q(run__status__in=FINISHED)
    return list(
        SentSpans.objects.filter(grown, whole=False).select_related("run").order_by("run_id")[:AT_ONCE]
    )


def note(mark: SentSpans, upto: int) -> None:
    """Note that the run as read in `mark` is sent up to this step, and with its own span if it had ended."""
    SentSpans.objects.filter(pk=mark.pk).update(
        upto=max(mark.upto, upto), head=mark.run.head, whole=mark.run.finished
    )
