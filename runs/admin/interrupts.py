"""Questions to people in the admin, each on the card of the pages, and their decisions."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from runs import forms
from runs.admin.parts import OfRunsAdmin, ReadableList, RunFilter, page_link
from runs.forms.life import check_life
from runs.models import Decision, Interrupt
from runs.reading import cards, words
from runs.reading.cards import Card, headlines
from runs.reading.hidden_text import visible

STORED = (
    *("kind", "status", "effects", "risk", "limit", "revision", "fingerprint"),
    *("created_at", "deadline", "on_timeout", "decided_at", "title", "why", "args_json", "schema_json"),
)
"""A question's fields shown as they are stored, under its card."""


class QuestionList(ReadableList):
    """The list with each question in one line, read for the whole page at once."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, each question with its line."""
        super().get_results(request)
        asked = headlines(self.result_list)
        for row in self.result_list:
            row.headline = asked[row.pk]


@admin.register(Interrupt)
class InterruptAdmin(OfRunsAdmin):
    """Questions to people; the card of an open one takes every verdict, as it does on the pages."""

    list_display = ("asks", "page", "about", "status", "effects", "risk", "created_at", "deadline")
    list_filter = ("status", "kind", RunFilter)
    list_select_related = ("run",)
    list_per_page = 50
    ordering = (Case(When(status=Interrupt.Status.PENDING, then=0), default=1), "-created_at")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ReadableList]:
        """Return the list with lines."""
        return QuestionList

    @admin.display(description="question")
    def asks(self, row: Any) -> str:
        """Return the question, in one line."""
        line: str = row.headline
        return line if len(line) <= 160 else f"{line[:159]}…"

    @admin.display(description="kind", ordering="kind")
    def about(self, interrupt: Interrupt) -> str:
        """Return the kind of question, in words."""
        return words.INTERRUPT[interrupt.kind].text

    @admin.display(description="step")
    def page(self, interrupt: Interrupt) -> SafeString:
        """Return the link to the step on the run's page."""
        return page_link(interrupt.run_id, interrupt.seq)

    def get_urls(self) -> list[Any]:
        """Return the admin's own addresses, and the one that decides."""
        decide = path(
            "<uuid:interrupt_id>/decide/",
            self.admin_site.admin_view(require_POST(self.decide)),
            name="runs_interrupt_decide",
        )
        return [decide, *super().get_urls()]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show the question's card."""
        if request.method != "GET" or not self.has_view_permission(request):
            raise PermissionDenied
        # Not this class's own `get_object`: its signs would become part of the arguments to decide on.
        question = admin.ModelAdmin.get_object(self, request, object_id)
        if question is None:
            messages.warning(request, "Question not found, or you may not see its run.")
            return redirect("admin:index")
        return self._page(request, cards.card_of(question, request.user))

    def decide(self, request: HttpRequest, interrupt_id: Any) -> HttpResponse:
        """Decide, as on the question's own page. A refused decision comes back with its input, and why."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        question = get_object_or_404(self.get_queryset(request).select_related("run"), pk=interrupt_id)
        check_life(request)
        try:
            verdict = forms.take(question, request.POST, by=request.user, channel="admin")
        except forms.NotTaken as why:
            return self._page(request, why.card, why.status)
        messages.success(request, f"Recorded: {words.VERDICT_DONE[verdict].text.lower()}.")
        return redirect("admin:runs_interrupt_change", question.pk)

    def _page(self, request: HttpRequest, card: Card, status: int = 200) -> HttpResponse:
        question = card.interrupt
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": f"Question of run {question.run_id}, step {question.seq}",
            "card": card,
            "run": card.run,
            "decide_at": reverse("admin:runs_interrupt_decide", args=[question.pk]),
            "stored": [(name.replace("_", " "), _as_text(question, name)) for name in STORED],
        }
        return TemplateResponse(request, "admin/runs/interrupt/change_form.html", context, status=status)


def _as_text(question: Interrupt, name: str) -> str:
    value = getattr(question, name)
    return visible(str(value)) if value not in (None, "") else "-"


@admin.register(Decision)
class DecisionAdmin(OfRunsAdmin):
    """Decisions: by whom, what, when and from where."""

    list_display = ("decision", "question", "page", "by_name", "channel", "at", "message")
    list_filter = ("verdict", "channel")
    list_select_related = ("interrupt",)
    date_hierarchy = "at"
    exclude = ("by",)
    run_field = "interrupt__run"

    @admin.display(description="decision", ordering="verdict")
    def decision(self, decision: Decision) -> str:
        """Return the verdict, in words."""
        return words.VERDICT_DONE[decision.verdict].text

    @admin.display(description="question")
    def question(self, decision: Decision) -> SafeString:
        """Return the link to the question's card."""
        address = reverse("admin:runs_interrupt_change", args=[decision.interrupt_id])
        return format_html('<a href="{}">{}</a>', address, words.INTERRUPT[decision.interrupt.kind].text)

    @admin.display(description="step")
    def page(self, decision: Decision) -> SafeString:
        """Return the link to the step on the run's page."""
        return page_link(decision.interrupt.run_id, decision.interrupt.seq)
