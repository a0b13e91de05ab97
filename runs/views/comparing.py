"""The pages that compare two runs, and choose the other run."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from runs.models import Run
from runs.reading import markdown
from runs.reading.comparing import compare
from runs.reading.comparing_words import (
    ORIGINS,
    PLACES,
    FoldView,
    path_views,
    place_views,
    relation_of,
    summary_of,
    text_pieces,
    total_views,
    value_view,
)
from runs.reading.hidden_text import escaped
from runs.reading.statuses import exit_of, status_word
from runs.views.requests import number_in, visible_run

OFFERED = 20
"""Runs offered in each group."""


@never_cache
@require_GET
def comparison(request: HttpRequest, run_id: int, other_id: int) -> HttpResponse:
    """Compare two runs, step by step, as far as the reader may see both."""
    left, right = visible_run(request, run_id), visible_run(request, other_id)
    if left.pk == right.pk:
        return redirect(f"{reverse('compare-choose', args=[left.pk])}?other={left.pk}")
    found = compare(left, right)
    start = number_in(request, "from") or 0
    differing = len(found.apart)
    places = place_views(found, start)
    context = {
        "sides": [_side(left), _side(right)],
        "left": left,
        "right": right,
        "found": found,
        "same_goal": left.goal == right.goal,
        "relation": relation_of(left, right),
        "summary": summary_of(found),
        "totals": total_views(found.totals),
        "path": path_views(found),
        "terms": [value_view(one) for one in found.terms],
        "answers": _answers(left, right),
        "places": [{"view": place, "fold": isinstance(place, FoldView)} for place in places],
        "differing": differing,
        "first": start + 1,
        "last": min(differing, start + PLACES),
        "earlier": max(0, start - PLACES) if start else None,
        "later": start + PLACES if start + PLACES < differing else None,
        "unfinished": [run for run in (left, right) if not run.finished],
    }
    return render(request, "runs/compare.html", context)


def _side(run: Run) -> dict[str, Any]:
    return {
        "run": run,
        "status": status_word(run, run.status == "waiting", for_me=False),
        "exit": exit_of(run),
        "origin": ORIGINS.get(run.origin, ""),
    }


def _answers(left: Run, right: Run) -> dict[str, Any]:
    """Return both answers, by words if they differ; in the form of the run's own page if they are one."""
    if left.answer and left.answer == right.answer:
        return {"same": markdown.render(left.answer)}
    ours, theirs = text_pieces(escaped(left.answer or ""), escaped(right.answer or ""))
    return {"left": ours if left.answer else None, "right": theirs if right.answer else None}


@never_cache
@require_GET
def choose(request: HttpRequest, run_id: int) -> HttpResponse:
    """Choose the other run: a copy opens against its source, unless the reader wants to choose."""
    run = visible_run(request, run_id)
    visible = Run.objects.for_user(request.user)
    source = visible.filter(pk=run.copied_from_id).first() if run.copied_from_id else None
    asked = request.GET.get("other", "").strip()
    if asked:
        other = _numbered(visible, asked)
        if other is not None and other.pk != run.pk:
            return redirect("compare", *sorted((run.pk, other.pk)))
    elif source is not None and "choose" not in request.GET:
        return redirect("compare", source.pk, run.pk)
    context = {
        "run": run,
        "asked": asked,
        "itself": asked.lstrip("#") == str(run.pk),
        "groups": _groups(request, run, source, visible),
    }
    return render(request, "runs/compare_choose.html", context, status=404 if asked else 200)


def _numbered(visible: QuerySet[Run], text: str) -> Run | None:
    number = text.removeprefix("#")
    if not (number.isascii() and number.isdigit() and len(number) < 16):
        return None
    return visible.filter(pk=int(number)).first()


def _groups(
    request: HttpRequest, run: Run, source: Run | None, visible: QuerySet[Run]
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the likely choices: the run's source, its copies, the reader's own runs, and all others."""
    slim = visible.exclude(pk=run.pk).select_related("owner").defer("settings_json", "answer").order_by("-pk")
    copies = Q(copied_from=run)
    if run.copied_from_id:
        copies |= Q(copied_from=run.copied_from_id)
    near = list(slim.filter(copies)[:OFFERED])
    named = [found.pk for found in near] + ([source.pk] if source else [])
    alike = list(slim.filter(machine=run.machine, owner_id=request.user.pk).exclude(pk__in=named)[:OFFERED])
    named += [found.pk for found in alike]
    rest = list(slim.exclude(pk__in=named)[:OFFERED])
    groups = [
        ("Its source", [source] if source else []),
        ("Its copies" if not source else "Copies", near),
        (f"Your runs of {run.machine}", alike),
        ("Other runs", rest),
    ]
    return [(title, [_offer(run, found) for found in runs]) for title, runs in groups if runs]


def _offer(run: Run, found: Run) -> dict[str, Any]:
    first, second = sorted((run.pk, found.pk))
    return {**_side(found), "first": first, "second": second, "other_machine": run.machine != found.machine}
