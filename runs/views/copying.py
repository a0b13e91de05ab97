"""Go on from a step: fork, run again, replay; and download a run as a script or a test."""

from __future__ import annotations

import json
from dataclasses import replace

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from pydantic import ValidationError

from runs import actions
from runs.forms.copying import ForkForm, How
from runs.machines import CATALOGUE
from runs.models import Run
from runs.reading import cards
from runs.reading.as_test import pytest_file
from runs.reading.rollback import again
from runs.reading.rows import row_view
from runs.reading.script_export import launch_of, script_of
from runs.rights import Person
from runs.store import after_row, copying, switching
from runs.views.requests import kept_in, refused, visible_run


def _row_in(request: HttpRequest) -> int:
    """Return the step named by the address or the form; 0 is the beginning."""
    text = (request.POST if request.method == "POST" else request.GET).get("at", "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Http404("no such step")
    return int(text)


@never_cache
@require_http_methods(["GET", "POST"])
def fork(request: HttpRequest, run_id: int) -> HttpResponse:
    """Fork: the page first shows lasting side effects and the likely cost; a POST forks."""
    run = visible_run(request, run_id)
    if not actions.may_launch(request.user):
        return refused(
            request, "You may not launch runs, so you may not fork. Ask an administrator for the right."
        )
    if run.machine not in CATALOGUE:
        return refused(request, f"The machine {run.machine} is no longer installed.", status=409)
    at = _row_in(request)
    copying.check_fork(run, at)
    wanted = request.POST.get("how", request.GET.get("how"))
    how: How = "rerun" if wanted == "rerun" else "fork"
    try:
        form = ForkForm(run, at, request.POST if request.method == "POST" else None, how)
    except ValidationError:
        return refused(request, "This run’s settings can’t be read by this version.", status=409)
    if request.method == "POST":
        made = _made(request, run, at, form)
        if made is not None:
            kind = "A fork" if how == "fork" else "Run again"
            messages.success(request, f"{kind}, from step {at} of #{run.pk}. That run stays unchanged.")
            return redirect("run", made.pk)
    context = {
        "run": run,
        "at": at,
        "model": switching.model_at(run, at),
        "how": how,
        "row": row_view(run, at) if at else None,
        "form": form,
        "card": _card(form, request.user) if how == "fork" else None,
        "seen": after_row.copy_mark(run, at),
        "again": again(run, at),
        "may_decide": actions.may_decide(request.user, run),
        "copied_cost": copying.totals_at(run, at).cost_usd,
    }
    return render(
        request, "runs/fork.html", context, status=409 if form.conflict else 422 if form.errors else 200
    )


def _card(form: ForkForm, person: Person) -> cards.Card | None:
    """Return the next question as its card has it, with the input for it."""
    if form.question is None or not actions.may_decide(person, form.run):
        return None
    errors = {name: " ".join(map(str, faults)) for name, faults in form.errors.items() if name == "sure"}
    return replace(cards.card_of(form.question, person), fields=(form.arguments,), errors=errors)


def _made(request: HttpRequest, run: Run, at: int, form: ForkForm) -> Run | None:
    """Return the new run, or None with the faults noted in the form."""
    if not form.is_valid():
        _judge_further(request, form)
        return None
    answers: actions.Answers = "keep" if form.cleaned_data["answers"] == "keep" else "ask again"
    message, seen = form.cleaned_data["message"], request.POST.get("seen", "")
    made: Run | None = None
    with kept_in(form):
        if form.how == "rerun":
            made = actions.rerun(run, at=at, by=request.user, answers=answers, message=message, seen=seen)
        else:
            made = actions.fork(
                run,
                at=at,
                by=request.user,
                settings=form.changes(),
                state=form.state,
                decision=form.decision,
                answers=answers,
                message=message,
                seen=seen,
            )
    return made


def _judge_further(request: HttpRequest, form: ForkForm) -> None:
    """Note the faults of the settings and the answer together with the unreadable parts."""
    with kept_in(form):
        actions.check_launch(**form.launch(), owner=request.user)
    with kept_in(form):
        if form.decision:
            actions.check_first_answer(form.run, form.at, form.decision)


@require_POST
def replay(request: HttpRequest, run_id: int) -> HttpResponse:
    """Replay the run as a new one; its page tells whether the steps came out the same."""
    run = visible_run(request, run_id)
    made, difference = actions.replay(run, by=request.user)
    if difference is None:
        messages.success(
            request,
            f"Replayed: all {made.copied_upto} steps of #{run.pk} match. No calls were made.",
        )
    else:
        messages.error(request, f"The replay differs. {difference}")
    return redirect("run", made.pk)


@never_cache
@require_GET
def script(request: HttpRequest, run_id: int) -> HttpResponse:
    """Download the run as a script, or as the whole input of `launch --batch`."""
    run = visible_run(request, run_id)
    whole = request.GET.get("with") == "settings"
    told = [launch_of(run)] if whole else script_of(run)
    name = f"run-{run.pk}-{'launch' if whole else 'script'}.json"
    return _kept(json.dumps(told, ensure_ascii=False, indent=1), name, "application/json")


@never_cache
@require_GET
def test(request: HttpRequest, run_id: int) -> HttpResponse:
    """Download the run, up to a step or all of it, as a test that reproduces its steps."""
    run = visible_run(request, run_id)
    upto = request.GET.get("to", "")
    number = int(upto) if upto.isascii() and upto.isdigit() and len(upto) < 10 else None
    if upto and number is None:
        raise Http404("no such step")
    text = pytest_file(run, number)
    part = f"_row_{number}" if number is not None else ""
    return _kept(text, f"test_run_{run.pk}{part}.py", "text/x-python")


def _kept(text: str, name: str, kind: str) -> HttpResponse:
    response = HttpResponse(text, content_type=f"{kind}; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response
