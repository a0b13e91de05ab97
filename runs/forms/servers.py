"""The forms of MCP servers: how one is reached, and what an administrator says that a tool does."""

from __future__ import annotations

import re
from typing import Any, ClassVar
from urllib.parse import urlsplit

from django import forms

from runs.driver.mcp import pairs_of
from runs.models import McpServer, McpTool

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
OTHER_SECRET = re.compile(r"\$(?!AGENTSITE_MCP_[A-Z0-9_])[A-Za-z_]\w*")
MOST_LINES = 8_000

EFFECTS = [
    ("read", "Reads"),
    ("write", "Writes"),
    ("send", "Sends"),
    ("execute", "Executes"),
]
READS = [
    ("untrusted", "Untrusted content"),
    ("private", "Private data"),
    ("", "Nothing of note"),
]


class ServerForm(forms.ModelForm):
    """How a server is reached. Its name stays once it is saved: tools, rules and runs name it."""

    LABELS: ClassVar[dict[str, str]] = {"timeout_s": "Timeout"}

    class Meta:
        model = McpServer
        fields = ("name", "kind", "command", "variables", "address", "headers", "timeout_s", "enabled")
        error_messages: ClassVar[Any] = {
            "name": {"unique": "A server of this name already exists.", "required": "Enter a name."}
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("command", "variables", "address", "headers"):
            self.fields[name].max_length = MOST_LINES  # type: ignore[attr-defined]
        if self.instance.pk is not None:
            del self.fields["name"]

    def clean_name(self) -> str:
        """Refuse a name that could not stand before a tool's."""
        name: str = self.cleaned_data["name"]
        if not NAME.fullmatch(name) or name == "agent":
            raise forms.ValidationError(
                "Use 1 to 40 lower-case letters, digits, _ or -, beginning with a letter; not “agent”."
            )
        return name

    def clean_variables(self) -> str:
        """Refuse lines that are no variables."""
        return self._pairs("variables", "=", VARIABLE, "NAME=value")

    def clean_headers(self) -> str:
        """Refuse lines that are no headers."""
        return self._pairs("headers", ":", HEADER, "Name: value")

    def clean_address(self) -> str:
        """Refuse what is no address of a server."""
        address: str = self.cleaned_data["address"].strip()
        try:
            parts = urlsplit(address)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            good = False
        if address and (not good or "@" in parts.netloc or not address.isprintable() or " " in address):
            raise forms.ValidationError(
                "Enter an address such as https://tools.example.com/mcp, without a user. Keys go into headers."
            )
        return address

    def clean(self) -> dict[str, Any]:
        """Refuse a server without what its kind needs."""
        data: dict[str, Any] = super().clean() or self.cleaned_data
        needed = {"stdio": ("command", "the program"), "http": ("address", "the address")}
        name, what = needed.get(data.get("kind", ""), ("", ""))
        if name and name not in self.errors and not data.get(name, "").strip():
            self.add_error(name, f"Enter {what} of the server.")
        return data

    def _pairs(self, field: str, sign: str, name: re.Pattern[str], form: str) -> str:
        text = "\n".join(self.cleaned_data[field].splitlines())
        for key, value in pairs_of(text, sign):
            if not name.fullmatch(key) or not value.isprintable():
                raise forms.ValidationError(f"{key[:40]!r}: write {form}, one a line.")
            if foreign := OTHER_SECRET.search(value):
                raise forms.ValidationError(
                    f"{foreign[0]}: only variables of the site that begin with AGENTSITE_MCP_ can be passed on."
                )
        return text


class ToolForm(forms.ModelForm):
    """The administrator's statement of a tool's side effects, with the definition that they read."""

    sha256 = forms.CharField(max_length=64)
    effects = forms.ChoiceField(choices=EFFECTS)
    reads = forms.ChoiceField(choices=READS, required=False)

    class Meta:
        model = McpTool
        fields = ("effects", "repeatable", "reads", "outward")
