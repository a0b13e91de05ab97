"""Shared parts of the tables: read-only rows, those of visible runs, links to pages."""

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
"""Runs named in a filter, the newest."""


class ReadableList(ChangeList):
    """A list whose texts have signs for invisible characters."""

    def get_results(self, request: HttpRequest) -> None:
        """Read the page."""
        super().get_results(request)
        self.result_list = list(self.result_list)
        for row in self.result_list:
            make_readable(row)


class ReadOnlyAdmin(admin.ModelAdmin):
    """A read-only table: the log is never changed."""

    show_full_result_count = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return the list with such signs."""
        return ReadableList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the row to show; it is never saved."""
        found = super().get_object(request, object_id, from_field)
        return found if found is None else make_readable(found)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse new rows by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse deletions."""
        return False


class OfRunsAdmin(ReadOnlyAdmin):
    """Rows of runs: a reader sees those of visible runs."""

    run_field = "run"
    """The row's path to its run."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Leave out the rows of other people's runs."""
        found: QuerySet[Any] = super().get_queryset(request)
        return found.filter(**{f"{self.run_field}__in": Run.objects.for_user(request.user)})


class RunFilter(admin.SimpleListFilter):
    """Filters by run; the newest runs with rows are named."""

    title = "run"
    parameter_name = "run"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the newest runs, and the chosen one."""
        found = model_admin.get_queryset(request).order_by("-run_id").values_list("run_id", flat=True)
        numbers = [str(number) for number in found.distinct()[:RUNS_LISTED]]
        chosen = request.GET.get(self.parameter_name, "")
        if is_number(chosen) and chosen not in numbers:
            numbers.append(chosen)
        return [(number, f"Run {number}") for number in numbers]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of the run."""
        chosen = self.value() or ""
        return queryset.filter(run_id=int(chosen)) if is_number(chosen) else queryset


def is_number(text: str) -> bool:
    """Return True if the text is a row's number."""
    return text.isascii() and text.isdigit() and len(text) < 16


def make_readable(row: Model) -> Model:
    """Return the row with signs in its texts, and in those of the rows loaded with it: to show, not to save."""
    for field in row._meta.concrete_fields:
        if not field.is_relation:
            value = row.__dict__.get(field.attname)
            if isinstance(value, str):
                row.__dict__[field.attname] = visible(value)
        elif row._state.fields_cache.get(field.name) is not None:
            make_readable(getattr(row, field.name))
    return row


def tokens(field: str) -> Callable[[Any], str]:
    """Return a column with a number of tokens, with separated thousands."""

    @admin.display(description=field.replace("_", " "), ordering=field)
    def column(row: Any) -> str:
        return f"{getattr(row, field):,}"

    return column


def page_link(run_id: int, seq: int | None = None) -> SafeString:
    """Return a link to the run's own page."""
    address = reverse("run", args=[run_id])
    if seq is None:
        return format_html('<a href="{}">Run {}</a>', address, run_id)
    return format_html('<a href="{}?step={}">Run {}, step {}</a>', address, seq, run_id, seq)
