"""The queue of open questions, one question, and its decision."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from runs import forms
from runs.forms.life import check_life
from runs.models import Interrupt, Run
from runs.reading import words
from runs.reading.cards import asked_now, card_of, headlines, pending_for
from runs.reading.phrases import call_text
from runs.reading.restored import doubt_of
from runs.rights import decides

A_PAGE = 50
"""Questions on one page."""


@never_cache
@require_GET
def needs_you(request: HttpRequest) -> HttpResponse:
    """Show the questions that wait for the reader, the least time left first."""
    waiting = pending_for(request.user).select_related("run", "run__owner")
    page = Paginator(
        waiting.order_by(F("deadline").asc(nulls_last=True), "created_at", "pk"), A_PAGE
    ).get_page(request.GET.get("page"))
    pending = list(page.object_list)
    asked = asked_now(pending)
    decided = _decided_lately(request)
    cards = [
        {
            "interrupt": found,
            "kind": words.INTERRUPT[found.kind],
            "effects": words.EFFECTS.get(found.effects),
            "headline": asked[found.pk].headline,
            "why": asked[found.pk].why,
            "call": call_text(found.tool, found.args) if found.tool and found.kind != "tool_call" else "",
            "doubt": doubt_of(found),
        }
        for found in pending
    ]
    context = {"page": page, "cards": cards, "decided": decided, "may_decide": decides(request.user)}
    return render(request, "runs/needs_you.html", context)


def _decided_lately(request: HttpRequest) -> list[dict[str, Any]]:
    visible = Run.objects.for_user(request.user)
    found = Interrupt.objects.filter(run__in=visible.values("pk"), decision__isnull=False)
    lately = list(found.select_related("run", "decision").order_by("-decided_at")[:15])
    asked = headlines(lately)
    return [
        {
            "interrupt": one,
            "decision": one.decision,
            "outcome": words.VERDICT_DONE[one.decision.verdict],
            "headline": asked[one.pk],
        }
        for one in lately
    ]


def _interrupt(request: HttpRequest, interrupt_id: Any, *beside: str) -> Interrupt:
    """Return the question with its run and the named relations, if the reader may see it."""
    interrupt: Interrupt = get_object_or_404(
        Interrupt.objects.select_related("run", *beside), pk=interrupt_id
    )
    if not interrupt.run.seen_by(request.user):
        raise Http404
    return interrupt


@never_cache
@require_GET
def card(request: HttpRequest, interrupt_id: Any) -> HttpResponse:
    """Show one question, with its subject."""
    interrupt = _interrupt(request, interrupt_id, "run__owner", "decision", "decision__by")
    shown = card_of(interrupt, request.user)
    return render(request, "runs/interrupt.html", {"card": shown, "run": interrupt.run})


@never_cache
@require_POST
def decision(request: HttpRequest, interrupt_id: Any) -> HttpResponse:
    """Decide. A refused decision comes back with its input, and why."""
    interrupt = _interrupt(request, interrupt_id)
    check_life(request)
    try:
        verdict = forms.take(interrupt, request.POST, by=request.user, channel="web")
    except forms.NotTaken as why:
        context = {"card": why.card, "run": interrupt.run}
        return render(request, "runs/interrupt.html", context, status=why.status)
    messages.success(request, f"Recorded: {words.VERDICT_DONE[verdict].text.lower()}.")
    return redirect("run", interrupt.run_id)
