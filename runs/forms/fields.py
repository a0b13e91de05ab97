"""The kinds of fields in the forms: each reads the input, or asks in one sentence for another."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypedDict

from django import forms

from runs.engine.hosts import ANY
from runs.engine.settings import MOST, patterns_of
from runs.engine.values import MAX_DEPTH, MAX_JSON, MAX_NODES, is_too_large
from runs.models import SiteHost


class Launch(TypedDict):
    """The terms of a launch, except its owner."""

    machine: str
    goal: str
    settings: dict[str, Any]
    script: str | None


def read_json(text: str) -> Any:
    """Return the text's JSON value; raises ValueError with a sentence."""
    if len(text) > MAX_JSON:
        raise ValueError(f"This JSON has {len(text):,} characters; the limit is {MAX_JSON:,}.")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as fault:
        where = f"line {fault.lineno}, column {fault.colno}"
        raise ValueError(f"Invalid JSON, {where}: {fault.msg}.") from None
    except ValueError:
        raise ValueError("This JSON has a number that is too long.") from None
    except RecursionError:
        raise ValueError("This JSON is nested too deeply.") from None
    if is_too_large(found):
        raise ValueError(f"This JSON is too large: {MAX_NODES:,} values on {MAX_DEPTH} levels at most.")
    return found


class WholeField(forms.IntegerField):
    """A whole number, or None if none was typed."""

    def __init__(self, least: int = 0) -> None:
        sentence = f"Enter a whole number of at least {least}."
        super().__init__(
            required=False, min_value=least, error_messages={"invalid": sentence, "min_value": sentence}
        )


class AmountField(forms.FloatField):
    """A number from 0 to `MOST`, or None if none was typed."""

    def __init__(self, sentence: str) -> None:
        super().__init__(
            required=False, min_value=0, error_messages={"invalid": sentence, "min_value": sentence}
        )

    def clean(self, value: Any) -> float | None:
        """Return the number; too large a one is named as typed, not as stored."""
        number: float | None = super().clean(value)
        if number is not None and number > MOST:
            raise forms.ValidationError(f"This must be at most {MOST:,.0f}, not {str(value).strip()[:80]}.")
        return number


class OneOfField(forms.ChoiceField):
    """One of the choices that the page offers."""

    default_error_messages = {
        "required": "Choose one.",
        "invalid_choice": "“%(value)s” is not an option.",
    }


class JsonField(forms.CharField):
    """A list or an object as JSON, or None if nothing was typed."""

    def __init__(self, kind: type, what: str) -> None:
        super().__init__(required=False)
        self.kind, self.what = kind, what

    def to_python(self, value: Any) -> Any:
        """Return the text's value."""
        text = super().to_python(value)
        if not text:
            return None
        try:
            found = read_json(text)
        except ValueError as fault:
            raise forms.ValidationError(str(fault)) from None
        if not isinstance(found, self.kind):
            raise forms.ValidationError(f"This must be {self.what}.")
        return found


class HostsField(forms.CharField):
    """Hosts by line or comma, in their one spelling."""

    def to_python(self, value: Any) -> Any:
        """Return the hosts as a list; the error names the first bad one."""
        text = super().to_python(value) or ""
        try:
            return list(patterns_of([host for host in re.split(r"[\s,;]+", text) if host]))
        except ValueError as fault:
            raise forms.ValidationError(f"{fault}.") from None


class Fault(NamedTuple):
    """A faulty field: its name on the page, and the id of its first control."""

    label: str
    place: str


class ReadingForm(forms.Form):
    """A form that can be checked further if a part of it can't be read."""

    LABELS: ClassVar[dict[str, str]] = {"cost_usd": "Cost", "active_seconds": "Time"}
    """The page's names of fields, if they differ from their own."""

    @property
    def faults(self) -> list[Fault]:
        """Return the faulty fields, in their order: the page's first words lead to each."""
        wrong = [name for name in self.fields if name in self.errors]
        return [Fault(self.LABELS.get(name) or str(self[name].label), self.place_of(name)) for name in wrong]

    def place_of(self, name: str) -> str:
        """Return the id of a field's first control."""
        return name

    def clean(self) -> dict[str, Any]:
        """Return the readable values; an unreadable field counts as left empty, and its fault is noted."""
        super().clean()
        self.unreadable = frozenset(self.errors)
        empty: dict[str, Any] = {name: field.to_python(None) for name, field in self.fields.items()}
        self.read = empty | self.cleaned_data
        return self.cleaned_data

    def fault(self, name: str, sentence: str) -> None:
        """Note the fault of a field, unless it could not even be read."""
        if name not in self.unreadable:
            self.add_error(name, sentence)


class LimitFields(ReadingForm):
    """The limits of a run."""

    cost_usd = AmountField("Enter an amount in dollars, such as 0.5.")
    tokens = WholeField()
    active_seconds = AmountField("Enter a number of seconds, such as 90.")


class HostFields(ReadingForm):
    """The hosts that a run may contact whatever it has read."""

    hosts = HostsField(required=False)
    any_host = forms.BooleanField(required=False)

    def site_hosts(self) -> list[str]:
        """Return the site's hosts for every run."""
        return list(SiteHost.objects.values_list("host", flat=True))

    def wanted_hosts(self) -> list[str]:
        """Return the setting as it was filled in."""
        named = [host for host in self.read["hosts"] if host != ANY]
        return [ANY, *named] if self.read["any_host"] or ANY in self.read["hosts"] else named


def hosts_initial(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields for these settings."""
    hosts = settings.get("hosts", [])
    return {"hosts": "\n".join(host for host in hosts if host != ANY), "any_host": ANY in hosts}
