"""The machines' own parts of the launch form: their declarations as fields, settings, and drawings.

A field belongs to one machine. If a script hides the fields of the other machines they are not sent. Without scripts
they all are, so input for another machine is refused, and defaults are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from django import forms
from django.conf import settings as site

from runs.engine.presentation import Check, Choice, Column, Control, Form, Json, Lines, Rows, Whole
from runs.engine.values import MAX_JSON
from runs.forms.fields import JsonField, OneOfField, ReadingForm, WholeField, read_json
from runs.forms.rows import Row, RowsField, blank_rows
from runs.machines import CATALOGUE

TAKEN = ("goal", "machine", "model", "script", "tools", "hosts", "any_host", "cost_usd", "tokens", "active_seconds",
         "on_limit", "on_clarify", "asks", "interrupt_every", "rules", "cache_reads", "more")  # fmt: skip
"""The fields of every launch."""

Settings = dict[str, Any]
Fault = Callable[[str, str], None]
"""Notes the fault of a field."""


class Cleaned(Protocol):
    """A form's values, as read."""

    def __getitem__(self, name: str) -> Any:
        """Return the value of a field."""


def form_of(machine: str) -> Form | None:
    """Return a machine's part of the form; None if it has none."""
    found = CATALOGUE.get(machine)
    return found.presentation.form if found else None


def controls_of(machine: str) -> list[Control]:
    """Return the fields declared by a machine."""
    return [control for other, control in every_control() if other == machine]


def every_control() -> Iterator[tuple[str, Control]]:
    """Yield the fields of all machines, each with its machine; a taken name gets the machine's before it."""
    taken = set(TAKEN)
    for machine in CATALOGUE:
        controls = _declared(machine)
        names = {one.name: f"{machine}-{one.name}" if one.name in taken else one.name for one in controls}
        taken |= set(names.values())
        for control in controls:
            yield machine, _named(control, names)


def _declared(machine: str) -> list[Control]:
    """Return a machine's controls as it declares them; the fields for pasted rows come last."""
    form = form_of(machine)
    own = form.controls if form else ()
    return [*own, *(control.pasted for control in own if isinstance(control, Rows))]


def _named(control: Control, names: Mapping[str, str]) -> Control:
    named = replace(control, name=names[control.name], setting=control.of)
    if isinstance(named, Rows):
        pasted = replace(named.pasted, name=names[named.pasted.name], setting=named.pasted.of)
        return replace(named, pasted=pasted)
    return named


def rows_of_fields() -> dict[str, tuple[str, ...]]:
    """Return the fields of rows, with their columns."""
    found = [control for _, control in every_control() if isinstance(control, Rows)]
    return {control.name: _names(control.columns) for control in found}


def _names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)


def _field(control: Control) -> forms.Field:
    match control:
        case Whole(least=least):
            field: forms.Field = WholeField(least)
        case Choice(choices=choices):
            field = OneOfField(required=False, choices=list(choices))
        case Check():
            field = forms.BooleanField(required=False)
        case Json(kind=kind, must_be=what):
            field = JsonField(kind, what)
        case Rows(columns=columns, telling=telling):
            field = RowsField(_names(columns), telling=telling or None)
        case _:
            field = forms.CharField(required=False)
    field.label = control.label
    return field


class MachineFields(ReadingForm):
    """The fields that belong to one machine each."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = {control.name: _field(control) for _, control in every_control()}
        self.fields = {**self.fields, **own}

    def parts(self, faulty: Mapping[str, set[tuple[int, str]]]) -> list[PartView]:
        """Return the machines' parts as the page draws them; `faulty` are the wrong cells."""
        parts = [(machine, form_of(machine)) for machine in CATALOGUE]
        return [
            PartView(
                machine, form, [self._view(machine, control, faulty) for control in controls_of(machine)]
            )
            for machine, form in parts
            if form is not None
        ]

    def _view(
        self, machine: str, control: Control, faulty: Mapping[str, set[tuple[int, str]]]
    ) -> ControlView:
        rows: list[dict[str, Any]] = []
        if isinstance(control, Rows):
            shown = blank_rows(self[control.name].value() or [], _names(control.columns), least=3, spare=1)
            rows = [_row(number, row, control, faulty) for number, row in enumerate(shown, 1)]
        usual = site.MACHINE_DEFAULTS.get(machine, {}).get(control.of, control.placeholder)
        return ControlView(control, type(control).__name__.lower(), self[control.name], str(usual), rows)


def _row(number: int, row: Row, control: Rows, faulty: Mapping[str, set[tuple[int, str]]]) -> dict[str, Any]:
    """Return a row to draw: each cell with its column, and whether it is wrong."""
    wrong = {column for found, column in faulty[control.name] if found == number}
    cells = [
        (f"{control.name}-{number - 1}-{column.name}", column, row[column.name], column.name in wrong)
        for column in control.columns
    ]
    return {"number": number, "cells": cells}


@dataclass(frozen=True)
class ControlView:
    """A field as the page draws it."""

    control: Control
    kind: str
    field: forms.BoundField
    placeholder: str
    rows: list[dict[str, Any]]

    @property
    def small(self) -> bool:
        """Return True if several are shown beside each other."""
        return isinstance(self.control, Whole | Choice)


@dataclass(frozen=True)
class PartView:
    """A machine's part as the page draws it."""

    machine: str
    form: Form
    views: list[ControlView]

    @property
    def large(self) -> list[ControlView]:
        """Return the fields with a line of their own."""
        return [view for view in self.views if not view.small and not view.control.place]

    @property
    def small(self) -> list[ControlView]:
        """Return the fields shown beside each other."""
        return [view for view in self.views if view.small and not view.control.place]

    @property
    def folded(self) -> list[ControlView]:
        """Return the fields in the fold."""
        return [view for view in self.views if view.control.place == "fold"]

    @property
    def more(self) -> list[ControlView]:
        """Return the fields among the other settings."""
        return [view for view in self.views if view.control.place == "more"]

    @property
    def unfolded(self) -> bool:
        """Return True if something in the fold is filled in, or wrong."""
        return any(view.field.value() or view.field.errors for view in self.folded)


# --- settings of fields, and back ---------------------------------------------------------------------------------


def read(machine: str, data: Cleaned, fault: Fault) -> Settings:
    """Return the settings in a machine's fields; empty fields stay defaults."""
    found: Settings = {}
    controls = controls_of(machine)
    pasted = {control.pasted.name for control in controls if isinstance(control, Rows)}
    for control in controls:
        value = None if control.name in pasted else _read(control, data, fault)
        if value is not None:
            found[control.of] = value
    for control in controls:
        if isinstance(control, Check) and data[control.name] and found.get(control.instead_of):
            fault(control.name, control.conflict)
    return found


def _read(control: Control, data: Cleaned, fault: Fault) -> Any:
    value = data[control.name]
    match control:
        case Choice(choices=choices):
            return value if value and value != choices[0][0] else None
        case Check(on=on, off=off):
            return on if value else off
        case Lines():
            return _lines(control, str(value or ""), fault) or None
        case Rows():
            return _rows(control, data, fault)
    return value


def _lines(control: Lines, text: str, fault: Fault) -> list[str]:
    if len(text) > MAX_JSON:
        fault(control.name, f"This {control.what} has {len(text):,} characters; the limit is {MAX_JSON:,}.")
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]


def _rows(control: Rows, data: Cleaned, fault: Fault) -> list[Any] | None:
    pasted: list[Any] | None = data[control.pasted.name]
    rows = data[control.name]
    if pasted is not None and rows:
        fault(control.pasted.name, "Fill in the rows above or paste JSON, not both.")
    if pasted is not None or not rows:
        return pasted
    return [_object(number, row, control, fault) for number, row in enumerate(rows, 1)]


def _object(number: int, row: Row, control: Rows, fault: Fault) -> Settings:
    found: Settings = {}
    for column in control.columns:
        text = row[column.name]
        place = f"Row {number}, {column.name}: "
        if column.required and not text:
            fault(control.name, place + column.required)
        if text:
            found[column.name] = _object_in(text) if column.json else text
        if text and column.json and not isinstance(found[column.name], dict):
            fault(control.name, place + column.json)
    return found


def _object_in(text: str) -> Any:
    try:
        return read_json(text)
    except ValueError:
        return None


def pretty(value: Any) -> str:
    """Return JSON for a text field."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def write(machine: str, settings: Settings) -> dict[str, Any]:
    """Return a machine's fields for these settings."""
    fields: dict[str, Any] = {}
    for control in controls_of(machine):
        fields[control.name] = _written(control, settings)
    for control in controls_of(machine):
        if isinstance(control, Rows):
            fields[control.pasted.name] = "[]" if control.empty and settings.get(control.of) == [] else ""
    return fields


def _written(control: Control, settings: Settings) -> Any:
    value = settings.get(control.of)
    match control:
        case Choice(choices=choices):
            return value or choices[0][0]
        case Check(on=on, off=off):
            return value != off if on is None else value == on
        case Lines():
            return "\n".join(" ".join(line.split()) for line in value or ())
        case Json():
            return pretty(value) if value else ""
        case Rows(columns=columns):
            return [{column.name: _cell(column, row) for column in columns} for row in value or ()]
    return value


def _cell(column: Column, row: Settings) -> Any:
    value = row.get(column.name)
    if column.json:
        return json.dumps(value, ensure_ascii=False) if value else ""
    return value or ""


def places(machine: str, data: Cleaned) -> dict[str, str]:
    """Return the place of a problem, by the name of its setting."""
    found: dict[str, str] = {}
    for control in controls_of(machine):
        found.setdefault(control.of, control.name)
        if isinstance(control, Rows) and data[control.pasted.name] is not None:
            found[control.of] = control.pasted.name
    return found


def usual_fields() -> dict[str, Any]:
    """Return every machine's fields as an empty form has them."""
    fields: dict[str, Any] = {}
    for machine in CATALOGUE:
        fields = write(machine, {}) | fields
    return fields


def foreign(machine: str, data: Mapping[str, Any]) -> dict[str, str]:
    """Return fields filled in for another machine, each with its sentence: they would be lost silently."""
    own = {control.name for control in controls_of(machine)}
    return {
        control.name: f"The machine {machine} does not have this setting. Leave it empty."
        if control.place == "more"
        else f"This is a setting of {other}, but {machine} is chosen. Leave it empty."
        for other, control in every_control()
        if control.name not in own and _says_something(control, data.get(control.name))
    }


def _says_something(control: Control, value: Any) -> bool:
    """Return True if a person has filled it in; 0 is a number like any other."""
    match control:
        case Check(ticked=ticked):
            return bool(value) and not ticked
        case Choice(choices=choices):
            return value not in ("", None, choices[0][0])
        case Whole() | Json():
            return value is not None
    return bool(value)
