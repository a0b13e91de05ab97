"""The models for runs: their profiles, and keys that are stored but never shown."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminURLFieldWidget
from django.db import models
from django.http import HttpRequest

from runs.adapters.models import OPTIONAL, SEEDED, how_to_add, missing_package
from runs.adapters.scripted import BadScript, parse_script
from runs.adapters.secrets import seal
from runs.driver.ports import has_price, tariff_of
from runs.models import ADDRESSES, KEY_VARIABLE, ModelProfile, same_server


class AddressField(forms.URLField):
    """A server's address; without a scheme it is one of this network."""

    def __init__(self, **options: Any) -> None:
        super().__init__(assume_scheme="http", **options)


class ModelProfileForm(forms.ModelForm):
    """A model's profile; its key is stored but never shown."""

    new_key = forms.CharField(
        label="Key",
        required=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}, render_value=False),
        help_text="Stored encrypted and never shown again. Leave empty to keep the stored key. "
        "A new scheme, host or port in the address forgets it.",
    )
    forget_key = forms.BooleanField(label="Forget the stored key", required=False)
    send_variable = forms.BooleanField(
        label="Send the variable's key to the new address",
        required=False,
        help_text="Needed where the address changes and the key variable stays.",
    )

    class Meta:
        model = ModelProfile
        exclude = ("sealed_key",)
        field_classes = {"base_url": AddressField}
        help_texts: ClassVar[Any] = {
            "key_variable": "Name of an environment variable that holds the key. It begins with AGENTSITE_KEY_."
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stored = "A key is stored." if self.instance.sealed_key else "No key is stored."
        self.fields["new_key"].help_text = f"{stored} {self.fields['new_key'].help_text}"

    def clean(self) -> dict[str, Any]:
        """Check the required fields of each kind of model."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("new_key") and data.get("forget_key"):
            self.add_error("forget_key", "Enter a new key or forget the stored one, not both.")
        self._check_variable(data)
        match data.get("kind"):
            case ModelProfile.Kind.SCRIPT:
                self._check_script(data.get("script_json", ""))
            case kind if kind:
                self._check_server(kind, data)
        return data

    def clean_key_variable(self) -> str:
        """Refuse a variable that may hold another secret."""
        name: str = self.cleaned_data["key_variable"]
        if name and not KEY_VARIABLE.fullmatch(name):
            raise forms.ValidationError(
                "A key variable begins with AGENTSITE_KEY_, such as AGENTSITE_KEY_OPENAI. "
                "Other variables are not sent to model servers. Rename the variable in the environment."
            )
        return name

    def _check_variable(self, data: dict[str, Any]) -> None:
        variable = data.get("key_variable")
        before = ModelProfile(
            kind=self.initial.get("kind", ""), base_url=self.initial.get("base_url", "")
        ).address
        kind, url = (
            data.get("kind", self.initial.get("kind", "")),
            data.get("base_url", self.initial.get("base_url", "")),
        )
        self.instance.variable_confirmed = data.get("send_variable", False)
        if (
            variable
            and variable == self.initial.get("key_variable")
            and not same_server(before, ModelProfile(kind=kind, base_url=url).address)
            and not self.instance.variable_confirmed
        ):
            self.add_error(
                "send_variable",
                f"The address changed. Confirm that the key in {variable} may go there, or clear the variable.",
            )

    def _check_server(self, kind: str, data: dict[str, Any]) -> None:
        needed = [("model_id", "the name that the server has for the model")]
        if kind not in ADDRESSES:
            needed.append(("base_url", "the server's address, such as http://127.0.0.1:9000/v1"))
        for name, what in needed:
            if not data.get(name) and name not in self.errors:
                self.add_error(name, f"{ModelProfile.Kind(kind).label} needs {what}.")
        if data.get("seed") is not None and kind not in SEEDED:
            self.add_error("seed", f"{ModelProfile.Kind(kind).label} takes no seed. Leave the field empty.")
        if {"kind", "base_url", "model_id", "output_mode"} & set(self.changed_data):
            data["left_out"] = ""  # another server or model may take options that this one refused

    def clean_left_out(self) -> str:
        """Refuse a name outside `OPTIONAL`."""
        names = self.cleaned_data["left_out"].split()
        if unknown := sorted(set(names) - set(OPTIONAL)):
            raise forms.ValidationError(f"{', '.join(unknown)}: not one of {', '.join(OPTIONAL)}.")
        return " ".join(names)

    def _check_script(self, text: str) -> None:
        if not text.strip():
            self.add_error("script_json", "A model of kind script needs the script that it plays.")
            return
        try:
            parse_script(text)
        except BadScript as fault:
            self.add_error("script_json", str(fault))

    def save(self, commit: bool = True) -> ModelProfile:  # noqa: FBT001, FBT002 (Django's signature)
        """Seal the key."""
        if self.cleaned_data.get("forget_key"):
            self.instance.sealed_key = ""
        if self.cleaned_data.get("new_key"):
            self.instance.sealed_key = seal(self.cleaned_data["new_key"], settings.SECRET_KEY)
        return super().save(commit)


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
    fieldsets = (
        (None, {"fields": ("name", "kind", "enabled")}),
        (
            "Server",
            {
                "fields": (
                    "base_url",
                    "model_id",
                    "new_key",
                    "forget_key",
                    "key_variable",
                    "send_variable",
                    "output_mode",
                    "left_out",
                    "seed",
                    "guided",
                )
            },
        ),
        (
            "Prices and sizes",
            {
                "fields": (
                    "input_price",
                    "output_price",
                    "cached_price",
                    "cache_write_price",
                    "reasoning_price",
                    "prices_now",
                    "context_tokens",
                    "max_output_tokens",
                    "timeout_s",
                )
            },
        ),
        (
            "Outages and limits",
            {"fields": ("patience_s", "fallback", "most_calls", "most_requests", "most_tokens")},
        ),
        ("Script", {"fields": ("script_json",)}),
    )

    readonly_fields = ("prices_now",)

    @admin.display(description="Prices in force")
    def prices_now(self, profile: ModelProfile) -> str:
        """Return the price of each kind of token, by the fields above or by the public list."""
        if profile.pk is None or profile.kind == ModelProfile.Kind.SCRIPT:
            return "—"
        tariff = tariff_of(profile)
        if not tariff.is_known:
            told = "The provider tells the cost of each call." if has_price(profile) else ""
            return told or "None. Runs with a limit on cost are refused."
        prices = ", ".join(f"{name} ${price:,.2f}" for name, price in tariff.per_million().items())
        return f"USD per million tokens: {prices}."

    def save_model(self, request: HttpRequest, obj: ModelProfile, form: Any, change: bool) -> None:  # noqa: FBT001
        """Save, and say if the key was forgotten."""
        had_key = obj.sealed_key != ""
        if missing_package(obj.kind):
            sentence = f"The library for {obj.get_kind_display()} is not installed."
            messages.warning(request, f"{sentence} {how_to_add(obj.kind)}")
        super().save_model(request, obj, form, change)
        if had_key and not obj.sealed_key:
            sentence = (
                "The address changed, so the stored key was forgotten. Enter the key for the new address."
            )
            messages.warning(request, sentence)

    @admin.display(description="key", boolean=True)
    def has_key(self, profile: ModelProfile) -> bool:
        """Return True if a key is stored or named."""
        return bool(profile.sealed_key or profile.key_variable)
