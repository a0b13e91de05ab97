"""What several pages need: the run that the reader may see, a number of the query string, a refusal."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.deprecation import MiddlewareMixin

from runs.forms.life import PageOfAnotherLife, check_life
from runs.machines import NoMachine
from runs.models import Run

_TITLES = {
    400: "Refused",
    403: "Not allowed",
    412: "This page is out of date",
    413: "Too much",
    429: "Locked",
}
"""What stands over a refusal, by its status."""


def visible_run(request: HttpRequest, run_id: int) -> Run:
    """The run, where the reader may see it; else it is not there. A page of another life posts nothing about it."""
    visible = Run.objects.for_user(request.user)
    run: Run = get_object_or_404(visible.select_related("owner", "parent"), pk=run_id)
    check_life(request)
    return run


def number_in(request: HttpRequest, name: str) -> int | None:
    """A number in the query string; None where it is none."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def refused(request: HttpRequest, sentence: str, status: int = 403) -> HttpResponse:
    """A page that says why not."""
    about = {"title": _TITLES.get(status, "Not possible"), "sentence": sentence}
    return render(request, "refused.html", about, status=status)


class SayWhyNot(MiddlewareMixin):
    """A page about a run can't be made without the run's machine, nor go on after a restore: it says so instead."""

    def process_exception(self, request: HttpRequest, fault: Exception) -> HttpResponse | None:
        """The sentence, where that is what is wrong."""
        match fault:
            case NoMachine():
                return refused(request, fault.sentence, status=409)
            case PageOfAnotherLife():
                return refused(request, fault.sentence, status=412)
        return None
