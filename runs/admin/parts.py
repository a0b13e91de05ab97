"""What the tables share: a table that nobody changes, a link to a run's own page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString


class ReadOnlyAdmin(admin.ModelAdmin):
    """A table to look at: what stands in the log is changed by nobody."""

    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds a row by hand."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes one."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody takes one away."""
        return False


def page_link(run_id: int, seq: int | None = None) -> SafeString:
    """A link to the run's own page."""
    address = reverse("run", args=[run_id])
    if seq is None:
        return format_html('<a href="{}">Run {}</a>', address, run_id)
    return format_html('<a href="{}?step={}">Run {}, row {}</a>', address, seq, run_id, seq)
