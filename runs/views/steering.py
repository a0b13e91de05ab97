"""Pause, resume, cancel, roll back: each a POST that comes back to the run."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from runs import actions
from runs.models import Run
from runs.reading.inspector import dead_rows_after
from runs.reading.rollback import again
from runs.reading.rows import RowView, row_view
from runs.store import after_row
from runs.views.requests import refused, visible_run


@require_POST
def abort(request: HttpRequest, run_id: int) -> HttpResponse:
    """Cancel the run; too long a note comes back to its author."""
    run = visible_run(request, run_id)
    note = request.POST.get("note", "")
    try:
        actions.abort(run, by=request.user, message=note)
    except actions.TooLong as fault:
        context = {"run": run, "note": note, "fault": fault.sentence}
        return render(request, "runs/abort.html", context, status=422)
    return _back(request, run, "Cancelled.")


@require_POST
def pause(request: HttpRequest, run_id: int) -> HttpResponse:
    """Pause the run."""
    run = visible_run(request, run_id)
    actions.pause(run, by=request.user)
    return _back(request, run, "Paused until you resume it.")


@require_POST
def resume(request: HttpRequest, run_id: int) -> HttpResponse:
    """Resume a paused run."""
    run = visible_run(request, run_id)
    actions.resume(run, by=request.user)
    return _back(request, run, "Resumed.")


@require_POST
def try_now(request: HttpRequest, run_id: int) -> HttpResponse:
    """Make the next attempt of a waiting call at once."""
    run = visible_run(request, run_id)
    actions.try_now(run, by=request.user)
    return _back(request, run, "Trying now.")


def _back(request: HttpRequest, run: Run, said: str) -> HttpResponse:
    messages.success(request, said)
    return redirect("run", run.pk)


@never_cache
@require_http_methods(["GET", "POST"])
def rewind(request: HttpRequest, run_id: int) -> HttpResponse:
    """Roll back: the page first shows lasting side effects and lost changes; a POST rolls back."""
    run = visible_run(request, run_id)
    if not actions.may_steer(request.user, run):
        return refused(request, "This run is not yours to roll back.")
    text = (request.POST if request.method == "POST" else request.GET).get("to", "")
    row = row_view(run, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
    if row is None:
        raise Http404("no such step")
    if request.method == "GET":
        return _rewind_page(request, run, row)
    note = request.POST.get("note", "")
    answers: actions.Answers = "keep" if request.POST.get("answers") == "keep" else "ask again"
    try:
        actions.rewind(
            run,
            to=row.seq,
            by=request.user,
            message=note,
            answers=answers,
            seen=request.POST.get("seen", ""),
        )
    except actions.ToldOtherwise as otherwise:
        run.refresh_from_db()
        return _rewind_page(request, run, row, otherwise=otherwise.sentence)
    except actions.TooLong as too_long:
        return _rewind_page(request, run, row, fault=too_long.sentence)
    return _back(request, run, f"Rolled back to step {row.seq}.")


def _rewind_page(
    request: HttpRequest, run: Run, row: RowView, *, otherwise: str = "", fault: str = ""
) -> HttpResponse:
    """Return the page about a rollback; `otherwise` says that its account has changed.

    `fault` is the fault of the note.
    """
    context = {
        "run": run,
        "row": row,
        "typed": request.POST,
        "otherwise": otherwise,
        "fault": fault,
        "seen": after_row.rollback_mark(run, row.seq),
        "again": again(run, row.seq),
        "may_decide": actions.may_decide(request.user, run),
        "dead": dead_rows_after(run, row.seq),
        "possible": row.live and row.kind == "transition" and not run.finished,
    }
    return render(request, "runs/rewind.html", context, status=409 if otherwise else 422 if fault else 200)
