"""The tools of the site, for people who may launch: what each does, and a form to try one out."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from runs import actions, driver
from runs.forms.trying import TrialForm, empty_trial, read_trial
from runs.models import Run
from runs.reading.tools import ToolPage, groups_that_may, tool_pages
from runs.store.site_rules import site_rules


@never_cache
@require_safe
def tools(request: HttpRequest) -> HttpResponse:
    """Show all tools, by where they come from."""
    actions.check_trying(request.user)
    found = tool_pages(driver.tools_here(), site_rules().rules)
    return render(request, "runs/tools.html", {"sources": found.items()})


@never_cache
@require_http_methods(["GET", "POST"])
def tool(request: HttpRequest, tool: str) -> HttpResponse:
    """Show one tool, or try it out as a run of one call."""
    actions.check_trying(request.user)
    found = driver.tools_here().get(tool)
    if found is None:
        raise Http404
    form = read_trial(found, request.POST) if request.method == "POST" else empty_trial(found)
    if request.method == "POST":
        tried = _tried(request, tool, form)
        if isinstance(tried, Run):
            return redirect("run", tried.pk)
        form = tried
    context = {
        "page": ToolPage(found, site_rules().rules),
        "form": form,
        "launchers": groups_that_may("add_run"),
        "deciders": groups_that_may("decide_interrupt"),
    }
    return render(request, "runs/tool.html", context, status=422 if form.errors else 200)


def _tried(request: HttpRequest, name: str, form: TrialForm) -> Run | TrialForm:
    """Return the run, or the form with its faults."""
    try:
        if not form.errors:
            return actions.try_tool(name, form.args, by=request.user)
        actions.check_trial(name, form.args, by=request.user)  # all other faults are shown as well
    except actions.BadLaunch as fault:
        return form.with_problems(fault.problems)
    return form
