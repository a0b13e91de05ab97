"""The queue of what needs a person, one question, and its decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from runs import actions, forms, reading
from runs.models import Interrupt, Run
from runs.reading import words
from runs.reading.again import Again, staying
from runs.reading.arguments import read_arguments
from runs.reading.cards import asked_now, headlines
from runs.reading.phrases import call_text
from runs.reading.restored import doubts_of
from runs.rights import decides
from runs.views.seeing import check_life, refused

UNSEEN = "Your answer does not say which question it is for. Read the card as it is now, and answer again."
_LOOK_BACK = "Look at what going back means, tick the box, and roll back once more."


@never_cache
@require_GET
def needs_you(request: HttpRequest) -> HttpResponse:
    """Everything that waits for the reader, the least time left first."""
    pending = list(reading.pending_for(request.user).select_related("run", "run__owner")[:200])
    asked, doubts = asked_now(pending), doubts_of(pending)
    decided = _decided_lately(request)
    cards = [
        {
            "interrupt": found,
            "kind": words.INTERRUPT[found.kind],
            "effects": words.EFFECTS.get(found.effects),
            "headline": asked[found.pk].headline,
            "why": asked[found.pk].why,
            "call": call_text(found.tool, found.args) if found.tool and found.kind != "tool_call" else "",
            "doubt": doubts.get(found.pk, ""),
        }
        for found in pending
    ]
    may_decide = decides(request.user)
    return render(
        request, "runs/needs_you.html", {"cards": cards, "decided": decided, "may_decide": may_decide}
    )


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


def _interrupt(request: HttpRequest, interrupt_id: Any) -> Interrupt:
    visible = Run.objects.for_user(request.user)
    return get_object_or_404(
        Interrupt.objects.select_related("run", "run__owner", "decision", "decision__by"),
        pk=interrupt_id,
        run__in=visible.values("pk"),
    )


@never_cache
@require_GET
def card(request: HttpRequest, interrupt_id: Any) -> HttpResponse:
    """One question, with what it is about."""
    interrupt = _interrupt(request, interrupt_id)
    shown = reading.card_of(interrupt, request.user)
    return render(request, "runs/interrupt.html", {"card": shown, "run": interrupt.run})


@never_cache
@require_POST
def decision(request: HttpRequest, interrupt_id: Any) -> HttpResponse:
    """Decide. Whatever can't be taken comes back with what was typed, and why."""
    interrupt = _interrupt(request, interrupt_id)
    check_life(request)
    wanted = forms.read_decision(interrupt, request.POST)
    if wanted.verdict == "rollback" and wanted.to_step is None:
        return _card_again(request, wanted, {"to_step": "Choose the row to go back to."}, 422)
    if wanted.revision is None or (interrupt.fingerprint and not wanted.fingerprint):
        return _card_again(request, wanted, {"verdict": UNSEEN}, 422)
    why = reading.second_look(interrupt, wanted.verdict, wanted.args)
    if why and "sure" not in request.POST:
        return _card_again(request, wanted, {"sure": why}, 422)
    if wanted.errors:
        return _card_again(request, wanted, wanted.errors, 422)
    if unconfirmed := _unconfirmed(request, interrupt, wanted):
        return _card_again(request, wanted, {"stays_done": _LOOK_BACK}, 422, unconfirmed)
    try:
        actions.decide(
            interrupt.pk,
            verdict=wanted.verdict,
            by=request.user,
            channel="web",
            args=wanted.args,
            message=wanted.message,
            to_step=wanted.to_step,
            allow_host=wanted.allow_host,
            revision=wanted.revision,
            fingerprint=wanted.fingerprint,
        )
    except actions.NotAllowed as why:
        return refused(request, why.sentence)
    except actions.Conflict as conflict:
        return _card_again(request, wanted, {"conflict": str(conflict)}, 409)
    except actions.NotPossible as impossible:
        return _card_again(request, wanted, {"conflict": str(impossible)}, 409)
    except actions.BadDecision as bad:
        return _card_again(request, wanted, {_field_of(bad, wanted.verdict): str(bad)}, 422)
    messages.success(request, f"Recorded: {words.VERDICT_DONE[wanted.verdict].text.lower()}.")
    return redirect("run", interrupt.run_id)


def _unconfirmed(request: HttpRequest, interrupt: Interrupt, wanted: forms.Wanted) -> Again | None:
    """What a rollback leaves done outside, or undoes of people's, where nobody has ticked that for this very row.

    None too where the decision can't be taken anyhow: whose it isn't, and of what has changed since it was seen.
    """
    as_seen = wanted.revision == interrupt.revision and (wanted.fingerprint or "") == interrupt.fingerprint
    if wanted.verdict != "rollback" or wanted.stays_done == wanted.to_step or not as_seen:
        return None
    return staying(interrupt, wanted.to_step) if actions.may_decide(request.user, interrupt.run) else None


def _field_of(bad: actions.BadDecision, verdict: str) -> str:
    """The form's name of the field that a decision's fault is about."""
    field = bad.field
    if field.startswith("args."):
        name = field.removeprefix("args.")
        return f"amount.{name}" if name in ("cost_usd", "tokens", "active_seconds") else f"arg.{name}"
    if field == "message" and verdict == "respond":
        return "answer"
    return "to_step" if field == "to_step" else "verdict"


def _card_again(
    request: HttpRequest,
    wanted: forms.Wanted,
    errors: dict[str, str],
    status: int,
    unconfirmed: Again | None = None,
) -> HttpResponse:
    """The card as it is now, with what was typed kept."""
    interrupt = _interrupt(request, request.resolver_match.kwargs["interrupt_id"])  # type: ignore[union-attr]
    shown = reading.card_of(interrupt, request.user)
    read = wanted.read or (
        read_arguments(interrupt.schema, interrupt.args, request.POST) if shown.editable else None
    )
    if read is not None:
        fields = tuple(replace(field, error=errors.get(field.field, field.error)) for field in read.fields)
        shown = replace(shown, fields=fields)
    typed = {name: str(value) for name, value in request.POST.items() if name != "csrfmiddlewaretoken"}
    shown = replace(shown, typed=typed, errors=errors, staying=unconfirmed)
    context = {"card": shown, "run": interrupt.run, "wanted": wanted}
    return render(request, "runs/interrupt.html", context, status=status)
