"""The administrators' tables: runs and their rows to look at, interrupts to decide, site rules to edit."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import path
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from runs import actions, reading
from runs.admin.compactions import compact_now, run_links
from runs.admin.parts import ReadOnlyAdmin, page_link, tokens
from runs.models import Decision, Exchange, Halt, Interrupt, Run, SiteRule, Skill, Step
from runs.reading.phrases import call_text
from runs.reading.questions import titles_of
from runs.reading.restored import doubts_of

TOKENS = ("input_tokens", "output_tokens", "copied_tokens", "reserved_tokens")
"""Of a run, the numbers of tokens."""


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs, with a link to the page of each."""

    list_display = (
        "id",
        "page",
        "machine",
        "short_goal",
        "status",
        "exit_reason",
        "owner",
        "model",
        "head",
        "cost_usd",
        "created_at",
    )
    list_filter = ("status", "machine", "exit_reason")
    list_select_related = ("owner",)
    search_fields = ("goal",)
    date_hierarchy = "created_at"
    exclude = ("script", "site_skills", *TOKENS)
    readonly_fields: ClassVar[Any] = tuple(map(tokens, TOKENS))
    change_form_template = "admin/runs/run/change_form.html"

    def get_urls(self) -> list[Any]:
        """The admin's own addresses, and the page that asks for a compaction."""
        compact = path(
            "<int:run_id>/compact/", self.admin_site.admin_view(self.compact_view), name="runs_run_compact"
        )
        return [compact, *super().get_urls()]

    def compact_view(self, request: HttpRequest, run_id: int) -> HttpResponse:
        """Ask for a compaction: the form, and what is posted."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return compact_now(request, get_object_or_404(self.get_queryset(request), pk=run_id), self.admin_site)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The run, with links to its page and to what was done to its context."""
        run = self.get_object(request, object_id)
        links = run_links(request, run) if run is not None else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **links})

    @admin.display(description="page")
    def page(self, run: Run) -> SafeString:
        """The link."""
        return page_link(run.pk)

    @admin.display(description="goal")
    def short_goal(self, run: Run) -> str:
        """The goal's beginning."""
        return run.goal if len(run.goal) <= 80 else f"{run.goal[:79]}…"


@admin.register(Step)
class StepAdmin(ReadOnlyAdmin):
    """Rows of the log."""

    list_display = ("page", "kind", "live", "node", "edge", "at", "ms")
    list_filter = ("kind", "live")
    search_fields = ("=run__id",)
    search_help_text = "A run's number."
    ordering = ("-id",)

    @admin.display(description="row")
    def page(self, step: Step) -> SafeString:
        """The link."""
        return page_link(step.run_id, step.seq)


@admin.register(Exchange)
class ExchangeAdmin(ReadOnlyAdmin):
    """What was asked of the world, and answered."""

    list_display = (
        "page",
        "kind",
        "name",
        "status",
        "attempt",
        tokens("input_tokens"),
        tokens("output_tokens"),
        "cost_usd",
        "started_at",
    )
    list_filter = ("kind", "status")
    search_fields = ("=run__id", "name")
    search_help_text = "A run's number, or the name of a tool or role."
    exclude = ("input_tokens", "output_tokens")
    readonly_fields: ClassVar[Any] = tuple(map(tokens, exclude))
    ordering = ("-id",)

    @admin.display(description="row")
    def page(self, exchange: Exchange) -> SafeString:
        """The link."""
        return page_link(exchange.run_id, exchange.seq)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyAdmin):
    """Who decided what, when and from where."""

    list_display = ("interrupt", "verdict", "by_name", "channel", "at", "message")
    list_filter = ("verdict", "channel")
    list_select_related = ("interrupt",)
    date_hierarchy = "at"


@admin.register(Halt)
class HaltAdmin(ReadOnlyAdmin):
    """Who stopped everything, when, why, and until when; the runs that it held back say so in their logs."""

    list_display = ("at", "by_name", "reason", "ended_at", "ended_by", "on")
    search_fields = ("by_name", "reason")
    date_hierarchy = "at"


@admin.register(Interrupt)
class InterruptAdmin(ReadOnlyAdmin):
    """Questions to people. A pending one can be approved or rejected here; the run page can do more."""

    list_display = ("title", "page", "kind", "status", "effects", "risk", "created_at", "deadline")
    list_filter = ("status", "kind")
    ordering = ("status", "-created_at")
    change_form_template = "admin/runs/interrupt/change_form.html"

    @admin.display(description="run")
    def page(self, interrupt: Interrupt) -> SafeString:
        """The link."""
        return page_link(interrupt.run_id, interrupt.seq)

    def get_urls(self) -> list[Any]:
        """The admin's own addresses, and the one that decides."""
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
        """The question, with the buttons where the reader may decide it."""
        interrupt = Interrupt.objects.select_related("run").filter(pk=object_id).first()
        open_to_me = (
            interrupt is not None
            and interrupt.status == Interrupt.Status.PENDING
            and actions.may_decide(request.user, interrupt.run)
        )
        context = {
            **(extra_context or {}),
            "interrupt": interrupt,
            "typed": request.session.pop(_typed(object_id), ""),
            "asks": titles_of([interrupt])[interrupt.pk] if interrupt is not None else "",
            "open_to_me": open_to_me,
            "may_approve": open_to_me and interrupt is not None and "approve" in interrupt.verdicts,
            "may_reject": open_to_me and interrupt is not None and "reject" in interrupt.verdicts,
            "doubt": _doubt(interrupt) if interrupt is not None else "",
            "wants_a_look": interrupt is not None and _wants_a_look(interrupt),
            "shown": call_text(interrupt.tool, interrupt.args)
            if interrupt is not None and interrupt.tool
            else "",
        }
        return super().change_view(request, object_id, form_url, context)

    def decide(self, request: HttpRequest, interrupt_id: Any) -> HttpResponse:
        """Approve or reject, with a message."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        interrupt = get_object_or_404(Interrupt, pk=interrupt_id)
        verdict = request.POST.get("verdict", "")
        if verdict not in ("approve", "reject"):
            messages.error(request, "The admin approves or rejects; everything else is on the run page.")
        else:
            self._decide(request, interrupt, verdict)
        if not Decision.objects.filter(interrupt=interrupt).exists():
            request.session[_typed(interrupt.pk)] = request.POST.get("message", "")
        return redirect("admin:runs_interrupt_change", interrupt.pk)

    def _decide(self, request: HttpRequest, interrupt: Interrupt, verdict: str) -> None:
        if not actions.may_decide(request.user, interrupt.run):
            raise PermissionDenied
        revision, fingerprint = request.POST.get("revision", ""), request.POST.get("fingerprint", "")
        if not (revision.isdigit() and len(revision) < 10) or (interrupt.fingerprint and not fingerprint):
            messages.error(request, "The form does not say which question it is for. Load the page again.")
            return
        if verdict == "approve" and _wants_a_look(interrupt) and "sure" not in request.POST:
            why = _doubt(interrupt) or "This call is risky, or holds characters that can't be seen."
            messages.error(request, f"{why} Look at it once more, and tick the box.")
            return
        try:
            actions.decide(
                interrupt.pk,
                verdict=verdict,
                by=request.user,
                channel="admin",
                message=request.POST.get("message", "").replace("\r\n", "\n").strip(),
                revision=int(revision),
                fingerprint=fingerprint or None,
            )
        except actions.NotAllowed as refused:
            raise PermissionDenied(refused.sentence) from None
        except (actions.Conflict, actions.BadDecision, actions.NotPossible) as fault:
            messages.error(request, str(fault))
        else:
            messages.success(request, f"Recorded: {verdict}.")


def _typed(interrupt_id: Any) -> str:
    """Where a session keeps a message that could not be taken, until its form is shown again."""
    return f"message for {interrupt_id}"


def _wants_a_look(interrupt: Interrupt) -> bool:
    """Whether approving asks for a second step: the call is risky, hides something, or may be done already."""
    return reading.second_look(interrupt, "approve", None) != ""


def _doubt(interrupt: Interrupt) -> str:
    """Why it may have been answered already; empty where nothing speaks for it."""
    return doubts_of([interrupt]).get(interrupt.pk, "")


class SiteRuleForm(forms.ModelForm):
    """A rule, checked by the engine before it is saved: a broken one never gets into a run."""

    class Meta:
        model = SiteRule
        fields = ("position", "rule_json", "enabled")

    def clean_rule_json(self) -> str:
        """The rule as the engine reads it."""
        text: str = self.cleaned_data["rule_json"]
        try:
            actions.check_rule(text)
        except ValueError as fault:
            raise forms.ValidationError(str(fault)) from None
        return text


@admin.register(SiteRule)
class SiteRuleAdmin(admin.ModelAdmin):
    """Rules for every run, from the moment that they are saved; the first that matches wins."""

    form = SiteRuleForm
    list_display = ("position", "words", "enabled")
    list_display_links = ("words",)
    list_filter = ("enabled",)

    @admin.display(description="rule")
    def words(self, rule: SiteRule) -> str:
        """The rule as a person reads it."""
        try:
            return actions.check_rule(rule.rule_json).words()
        except ValueError as fault:
            return f"broken: {fault}"


@admin.register(Skill)
class SkillAdmin(admin.ModelAdmin):
    """Named texts that a run of `contract` may show its model for one round."""

    list_display = ("name", "beginning")
    search_fields = ("name", "text")

    @admin.display(description="text")
    def beginning(self, skill: Skill) -> str:
        """Its first words."""
        return skill.text if len(skill.text) <= 80 else f"{skill.text[:79]}…"
