"""The models for runs in the admin; their own pages (`runs/views/models.py`) test them, too."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminURLFieldWidget
from django.db import models
from django.http import HttpRequest

from runs import actions
from runs.forms.model_profiles import SECTIONS, AddressField, ModelProfileForm
from runs.models import ModelProfile
from runs.reading.model_profiles import prices_in_force


@admin.register(ModelProfile)
class ModelProfileAdmin(admin.ModelAdmin):
    """The models for runs."""

    form = ModelProfileForm
    formfield_overrides = {models.URLField: {"form_class": AddressField, "widget": AdminURLFieldWidget}}
    list_display = (
        "name",
        "kind",
        "enabled",
        "base_url",
        "model_id",
        "has_key",
        "input_price",
        "output_price",
        "guided",
    )
    list_filter = ("kind", "enabled")
    search_fields = ("name", "model_id")
    fieldsets = tuple(
        (title, {"fields": (*fields, *(("prices_now",) if title == "Prices" else ()))})
        for title, fields in SECTIONS
    )
    readonly_fields = ("prices_now",)

    @admin.display(description="Prices in force")
    def prices_now(self, profile: ModelProfile) -> str:
        """Return the price of each kind of token, by the fields above or by the public list."""
        return prices_in_force(profile)

    def save_model(self, request: HttpRequest, obj: ModelProfile, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save, and say what was forgotten or is missing."""
        for note in actions.keep_profile(obj, by=request.user):
            messages.warning(request, note)

    @admin.display(description="key", boolean=True)
    def has_key(self, profile: ModelProfile) -> bool:
        """Return True if a key is stored or named."""
        return bool(profile.sealed_key or profile.key_variable)
