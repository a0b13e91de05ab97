"""The launch of a run, as a form: input is kept, and errors are shown beside their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from django import forms

from runs import driver
from runs.actions import Problem
from runs.engine.settings import LIMIT_NAMES, MOST_ENTRIES
from runs.forms import machines
from runs.forms.fields import (
    HostFields,
    JsonField,
    Launch,
    LimitFields,
    OneOfField,
    ReadingForm,
    WholeField,
    hosts_initial,
)
from runs.forms.machines import MachineFields, PartView, pretty, usual_fields
from runs.machines import CATALOGUE
from runs.models import ModelProfile, Run
from runs.reading.model_profiles import first_choice

SCRIPT = "script"
"""The model field's value for a script that is pasted into the form."""

ASKS = {
    "writes": (
        "Tools that write, send or execute",
        "Tools that only read run without approval. Default.",
    ),
    "all": ("Every tool call", "Tools that only read need approval too."),
    "nothing": ("Nothing", "Tools run without approval."),
}

ASK_RULES: dict[str, list[dict[str, Any]]] = {
    "writes": [],
    "all": [{"when": {"tool": "*"}, "do": "ask", "name": "every tool call asks"}],
    "nothing": [{"when": {"tool": "*"}, "do": "allow", "name": "every tool call is allowed"}],
}

PLACES = {
    "goal": "goal",
    "machine": "machine",
    "script": "script",
    "settings.model": "model",
    "settings.tools": "tools",
    "settings.hosts": "hosts",
    "settings.limits.cost_usd": "cost_usd",
    "settings.limits.tokens": "tokens",
    "settings.limits.active_seconds": "active_seconds",
    "settings.on_limit": "on_limit",
    "settings.on_clarify": "on_clarify",
    "settings.interrupt_every": "interrupt_every",
    "settings.rules": "rules",
    "settings.cache_reads": "cache_reads",
}
"""The place of a launch's problem in the form, by its path; a longer path falls to its beginning."""

COMMON = frozenset(
    {"model", "tools", "hosts", "limits", "on_limit", "on_clarify", "interrupt_every", "rules", "cache_reads"}
)

ROWS = machines.rows_of_fields()
"""Fields of rows, with their columns: a problem names the row."""

MANIFOLD = (*ROWS, "more")
"""Fields with many entries: an error in one says nothing about the others."""


def fields_of(machine: str) -> frozenset[str]:
    """Return the settings that have a field of their own if `machine` is chosen."""
    return COMMON | {control.of for control in machines.controls_of(machine)}


class LaunchForm(MachineFields, HostFields, LimitFields):
    """The terms of a new run."""

    conflict = False
    """True if the form's subject has changed since."""

    field_order = (
        "goal",
        "machine",
        *(control.name for _, control in machines.every_control() if control.place != "more"),
        "model",
        "script",
        "tools",
        "hosts",
        "any_host",
    )
    LABELS: ClassVar[dict[str, str]] = ReadingForm.LABELS | {
        "on_limit": "At a limit",
        "on_clarify": "When the model asks a question",
        "asks": "Require approval for",
        "interrupt_every": "Check-in every … turns",
        "more": "Other settings",
    }
    goal = forms.CharField(error_messages={"required": "Enter a goal."})
    machine = OneOfField(error_messages={"required": "Choose a machine."})
    model = forms.CharField(required=False)
    script = forms.CharField(required=False, strip=False)
    tools = forms.MultipleChoiceField(required=False)
    on_limit = OneOfField(choices=[("ask", "Ask a person"), ("stop", "Stop the run")], required=False)
    on_clarify = OneOfField(choices=[("ask", "Ask a person"), ("exit", "End the run")], required=False)
    asks = OneOfField(choices=[(name, words[0]) for name, words in ASKS.items()], required=False)
    interrupt_every = WholeField(1)
    rules = JsonField(list, 'a JSON list of rules, such as [{"when": {"tool": "write_*"}, "do": "ask"}]')
    cache_reads = forms.BooleanField(required=False)
    more = JsonField(dict, 'one JSON object, such as {"context": {"limit_tokens": 4096}}')
    """Settings without a field of their own, as JSON: "launch one like this" fills it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.order_fields(self.field_order)
        self.models = list(ModelProfile.objects.filter(enabled=True))
        self.fields["machine"].choices = [(name, name) for name in CATALOGUE]  # type: ignore[attr-defined]
        self.tools_here = driver.tools_here()
        offered = dict.fromkeys([*self.tools_here, *self._wanted_tools()])
        self.fields["tools"].choices = [(name, name) for name in offered]  # type: ignore[attr-defined]

    def _wanted_tools(self) -> list[str]:
        """Return the wanted tools, unchecked: the launch checks them, and a script may bring its own."""
        if not self.is_bound:
            return list(self.initial.get("tools") or ())
        getlist = getattr(self.data, "getlist", None)
        return list(getlist("tools"))[:MOST_ENTRIES] if getlist else []

    def clean_goal(self) -> str:
        """Return the goal with plain line breaks; browsers send their own."""
        return str(self.cleaned_data["goal"]).replace("\r\n", "\n")

    def clean(self) -> dict[str, Any]:
        """Run all checks that don't need the launch itself, whatever could not be read."""
        super().clean()
        data = self.read
        if data["model"] == SCRIPT and not data["script"].strip():
            self.fault("script", "Paste a script, or use the demonstration.")
        if not data["model"]:
            self.fault("model", "Choose a model, or play a script.")
        self.more_settings = self._more_settings(data)
        if data["machine"]:
            self._refuse_foreign_settings(data)
        self.own_settings = machines.read(data["machine"], data, self.fault)
        return self.cleaned_data

    def _more_settings(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the other settings, without those that have a field of their own."""
        more = data["more"] or {}
        doubled = sorted(fields_of(data["machine"]) & set(more))
        if doubled:
            self.fault("more", f"{', '.join(doubled)}: use the field above.")
        return {name: value for name, value in more.items() if name not in doubled}

    def _refuse_foreign_settings(self, data: Mapping[str, Any]) -> None:
        """Refuse settings unknown to the machine, which would be lost silently."""
        machine = data["machine"]
        for name, sentence in machines.foreign(machine, data).items():
            self.fault(name, sentence)

    def launch(self) -> Launch:
        """Return the requested launch, as far as it could be read."""
        data = self.read
        return {
            "machine": data["machine"],
            "goal": data["goal"],
            "settings": self.settings(),
            "script": self.script_given,
        }

    @property
    def script_given(self) -> str | None:
        """Return the script's text, if one is to be played."""
        return self.read["script"] if self.read["model"] == SCRIPT else None

    def settings(self) -> dict[str, Any]:
        """Return the launch settings: empty fields stay defaults."""
        data = self.read
        settings = dict(self.more_settings)
        if data["model"] != SCRIPT:
            settings["model"] = data["model"]
        settings["tools"] = data["tools"]
        if hosts := self.wanted_hosts():
            settings["hosts"] = hosts
        limits = {name: data[name] for name in LIMIT_NAMES if data[name] is not None}
        if limits:
            settings["limits"] = limits
        if data["on_limit"] == "stop":
            settings["on_limit"] = "stop"
        if data["on_clarify"] == "exit":
            settings["on_clarify"] = "exit"
        rules = [*(data["rules"] or ()), *ASK_RULES[data["asks"] or "writes"]]
        if rules:
            settings["rules"] = rules
        if data["interrupt_every"]:
            settings["interrupt_every"] = data["interrupt_every"]
        if data["cache_reads"]:
            settings["cache_reads"] = True
        return settings | self.own_settings

    def take(self, problems: Iterable[Problem]) -> None:
        """Put the launch's problems beside the fields; those without a field go to the top."""
        places = self._places()
        standing = set(self.errors) - set(MANIFOLD)
        cells = self.faulty_cells()
        for problem in problems:
            place, rest = _place_of(problem.path, places)
            if place == "model" and self.read["model"] == SCRIPT:
                continue  # no model is wanted: the script is at fault
            said = _said(place, rest, problem)
            named = _cell_of(said) if place in ROWS else []
            if place in standing or (place in ROWS and cells[place].intersection(named)):
                continue  # already known to be wrong
            self.add_error(place, said)
            if place in ROWS:
                cells[place].update(named)

    def _places(self) -> dict[str, str]:
        own = machines.places(self.read["machine"], self.read)
        return PLACES | {f"settings.{path}": place for path, place in own.items()}

    def more_is_open(self, parts: Iterable[PartView]) -> bool:
        """Return True if one of the other settings is wrong, or is non-empty JSON."""
        views = [view for part in parts for view in part.more]
        told = any(view.field.value() for view in views if view.kind == "json")
        return (
            told
            or bool(self["more"].value())
            or any(view.field.errors for view in views)
            or "more" in self.errors
        )

    def place_of(self, name: str) -> str:
        """Return the id of a field's first control; of rows the first faulty cell, else the first of all."""
        if name not in ROWS:
            return name
        first = ROWS[name][0]
        row, column = min(self.faulty_cells()[name], default=(1, first))
        return f"{name}-{row - 1}-{column if column in ROWS[name] else first}"

    def faulty_cells(self) -> dict[str, set[tuple[int, str]]]:
        """Return, for each field of rows, the cells named in its errors, by the row's number and the column."""
        return {
            name: {cell for error in self.errors.get(name, ()) for cell in _cell_of(str(error))}
            for name in ROWS
        }


def _place_of(path: str, places: Mapping[str, str]) -> tuple[str | None, list[str]]:
    """Return the field of a problem, and the rest of its path."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        found = places.get(".".join(parts[:length]))
        if found:
            return found, parts[length:]
    return ("more" if path.startswith("settings.") else None), parts


def _said(place: str | None, rest: list[str], problem: Problem) -> str:
    """Return the sentence beside the field, with the place if the field has many entries."""
    if place in ROWS:
        if rest and rest[0].isdigit():
            return f"Row {int(rest[0]) + 1}, {'.'.join(rest[1:]) or 'all of it'}: {problem.message}"
        return problem.message
    deep = place is None or place in ("rules", "tools", "more") or bool(rest)
    return f"{problem.path.removeprefix('settings.')}: {problem.message}" if deep else problem.message


def _cell_of(error: str) -> list[tuple[int, str]]:
    found = CELL.match(error)
    return [(int(found[1]), found[2])] if found else []


CELL = re.compile(r"Row ([0-9]+), ([a-z]+)")


def initial_launch() -> dict[str, Any]:
    """Return an empty form."""
    usual = (name for name, machine in CATALOGUE.items() if machine.presentation.usual)
    machine = next(usual, next(iter(CATALOGUE)))
    return {"machine": machine, "model": first_choice() or SCRIPT, "asks": "writes", "on_limit": "ask",
            "on_clarify": "ask", "tools": [], "cost_usd": 0.5} | usual_fields()  # fmt: skip


def launch_like(run: Run) -> dict[str, Any]:
    """Return the form that launches the same again."""
    settings = run.settings
    rules = list(settings.get("rules", []))
    asks = "writes"
    for name in ("all", "nothing"):
        if rules and rules[-1:] == ASK_RULES[name]:
            asks, rules = name, rules[:-1]
    known = fields_of(run.machine)
    more = {name: value for name, value in settings.items() if name not in known}
    return {
        "goal": run.goal,
        "machine": run.machine,
        "model": SCRIPT if run.script_json and not run.model else settings.get("model", run.model),
        "script": pretty(json.loads(run.script_json)) if run.script_json and not run.model else "",
        "tools": settings.get("tools", []),
        **hosts_initial(settings),
        **settings.get("limits", {}),
        "on_limit": settings.get("on_limit", "ask"),
        "on_clarify": settings.get("on_clarify", "ask"),
        "asks": asks,
        "interrupt_every": settings.get("interrupt_every"),
        "rules": pretty(rules) if rules else "",
        "cache_reads": settings.get("cache_reads", False),
        "more": pretty(more) if more else "",
        **usual_fields(),
        **machines.write(run.machine, settings),
    }
