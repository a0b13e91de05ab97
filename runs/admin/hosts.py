"""Hosts that calls of every run may contact."""

from __future__ import annotations

from django.contrib import admin

from runs.models import SiteHost


@admin.register(SiteHost)
class SiteHostAdmin(admin.ModelAdmin):
    """Hosts for runs launched from now on. A deleted host is no longer named for any run."""

    list_display = ("host",)
    search_fields = ("host",)
