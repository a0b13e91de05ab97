"""The form that starts a run."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs import actions, forms
from runs.machines import CATALOGUE
from runs.models import Run, Skill
from runs.reading import words
from runs.reading.drawing import graph_svg
from runs.views.requests import kept_in, refused, visible_run


@never_cache
@require_http_methods(["GET", "POST"])
def launch(request: HttpRequest) -> HttpResponse:
    """Show the form that starts a run, or start it."""
    if not actions.may_launch(request.user):
        return refused(
            request, "You may not launch runs. An administrator can add you to the group “operators”."
        )
    if request.method == "POST":
        form = forms.LaunchForm(request.POST)
        started = _start(request, form)
        if started is not None:
            return redirect("run", started.pk)
        return render(request, "runs/new.html", _launch_context(form), status=422)
    return render(request, "runs/new.html", _launch_context(forms.LaunchForm(initial=_initial(request))))


def _start(request: HttpRequest, form: forms.LaunchForm) -> Run | None:
    """Return the run, or None with the faults noted in the form."""
    with kept_in(form):
        if form.is_valid():
            return actions.start_run(**form.launch(), owner=request.user)
        actions.check_launch(**form.launch(), owner=request.user)  # all other faults are shown as well
    return None


def _initial(request: HttpRequest) -> dict[str, Any]:
    if "demonstration" in request.GET:
        usual = next(iter(forms.DEMONSTRATIONS.values()))
        return forms.DEMONSTRATIONS.get(request.GET["demonstration"], usual)
    like = request.GET.get("like", "")
    if like.isascii() and like.isdigit() and len(like) < 16:
        return forms.launch_like(visible_run(request, int(like)))
    return forms.initial_launch()


def _launch_context(form: forms.LaunchForm) -> dict[str, Any]:
    parts = form.parts(form.faulty_cells())
    return {
        "form": form,
        "machines": [(name, machine.line, graph_svg(name)) for name, machine in CATALOGUE.items()],
        "tools": [_tool(form, name) for name, _ in form.fields["tools"].choices],  # type: ignore[attr-defined]
        "asks": forms.ASKS.items(),
        "parts": parts,
        "more_open": form.more_is_open(parts),
        "skills": list(Skill.objects.values_list("name", flat=True)[:50]),
        "shows": forms.SHOWS.items(),
        "chosen_tools": form["tools"].value() or [],
    }


def _tool(form: forms.LaunchForm, name: str) -> dict[str, Any]:
    tool = form.tools_here.get(name)
    server, dot, own = name.rpartition(".")
    named = {"name": name, "server": server + dot, "own": own}
    if tool is None:
        return named | {"about": "A tool of the script.", "effects": None}
    return named | {
        "about": tool.description,
        "effects": words.EFFECTS[tool.effects],
        "outward": tool.outward,
    }
