"""Pause, resume, stop, roll back: each a POST that comes back to the run."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from runs import actions
from runs.models import Run
from runs.reading.again import again
from runs.reading.inspector import dead_rows_after
from runs.reading.rows import RowView, row_view
from runs.views.confirming import ToldOtherwise, as_told
from runs.views.seeing import refused, visible_run


def _steered(request: HttpRequest, run: Run, deed: Any, said: str) -> HttpResponse:
    """Do it, or say on the run page why it can't be done; a text that is too long its writer gets back."""
    try:
        deed()
    except actions.NotAllowed as why:
        return refused(request, why.sentence)
    except actions.TooLong:
        raise
    except actions.NotPossible as impossible:
        messages.error(request, impossible.sentence)
    else:
        messages.success(request, said)
    return redirect("run", run.pk)


@require_POST
def abort(request: HttpRequest, run_id: int) -> HttpResponse:
    """End the run for good."""
    run = visible_run(request, run_id)
    note = request.POST.get("note", "")
    try:
        return _steered(request, run, lambda: actions.abort(run, by=request.user, message=note), "Stopped.")
    except actions.TooLong as fault:
        return render(
            request, "runs/abort.html", {"run": run, "note": note, "fault": fault.sentence}, status=422
        )


@require_POST
def pause(request: HttpRequest, run_id: int) -> HttpResponse:
    """Hold the run."""
    run = visible_run(request, run_id)
    return _steered(request, run, lambda: actions.pause(run, by=request.user), "Paused until you resume it.")


@require_POST
def resume(request: HttpRequest, run_id: int) -> HttpResponse:
    """Let a paused run go on."""
    run = visible_run(request, run_id)
    return _steered(request, run, lambda: actions.resume(run, by=request.user), "Resumed.")


@never_cache
@require_http_methods(["GET", "POST"])
def rewind(request: HttpRequest, run_id: int) -> HttpResponse:
    """Going back: the page says first what stays done and what counts no more; the deed is a POST."""
    run = visible_run(request, run_id)
    if not actions.may_steer(request.user, run):
        return refused(request, "This run is not yours to roll back.")
    text = (request.POST if request.method == "POST" else request.GET).get("to", "")
    row = row_view(run, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if row is None:
        raise Http404("no such step")
    if request.method == "GET":
        return _rewind_page(request, run, row)
    to, seen, note = row.seq, request.POST.get("seen", ""), request.POST.get("note", "")
    answers: actions.Answers = "keep" if request.POST.get("answers") == "keep" else "ask again"

    def back() -> Run:
        return actions.rewind(run, to=to, by=request.user, message=note, answers=answers)

    try:
        return _steered(
            request,
            run,
            lambda: as_told(run, to, seen, attrgetter("mark_of_going_back"), back),
            f"Rolled back to step {to}.",
        )
    except ToldOtherwise as otherwise:
        run.refresh_from_db()
        return _rewind_page(request, run, row, otherwise=otherwise.sentence)
    except actions.TooLong as too_long:
        return _rewind_page(request, run, row, fault=too_long.sentence)


def _rewind_page(
    request: HttpRequest, run: Run, row: RowView, *, otherwise: str = "", fault: str = ""
) -> HttpResponse:
    """What stays done and what counts no more; `otherwise` says that it is not what was told before.

    `fault` is what is wrong with the note.
    """
    context = {
        "run": run,
        "row": row,
        "typed": request.POST,
        "otherwise": otherwise,
        "fault": fault,
        "again": again(run, row.seq),
        "may_decide": actions.may_decide(request.user, run),
        "dead": dead_rows_after(run, row.seq),
        "possible": row.live and row.kind == "transition" and not run.finished,
    }
    return render(request, "runs/rewind.html", context, status=409 if otherwise else 422 if fault else 200)
