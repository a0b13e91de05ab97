"""The kill switch: a page that explains it, and two POSTs."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs import actions
from runs.reading import statuses
from runs.reading.words import continuing
from runs.views.requests import refused


@never_cache
@require_http_methods(["GET", "POST"])
def halt(request: HttpRequest) -> HttpResponse:
    """Show the effects of a halt, with its reason; or, on a halted site, the way to resume."""
    if not actions.may_halt(request.user):
        return refused(request, "You may not halt the site. An administrator can.")
    if request.method == "GET":
        return _page(request)
    reason = request.POST.get("reason", "").strip()
    match request.POST.get("deed"):
        case "halt" if not reason:
            return _page(request, fault="Enter a reason; the banner shows it to everyone.", status=400)
        case "halt":
            try:
                actions.halt_site(by=request.user, reason=reason)
            except actions.AlreadyHalted as already:
                messages.info(request, already.sentence)
            except actions.NotPossible as impossible:
                return _page(request, fault=impossible.sentence, status=400)
        case "unhalt":
            _resume(request)
        case _:
            return _page(request, fault="The form names no action. Use its buttons.", status=400)
    return redirect("runs")


def _resume(request: HttpRequest) -> None:
    try:
        wanting = actions.unhalt_site(by=request.user)
    except actions.NotPossible as impossible:
        messages.info(request, impossible.sentence)
    else:
        messages.success(request, f"Site resumed. {continuing(wanting)}")


def _page(request: HttpRequest, fault: str = "", status: int = 200) -> HttpResponse:
    context = {"standing": statuses.standing(), "fault": fault, "typed": request.POST}
    return render(request, "halt.html", context, status=status)
