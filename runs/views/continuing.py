"""Continue an ended run with a follow-up goal."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs import actions
from runs.views.requests import visible_run

FIELDS = ("goal", "script")


@never_cache
@require_http_methods(["GET", "POST"])
def continue_run(request: HttpRequest, run_id: int) -> HttpResponse:
    """Launch the next run; a refused form comes back with its text."""
    run = visible_run(request, run_id)
    typed = {name: request.POST.get(name, "") for name in FIELDS}
    faults: dict[str, str] = {}
    try:
        if request.method == "POST":
            made = actions.continue_run(run, goal=typed["goal"], by=request.user, script=typed["script"])
            messages.success(request, f"Launched. This run continues #{run.pk}.")
            return redirect("run", made.pk)
        actions.check_continuing(run, request.user)
    except actions.BadLaunch as fault:
        faults = _by_field(fault)
    except actions.NotPossible as impossible:
        faults = {"other": impossible.sentence}
    return render(
        request,
        "runs/continue.html",
        {"run": run, "typed": typed, "faults": faults},
        status=422 if faults else 200,
    )


def _by_field(fault: actions.BadLaunch) -> dict[str, str]:
    """Return each field's sentences; others are under `other`, with its path."""
    found: dict[str, str] = {}
    for problem in fault.problems:
        field = problem.path.partition(".")[0]
        name, said = field, problem.message
        if field not in FIELDS:
            name, said = "other", f"{problem.path}: {problem.message}"
        found[name] = f"{found[name]} {said}" if name in found else said
    return found
