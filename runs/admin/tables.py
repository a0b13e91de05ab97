"""The administrators' tables: runs and their steps to read, site rules and skills to edit."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.utils.safestring import SafeString

from runs import actions
from runs.admin.budgets import budget_of, limit_questions
from runs.admin.compactions import compact_now, run_links
from runs.admin.parts import OfRunsAdmin, ReadOnlyAdmin, page_link, tokens
from runs.models import Exchange, Halt, Interrupt, Run, SiteRule, Skill, Step

TOKENS = ("input_tokens", "output_tokens", "copied_tokens", "reserved_tokens")
"""A run's numbers of tokens."""


@admin.register(Run)
class RunAdmin(OfRunsAdmin):
    """Runs, with a link to the page of each, and its budget."""

    run_field = "pk"

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
    exclude = ("script", "site_skills", "owner", *TOKENS)
    readonly_fields: ClassVar[Any] = ("owned_by", *map(tokens, TOKENS))
    change_form_template = "admin/runs/run/change_form.html"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let people who launch runs see their own, as on the pages."""
        return super().has_view_permission(request, obj) or actions.may_launch(request.user)

    def get_urls(self) -> list[Any]:
        """Return the admin's own addresses, and the page that requests a compaction."""
        compact = path(
            "<int:run_id>/compact/", self.admin_site.admin_view(self.compact_view), name="runs_run_compact"
        )
        return [compact, *super().get_urls()]

    def compact_view(self, request: HttpRequest, run_id: int) -> HttpResponse:
        """Show the form of a compaction request, or take it."""
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
        """Show the run, with its budget, and links to its page, its questions and its context."""
        run = self.get_object(request, object_id)
        about: dict[str, Any] = {}
        if run is not None:
            questions = Interrupt.objects.filter(run=run)
            about = run_links(request, run) | {
                "budget": budget_of(run),
                "limit_question": limit_questions([run.pk]).get(run.pk),
                "open_question": questions.filter(status=Interrupt.Status.PENDING).first(),
                "questions": questions.count(),
            }
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **about})

    @admin.display(description="page")
    def page(self, run: Run) -> SafeString:
        """Return the link."""
        return page_link(run.pk)

    @admin.display(description="owner")
    def owned_by(self, run: Run) -> str:
        """Return the owner's name."""
        return run.owner.get_username() if run.owner else "the operator"

    @admin.display(description="goal")
    def short_goal(self, run: Run) -> str:
        """Return the goal's beginning."""
        return run.goal if len(run.goal) <= 80 else f"{run.goal[:79]}…"


@admin.register(Step)
class StepAdmin(OfRunsAdmin):
    """Steps of the log."""

    list_display = ("page", "kind", "live", "node", "edge", "at", "ms")
    list_filter = ("kind", "live")
    search_fields = ("=run__id",)
    search_help_text = "A run's number."
    ordering = ("-id",)

    @admin.display(description="step")
    def page(self, step: Step) -> SafeString:
        """Return the link."""
        return page_link(step.run_id, step.seq)


@admin.register(Exchange)
class ExchangeAdmin(OfRunsAdmin):
    """Effects asked of the world, and their answers."""

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

    @admin.display(description="step")
    def page(self, exchange: Exchange) -> SafeString:
        """Return the link."""
        return page_link(exchange.run_id, exchange.seq)


@admin.register(Halt)
class HaltAdmin(ReadOnlyAdmin):
    """Halts: by whom, when, why, and until when; the logs of the runs that they held back name them, too."""

    list_display = ("at", "by_name", "reason", "ended_at", "ended_by", "on")
    search_fields = ("by_name", "reason")
    date_hierarchy = "at"


class SiteRuleForm(forms.ModelForm):
    """A rule, checked by the engine before it is saved: a broken one never gets into a run."""

    class Meta:
        model = SiteRule
        fields = ("position", "rule_json", "enabled")

    def clean_rule_json(self) -> str:
        """Return the rule as the engine reads it."""
        text: str = self.cleaned_data["rule_json"]
        try:
            actions.check_rule(text)
        except ValueError as fault:
            raise forms.ValidationError(str(fault)) from None
        return text


@admin.register(SiteRule)
class SiteRuleAdmin(admin.ModelAdmin):
    """Rules for every run, from the time of their saving; the first that matches wins."""

    form = SiteRuleForm
    list_display = ("position", "words", "enabled")
    list_display_links = ("words",)
    list_filter = ("enabled",)

    @admin.display(description="rule")
    def words(self, rule: SiteRule) -> str:
        """Return the rule in words for people."""
        try:
            return actions.check_rule(rule.rule_json).words()
        except ValueError as fault:
            return f"broken: {fault}"


@admin.register(Skill)
class SkillAdmin(admin.ModelAdmin):
    """Named texts that a run may show its model for one turn."""

    list_display = ("name", "beginning")
    search_fields = ("name", "text")

    @admin.display(description="text")
    def beginning(self, skill: Skill) -> str:
        """Return its first words."""
        return skill.text if len(skill.text) <= 80 else f"{skill.text[:79]}…"
