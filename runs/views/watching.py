"""The list of runs and the page of one: timeline, steps, export."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.safestring import mark_safe
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from runs import actions
from runs.machines import CATALOGUE
from runs.models import Run
from runs.reading import exporting, inspector
from runs.reading.conversation import conversation_of
from runs.reading.listing import STATUS_FILTERS, filters_from
from runs.reading.listing import run_page as page_of_runs
from runs.reading.panels import panels_of, status_name
from runs.reading.restored import restored_of
from runs.reading.rows import WINDOW, RowView, render_row, row_views
from runs.store.backups import restored_id
from runs.views.requests import number_in, visible_run


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the list of runs, the first page."""
    return redirect("runs")


@never_cache
@require_GET
def run_list(request: HttpRequest) -> HttpResponse:
    """Show the runs that the reader may see."""
    filters = filters_from(request.GET)
    page = page_of_runs(request.user, filters)
    kept = {"status": filters.status, "machine": filters.machine, "q": filters.text}
    query = {name: value for name, value in kept.items() if value}
    following = urlencode(query | {"before": page.next_before}) if page.next_before else ""
    context = {
        "page": page,
        "filters": filters,
        "statuses": _status_links(query, filters.status),
        "machines": list(CATALOGUE),
        "next": following,
        "may_launch": actions.may_launch(request.user),
        "first_page": filters.before is None,
        "restored": restored_of(request.user).count() if filters.before is None else 0,
    }
    return render(request, "runs/list.html", context)


def _status_links(query: dict[str, str], current: str) -> list[tuple[str, str, bool]]:
    """Return words, query string and whether it is active, for each filter of the status."""
    rest = {name: value for name, value in query.items() if name != "status"}
    links = [("All", urlencode(rest), not current)]
    for name, (label, _) in STATUS_FILTERS.items():
        links.append((label, urlencode({"status": name} | rest), name == current))
    return links


@never_cache
@require_GET
def run_page(request: HttpRequest, run_id: int) -> HttpResponse:
    """Show one run, live."""
    run = visible_run(request, run_id)
    rows = row_views(run)
    selected = number_in(request, "step")
    step = inspector.step_view(run, selected) if selected else None
    if selected and step is None:
        raise Http404("no such step")
    context = {
        "run": run,
        "rows": _rows_html(rows),
        "first": rows[0].seq if rows else 0,
        "head": rows[-1].seq if rows else 0,
        "older": bool(rows) and rows[0].seq > 1,
        "panels": {name: mark_safe(html) for name, html in panels_of(run, request.user).items()},
        "own_panel": CATALOGUE[run.machine].presentation.panel,
        "step": step,
        "may_steer": actions.may_steer(request.user, run),
        "may_mend": actions.may_mend(request.user, run),
        "may_launch": actions.may_launch(request.user),
        "visible_parent": _visible(request, run.parent_id),
        "source": _visible(request, run.copied_from_id),
        "copies": Run.objects.for_user(request.user).filter(copied_from=run).order_by("pk")[:20],
        "conversation": conversation_of(run, request.user),
        "window": WINDOW,
    }
    return render(request, "runs/run.html", context)


def _visible(request: HttpRequest, run_id: int | None) -> Run | None:
    visible = Run.objects.for_user(request.user)
    found: Run | None = visible.filter(pk=run_id).first() if run_id else None
    return found


def _rows_html(rows: list[RowView]) -> str:
    return mark_safe("\n".join(map(render_row, rows)))


@never_cache
@require_GET
def step_page(request: HttpRequest, run_id: int, seq: int) -> HttpResponse:
    """Show one step: only the inspector for a script, a page of its own otherwise."""
    run = visible_run(request, run_id)
    step = inspector.step_view(run, seq)
    if step is None:
        raise Http404("no such step")
    context = {
        "run": run,
        "own_panel": CATALOGUE[run.machine].presentation.panel,
        "step": step,
        "may_steer": actions.may_steer(request.user, run),
        "may_mend": actions.may_mend(request.user, run),
    }
    fetched = request.headers.get("X-Requested-With") == "fetch"
    response = render(request, "runs/_inspector.html" if fetched else "runs/step.html", context)
    response.headers["Vary"] = "X-Requested-With, Cookie"
    return response


@never_cache
@require_GET
def step_text(request: HttpRequest, run_id: int, seq: int, part: str) -> HttpResponse:
    """Show a text of a step, whole: the inspector has its beginning and end."""
    step = inspector.step_view(visible_run(request, run_id), seq)
    text = step.text_of(part) if step else ""
    if not text:
        raise Http404("no such text")
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


@never_cache
@require_GET
def other_rows(request: HttpRequest, run_id: int) -> HttpResponse:
    """Send steps beyond those of the page: older ones as HTML, newer ones as the socket would have sent them."""
    run = visible_run(request, run_id)
    before, after = number_in(request, "before"), number_in(request, "after")
    if before is not None:
        return HttpResponse(_rows_html(row_views(run, before=before)))
    if after is None:
        return HttpResponse("Name a step: ?before=SEQ or ?after=SEQ", status=400, content_type="text/plain")
    if request.GET.get("life", life := restored_id()) != life:
        said = "The site was restored after this page was loaded. Reload the page."
        return HttpResponse(said, status=412, content_type="text/plain")
    rows = row_views(run, after=after) if after else row_views(run, before=WINDOW + 1)
    rendered = [{"seq": row.seq, "html": render_row(row)} for row in rows]
    head = max([run.head, *(row.seq for row in rows)])
    panels = panels_of(run, request.user)
    return JsonResponse({"head": head, "status": status_name(run), "rows": rendered, "panels": panels})


@never_cache
@require_GET
def run_export(request: HttpRequest, run_id: int) -> HttpResponse:
    """Download the whole run as JSON."""
    run = visible_run(request, run_id)
    response = JsonResponse(exporting.export(run), json_dumps_params={"ensure_ascii": False, "indent": 1})
    response.headers["Content-Disposition"] = f'attachment; filename="run-{run.pk}.json"'
    return response
