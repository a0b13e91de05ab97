"""Runs paused by a restore, and one POST that resumes all or the chosen ones."""

from __future__ import annotations

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs import actions
from runs.reading.restored import AT_ONCE, restored_of, restored_views

SAID_AT_MOST = 20
"""Most sentences about skipped runs."""


@never_cache
@require_http_methods(["GET", "POST"])
def restored(request: HttpRequest) -> HttpResponse:
    """Show the list with its form, or resume the chosen runs."""
    if request.method == "GET":
        return _page(request)
    chosen = _all_of(request) if "all" in request.POST else _numbers(request.POST.getlist("run"))
    if not chosen:
        return _page(request, fault="No run is chosen. Tick the runs to resume.", status=400)
    _say(request, actions.resume_restored(chosen, by=request.user))
    return redirect("restored")


def _all_of(request: HttpRequest) -> list[int]:
    """Return the runs resumed by one press: those that the reader may resume, with an available model."""
    views = restored_views(restored_of(request.user), request.user)
    return [one.run.pk for one in views if one.mine and not one.no_model]


def _numbers(texts: list[str]) -> list[int]:
    return [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 16]


def _say(request: HttpRequest, done: actions.Resumption) -> None:
    if done.resumed:
        messages.success(request, f"Resumed: {len(done.resumed)}.")
    if done.passed_over:
        said = " ".join(done.passed_over[:SAID_AT_MOST])
        more = len(done.passed_over) - SAID_AT_MOST
        rest = f" And {more} more." if more > 0 else ""
        messages.error(request, f"Not resumed: {len(done.passed_over)}. {said}{rest}")


def _page(request: HttpRequest, fault: str = "", status: int = 200) -> HttpResponse:
    page = Paginator(restored_of(request.user), AT_ONCE).get_page(request.GET.get("page"))
    runs = restored_views(list(page.object_list), request.user)
    context = {"page": page, "runs": runs, "any_mine": any(one.mine for one in runs), "fault": fault}
    return render(request, "runs/restored.html", context, status=status)
