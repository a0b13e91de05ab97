"""Budgets in the admin: every line with its use, and the open question that can raise a limit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.admin.parts import OfRunsAdmin, ReadableList, RunFilter
from runs.models import Budget, Interrupt, Run
from runs.reading import words
from runs.reading.limits import Standing, figures, standings, standings_of
from runs.store.shared_limits import SHARED

LIMITS = "limits"
"""The scope of a run's limits; other scopes are the machine's."""


@dataclass(frozen=True)
class BudgetLine:
    """One line of a run's budget, in words."""

    scope: str
    name: str
    figures: str
    by_others: str = ""


def budget_of(run: Run) -> list[BudgetLine]:
    """Return every line that counts for the run: its limits, the shared ones, and its machine's own budget."""
    lines = list(Budget.objects.filter(run=run).exclude(scope=SHARED))
    limits = [
        BudgetLine(one.whose, words.LIMIT[one.name], one.figures, one.by_others)
        for one in standings(run, lines)
    ]
    own = [
        BudgetLine(words.spoken(line.scope), words.spoken(line.name), _used(line, None))
        for line in lines
        if line.scope != LIMITS
    ]
    return limits + own


def limit_questions(runs: Iterable[int]) -> dict[int, Interrupt]:
    """Return the open question about a limit of each run that has one, by the run's number."""
    asked = Interrupt.objects.filter(run__in=runs, kind="limit", status=Interrupt.Status.PENDING)
    return {found.run_id: found for found in asked}


def question_link(question: Interrupt) -> SafeString:
    """Return a link to the card that raises the limit."""
    return format_html(
        '<a href="{}">Raise limit</a>', reverse("admin:runs_interrupt_change", args=[question.pk])
    )


def _used(line: Budget, standing: Standing | None) -> str:
    if standing is not None:
        return figures(standing.name, standing.used, standing.limit)
    return f"{words.number(line.used)} of {words.number(line.limit)}"


class BudgetList(ReadableList):
    """The list with the use of each limit, read for the whole page at once."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page, each line with its figures and its question."""
        super().get_results(request)
        runs = {row.run_id: row.run for row in self.result_list}
        own: dict[int, list[Budget]] = {}
        for row in self.result_list:
            own.setdefault(row.run_id, []).append(row)
        found = standings_of(runs.values(), own)
        asked = limit_questions(runs)
        for row in self.result_list:
            limits = found[row.run_id] if row.scope == LIMITS else []
            row.standing = next((one for one in limits if one.name == row.name and not one.root), None)
            row.question = asked.get(row.run_id) if row.standing else None


@admin.register(Budget)
class BudgetAdmin(OfRunsAdmin):
    """Lines of the runs' budgets. A limit is raised where its run asks for it, on the question's card."""

    list_display = ("of_run", "scope", "name", "used_of", "raise_at")
    list_filter = ("scope", "name", RunFilter)
    list_select_related = ("run",)
    list_per_page = 50
    search_fields = ("=run__id",)
    search_help_text = "A run's number."
    ordering = ("-run_id", "id")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Budget]:
        """Leave out raises of shared limits: they count in the limit of the run that owns them."""
        found: QuerySet[Budget] = super().get_queryset(request)
        return found.exclude(scope=SHARED)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ReadableList]:
        """Return the list with figures."""
        return BudgetList

    @admin.display(description="run", ordering="run")
    def of_run(self, line: Budget) -> SafeString:
        """Return the link to the run in the admin."""
        address = reverse("admin:runs_run_change", args=[line.run_id])
        return format_html('<a href="{}">Run {}</a>', address, line.run_id)

    @admin.display(description="used")
    def used_of(self, row: Any) -> str:
        """Return how much of how much is used."""
        return _used(row, row.standing)

    @admin.display(description="open question")
    def raise_at(self, row: Any) -> SafeString | str:
        """Return the link to the question about the limit."""
        return question_link(row.question) if row.question else "-"
