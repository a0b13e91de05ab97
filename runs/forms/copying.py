"""A fork as a form: the changes from a step on. Input is kept, and errors are shown at their fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from django import forms
from django.http import QueryDict

from runs.actions import MAX_NOTE, Problem
from runs.engine.machine import State
from runs.engine.settings import LIMIT_NAMES
from runs.engine.states import control_values
from runs.forms.answering import AnswerFields
from runs.forms.fields import (
    Fault,
    HostFields,
    JsonField,
    Launch,
    LimitFields,
    OneOfField,
    hosts_initial,
    read_json,
)
from runs.forms.machines import pretty
from runs.machines import CATALOGUE
from runs.models import ModelProfile, Run
from runs.reading.arguments import lines
from runs.store import copying, loading

OWN_FIELDS = ("model", "limits", "hosts")
"""Settings that have a field of their own in this form."""

How = Literal["fork", "rerun"]
"""`fork` if something is to change, `rerun` if nothing is."""


@dataclass(frozen=True)
class StateValue:
    """One control value, as of the step."""

    name: str
    kind: str
    """integer, boolean, choice, text or json."""
    value: Any
    options: tuple[str, ...] = ()
    may_be_none: bool = False

    @property
    def field(self) -> str:
        """Return the name of its field."""
        return f"state-{self.name}"

    def as_typed(self) -> str:
        """Return the value as a person would type it."""
        if self.kind == "json":
            return pretty(self.value)
        if self.value is None:
            return ""
        return str(self.value).lower() if self.kind == "boolean" else str(self.value)

    def changed(self, text: str) -> bool:
        """Return True if the input differs; browsers send line ends of their own."""
        return lines(text) != lines(self.as_typed())

    @property
    def rows(self) -> int:
        """Return the height of a field of several lines."""
        return min(8, lines(self.as_typed()).count("\n") + 1)

    def read(self, text: str) -> Any:
        """Return the input as a value; raises ValueError with a sentence."""
        text = lines(text)
        if self.may_be_none and not text.strip():
            return None
        match self.kind:
            case "integer":
                return _whole(text)
            case "boolean":
                return text == "true"
            case "json":
                return read_json(text)
        return text


def _whole(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ValueError(f"This must be a whole number, not {text.strip()[:80]!r}.") from None


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def state_values(run: Run, at: int) -> tuple[StateValue, ...]:
    """Return the control values of the run after step `at`, typed as the machine's state declares them."""
    machine = CATALOGUE[run.machine]
    terms = loading.terms_of(run, {})
    now = loading.state_at(run, machine, terms, at).model_dump(mode="json")
    schema = _schema_of(machine.state)
    return tuple(
        _typed(name, schema["properties"][name], schema.get("$defs", {}), now[name])
        for name in control_values(machine)
        if name in now  # a value left out while empty has nothing to change
    )


@cache
def _schema_of(state: type[State]) -> dict[str, Any]:
    """Return the types of a machine's control values; computing them takes longer than the rest of the page."""
    return state.model_json_schema()


def _typed(name: str, schema: dict[str, Any], known: dict[str, Any], value: Any) -> StateValue:
    options = schema.get("anyOf", [schema])
    kinds = [known.get(one["$ref"].rpartition("/")[2], one) if "$ref" in one else one for one in options]
    may_be_none = any(kind.get("type") == "null" for kind in kinds)
    (first, *others) = [kind for kind in kinds if kind.get("type") != "null"] or [{}]
    if others:
        return StateValue(name, "json", value)
    if "enum" in first and all(isinstance(one, str) for one in first["enum"]):
        return StateValue(name, "choice", value, tuple(first["enum"]), may_be_none)
    match first.get("type"):
        case "integer" | "boolean" as kind:
            return StateValue(name, kind, value, may_be_none=may_be_none)
        case "string":
            return StateValue(name, "text", value, may_be_none=may_be_none)
    return StateValue(name, "json", value)


class ForkForm(AnswerFields, HostFields, LimitFields):
    """The changes of a fork of `run` at step `at`."""

    LABELS: ClassVar[dict[str, str]] = AnswerFields.LABELS | {
        "verdict": "Answer",
        "args": "Arguments",
        "said": "Message",
        "sure": "Confirmation",
        "message": "Why",
        "settings": "Settings as JSON",
    }
    message = forms.CharField(
        required=False,
        max_length=MAX_NOTE,
        error_messages={
            "max_length": "The reason has at most %(limit_value)d characters; this one has %(show_value)d."
        },
    )
    model = forms.CharField(required=False)
    settings = JsonField(dict, 'one JSON object, such as {"context": {"limit_tokens": 4096}}')
    answers = OneOfField(choices=[("ask again", "Ask again"), ("keep", "Keep the answers")], required=False)

    def __init__(self, run: Run, at: int, data: QueryDict | None = None, how: How = "fork") -> None:
        super().__init__(data)
        self.run, self.at, self.how = run, at, how
        self.values = state_values(run, at)
        for value in self.values:
            self.fields[value.field] = forms.CharField(required=False, strip=False)
        self.limits = copying.limits_at(run, at)
        self.others = {name: value for name, value in run.settings.items() if name not in OWN_FIELDS}
        self.ask()
        self.to_be_forked = self.conflict = False
        self.models = list(ModelProfile.objects.filter(enabled=True))
        self.initial = self._initial()

    @property
    def faults(self) -> list[Fault]:
        """Return the faulty fields; those of changes only if there are any."""
        own = {value.field: value.name for value in self.values}
        found = [Fault(own.get(fault.place, fault.label), fault.place) for fault in super().faults]
        return [fault for fault in found if self.how == "fork" or fault.place == "message"]

    def _initial(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: _number(limit) for name, limit in self.limits.items()}
        found |= {"settings": pretty(self.others), "answers": "ask again", **hosts_initial(self.run.settings)}
        return found | {value.field: value.as_typed() for value in self.values} | self.answer_initial()

    def state_rows(self) -> list[tuple[StateValue, Any, bool]]:
        """Return the control values with their fields, and whether each differs from the step's."""
        return [
            (value, field, self.is_bound and value.changed(str(field.value() or "")))
            for value in self.values
            for field in (self[value.field],)
        ]

    @property
    def changed_state(self) -> bool:
        """Return True if a control value differs from the step's, or is wrong."""
        return any(changed or field.errors for _, field, changed in self.state_rows())

    def clean(self) -> dict[str, Any]:
        """Return the settings, the control values and the decision, as far as they can be read."""
        super().clean()
        data = self.read
        self.new_settings = self._new_settings(data)
        self.state: dict[str, Any] = {}
        for value in (value for value in self.values if value.field in self.data):
            if not value.changed(data[value.field]):
                continue
            try:
                self.state[value.name] = value.read(data[value.field])
            except ValueError as fault:
                self.fault(value.field, str(fault))
        # A value without a field here must be refused, not ignored.
        self.state |= {name: self.data[f"state-{name}"] for name in self._without_field()}
        self.decision = self.read_answer(data) if self.how == "fork" else None
        return self.cleaned_data

    def _without_field(self) -> list[str]:
        sent = [name.partition("state-")[2] for name in self.data if name.startswith("state-")]
        return [name for name in sent if f"state-{name}" not in self.fields]

    def _new_settings(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the other settings; those missing from the form, or unreadable, stay as they are."""
        if "settings" not in self.data or "settings" in self.errors:
            return self.others
        found = data["settings"] or {}
        doubled = [name for name in sorted(OWN_FIELDS) if name in found]
        if doubled:
            self.fault("settings", f"{', '.join(doubled)}: use the field above.")
        return {name: value for name, value in found.items() if name not in doubled}

    def changes(self) -> dict[str, Any]:
        """Return the changed settings, by name; None removes one."""
        data, new = self.read, self.new_settings
        names = [name for name in {**self.others, **new} if self.others.get(name) != new.get(name)]
        changes: dict[str, Any] = {name: new.get(name) for name in names}
        limits = {name: data[name] for name in LIMIT_NAMES if data[name] is not None}
        if limits != self.limits and any(name in self.data for name in LIMIT_NAMES):
            changes["limits"] = limits or None
        if "hosts" in self.data and (hosts := self.wanted_hosts()) != self.run.settings.get("hosts", []):
            changes["hosts"] = hosts or None
        if data["model"]:
            changes["model"] = data["model"]
        return changes

    def launch(self) -> Launch:
        """Return the launch of the fork, as far as it could be read."""
        changes = self.changes()
        settings = {**self.run.settings, **changes}
        another_model = changes.get("model", self.run.model) != self.run.model
        return {
            "machine": self.run.machine,
            "goal": self.run.goal,
            "settings": {name: value for name, value in settings.items() if value is not None},
            "script": None if another_model else self.run.script_json,
        }

    def take(self, problems: Iterable[Problem]) -> None:
        """Put refusals beside the fields; those without a field go to the top."""
        self.to_be_forked = self.how == "rerun"
        for problem in problems:
            if problem.path == "decision.question":
                self.ask_anew(problem.message)
                continue
            place, rest = self._place_of(problem.path)
            self.add_error(place, f"{rest}: {problem.message}" if rest else problem.message)

    def _place_of(self, path: str) -> tuple[str | None, str]:
        if self.how == "rerun":  # a rerun has no fields for changes
            return None, path.removeprefix("settings.")
        head, _, rest = path.partition(".")
        name, _, deeper = rest.partition(".")
        match head:
            case "state" if f"state-{name}" in self.fields:
                return f"state-{name}", deeper
            case "settings" if name in ("model", "hosts"):
                return name, ""
            case "settings" if name == "limits" and deeper in LIMIT_NAMES:
                return deeper, ""
            case "settings":
                return "settings", rest
            case "script":
                return "model", "The script"
            case "decision" if self.question is not None:
                return {"args": "args", "message": "said"}.get(name, "verdict"), deeper
        return None, ""
