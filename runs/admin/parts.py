"""What the tables share: rows to look at only, those of the runs that the reader may see, links to pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runs.models import Run
from runs.reading.hidden_text import visible

RUNS_LISTED = 20
"""Runs that a filter names, the newest."""


class ReadableList(ChangeList):
    """A list whose texts hold signs for the characters that nobody would see."""

    def get_results(self, request: HttpRequest) -> None:
        """The page."""
        super().get_results(request)
        self.result_list = list(self.result_list)
        for row in self.result_list:
            make_readable(row)


class ReadOnlyAdmin(admin.ModelAdmin):
    """A table to look at: what stands in the log is changed by nobody."""

    show_full_result_count = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """The list that shows such characters."""
        return ReadableList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """The row to be shown; it is never saved."""
        found = super().get_object(request, object_id, from_field)
        return found if found is None else make_readable(found)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds a row by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes one."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody takes one away."""
        return False


class OfRunsAdmin(ReadOnlyAdmin):
    """Rows of runs: a reader sees those of the runs that they may see."""

    run_field = "run"
    """Where a row names its run."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave out the rows of other people's runs."""
        found: QuerySet[Any] = super().get_queryset(request)
        return found.filter(**{f"{self.run_field}__in": Run.objects.for_user(request.user)})


class RunFilter(admin.SimpleListFilter):
    """One run's rows; the newest runs that have any are named."""

    title = "run"
    parameter_name = "run"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The newest runs, and the one that was chosen."""
        found = model_admin.get_queryset(request).order_by("-run_id").values_list("run_id", flat=True)
        numbers = [str(number) for number in found.distinct()[:RUNS_LISTED]]
        chosen = request.GET.get(self.parameter_name, "")
        if is_number(chosen) and chosen not in numbers:
            numbers.append(chosen)
        return [(number, f"Run {number}") for number in numbers]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those of the run."""
        chosen = self.value() or ""
        return queryset.filter(run_id=int(chosen)) if is_number(chosen) else queryset


def is_number(text: str) -> bool:
    """Whether a field or an address names a row by its number."""
    return text.isascii() and text.isdigit() and len(text) < 16


def make_readable(row: Model) -> Model:
    """The row with signs in its texts, and in those of the rows that were loaded with it: to be shown, not saved."""
    for field in row._meta.concrete_fields:
        if not field.is_relation:
            value = row.__dict__.get(field.attname)
            if isinstance(value, str):
                row.__dict__[field.attname] = visible(value)
        elif row._state.fields_cache.get(field.name) is not None:
            make_readable(getattr(row, field.name))
    return row


def tokens(field: str) -> Callable[[Any], str]:
    """A column with a number of tokens, its thousands apart."""

    @admin.display(description=field.replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        return f"{getattr(row, field):,}"

    return column


def page_link(run_id: int, seq: int | None = None) -> SafeString:
    """A link to the run's own page."""
    address = reverse("run", args=[run_id])
    if seq is None:
        return format_html('<a href="{}">Run {}</a>', address, run_id)
    return format_html('<a href="{}?step={}">Run {}, step {}</a>', address, seq, run_id, seq)
