"""The form of a model's profile, for its own page and for the admin: one set of checks. Keys are never shown."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings

from runs.adapters.models import OPTIONAL, SEEDED
from runs.adapters.models.settings import usable_address
from runs.adapters.prices import context_of
from runs.adapters.scripted import BadScript, parse_script
from runs.adapters.secrets import seal
from runs.models import ADDRESSES, KEY_VARIABLE, ModelProfile, same_server

SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Model", ("name", "kind", "base_url", "model_id", "enabled")),
    ("Key", ("new_key", "forget_key", "key_variable", "send_variable")),
    ("Size and effort", ("context_tokens", "max_output_tokens", "timeout_s", "effort", "guided")),
    (
        "Prices",
        ("input_price", "output_price", "cached_price", "cache_write_price", "reasoning_price"),
    ),
    ("Outages and limits", ("patience_s", "fallback", "most_calls", "most_requests", "most_tokens")),
    ("Requests", ("output_mode", "left_out", "seed")),
    ("Script", ("script_json",)),
)
"""The fields of a profile in their groups."""

USUAL_CONTEXT = 32_000
"""Tokens of a context, if neither the form nor the public list states them."""


class AddressField(forms.URLField):
    """A server's address; without a scheme it is one of this network."""

    def __init__(self, **options: Any) -> None:
        super().__init__(assume_scheme="http", **options)

    def clean(self, value: Any) -> str:
        """Return the address; one that no run could call is refused."""
        address: str = super().clean(value)
        if address:
            try:
                usable_address(address)
            except ValueError as why:
                said = str(why)
                raise forms.ValidationError(f"{said[0].upper()}{said[1:]}.") from None
        return address


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
        labels: ClassVar[Any] = {"base_url": "Address", "timeout_s": "Timeout", "enabled": "Runs may use it"}
        help_texts: ClassVar[Any] = {
            "key_variable": "Name of an environment variable that holds the key. It begins with AGENTSITE_KEY_.",
            "base_url": "Up to and with the version. Leave empty for the provider's own.",
            "model_id": "The server's name for the model. Switch the profile off to save it without.",
            "context_tokens": "Prompt and reply together. Leave empty for the public list's.",
            "guided": "For weak models: narrow reply schemas, worked examples, tools in the order given.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        stored = "A key is stored." if self.instance.sealed_key else "No key is stored."
        self.fields["new_key"].help_text = f"{stored} {self.fields['new_key'].help_text}"
        self.fields["context_tokens"].required = False

    def clean(self) -> dict[str, Any]:
        """Check the required fields of each kind of model."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("new_key") and data.get("forget_key"):
            self.add_error("forget_key", "Enter a new key or forget the stored one, not both.")
        self._check_variable(data)
        if data.get("context_tokens") is None and "context_tokens" not in self.errors:
            data["context_tokens"] = self._usual_context(data)
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
        needed = [("model_id", "the name that the server has for the model")] if data.get("enabled") else []
        if kind not in ADDRESSES:
            needed.append(("base_url", "the server's address, such as http://127.0.0.1:9000/v1"))
        for name, what in needed:
            if not data.get(name) and name not in self.errors:
                self.add_error(name, f"{ModelProfile.Kind(kind).label} needs {what}.")
        if data.get("seed") is not None and kind not in SEEDED:
            self.add_error("seed", f"{ModelProfile.Kind(kind).label} takes no seed. Leave the field empty.")
        if {"kind", "base_url", "model_id", "output_mode", "effort"} & set(self.changed_data):
            data["left_out"] = ""  # another server or model may take options that this one refused

    def _usual_context(self, data: dict[str, Any]) -> int:
        address = data.get("base_url") or ADDRESSES.get(data.get("kind", ""), "")
        return context_of(data.get("model_id") or "", address) or USUAL_CONTEXT

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


class ProfilePage(ModelProfileForm):
    """The same form as the profile's own page shows it."""

    def __init__(self, *args: Any, address_hint: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            kind = field.widget.__class__
            if kind is not forms.CheckboxInput:
                code = name in ("base_url", "model_id", "key_variable", "left_out", "script_json")
                number = issubclass(kind, forms.NumberInput)
                field.widget.attrs["class"] = "input" + " input--code" * code + " input--number" * number
        self.fields["script_json"].widget.attrs["rows"] = 6
        self.fields["model_id"].widget.attrs |= {"list": "model-ids", "spellcheck": "false"}
        if address_hint:
            self.fields["base_url"].widget.attrs["placeholder"] = address_hint
        if not self.instance.sealed_key:
            del self.fields["forget_key"]
        if not self.instance.key_variable:
            del self.fields["send_variable"]

    def _check_server(self, kind: str, data: dict[str, Any]) -> None:
        """Switch a profile without a model off, until one is chosen of the server's list."""
        data["enabled"] = bool(data.get("enabled") and data.get("model_id"))
        super()._check_server(kind, data)
