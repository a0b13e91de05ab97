"""Shared parts of pages: the visible run, a number of the query string, a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.deprecation import MiddlewareMixin

from runs import actions
from runs.forms import LaunchForm
from runs.forms.copying import ForkForm
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
"""The title of a refusal, by its status."""


def visible_run(request: HttpRequest, run_id: int) -> Run:
    """Return the run, if the reader may see it; else 404. A page from before a restore can't post about it."""
    visible = Run.objects.for_user(request.user)
    run: Run = get_object_or_404(visible.select_related("owner", "parent"), pk=run_id)
    check_life(request)
    return run


def number_in(request: HttpRequest, name: str) -> int | None:
    """Return a number in the query string; None if it is none."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def refused(request: HttpRequest, sentence: str, status: int = 403) -> HttpResponse:
    """Return a page with the refusal."""
    about = {"title": _TITLES.get(status, "Not possible"), "sentence": sentence}
    return render(request, "refused.html", about, status=status)


@contextmanager
def kept_in(form: LaunchForm | ForkForm) -> Iterator[None]:
    """Note a refusal in the form, with its input kept."""
    try:
        yield
    except actions.BadLaunch as fault:
        form.take(fault.problems)
    except actions.NotPossible as fault:
        form.add_error(None, fault.sentence)
        form.conflict = isinstance(fault, actions.ToldOtherwise)


class SayWhyNot(MiddlewareMixin):
    """Answers an action's refusal with a page, for all views; only forms with text to keep handle their own."""

    def process_exception(self, request: HttpRequest, fault: Exception) -> HttpResponse | None:
        """Return the sentence as a page; after a button on a run's page, on that page."""
        match fault:
            case actions.NotAllowed():
                return refused(request, fault.sentence)
            case PageOfAnotherLife():
                return refused(request, fault.sentence, status=412)
            case actions.NotPossible() if request.method == "POST" and (run_id := _run_in(request)):
                messages.error(request, fault.sentence)
                return redirect("run", run_id)
            case NoMachine() | actions.NotPossible():
                return refused(request, fault.sentence, status=409)
        return None


def _run_in(request: HttpRequest) -> int | None:
    """Return the run named by the address."""
    match = request.resolver_match
    return match.kwargs.get("run_id") if match is not None else None
