"""The machines' own parts of the launch form: which fields each has, and what settings they come to, and back.

A field belongs to one machine. Where a script hides the fields of the other machines they are not sent; without
scripts they all are, so that what is filled in for another machine is refused, and defaults are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from django import forms
from django.conf import settings as site

from runs.engine.values import MAX_JSON
from runs.forms.fields import OneOfField, ReadingForm, WholeField, read_json
from runs.forms.rows import Row, RowsField, blank_rows

SLOT = ("id", "type", "description", "format")
PLAN_ROW = ("tool", "args", "thought")

Settings = dict[str, Any]
Fault = Callable[[str, str], None]
"""Says what is wrong with a field."""


class Cleaned(Protocol):
    """What a form has read."""

    def __getitem__(self, name: str) -> Any:
        """The value of a field."""


class MachineFields(ReadingForm):
    """The fields that belong to one machine each."""

    slots = RowsField(SLOT, telling=("id", "description", "format"))
    slots_json = forms.CharField(required=False)
    coordinator = forms.BooleanField(required=False)
    depth = OneOfField(
        required=False,
        choices=[("", "Usual"), ("shallow", "Shallow"), ("medium", "Medium"), ("deep", "Deep")],
    )
    plan_shape = OneOfField(
        required=False,
        choices=[
            ("", "Not set"),
            ("single_step", "One step"),
            ("single_deliverable", "One result"),
            ("multi_step", "Several steps (one more round per slot)"),
        ],
    )
    hints = forms.CharField(required=False)
    budget = forms.CharField(required=False)
    skills = forms.CharField(required=False)

    steps = forms.CharField(required=False)
    planner = forms.BooleanField(required=False)
    plan_gate = forms.BooleanField(required=False)
    exploration_budget = WholeField()
    exploitation_budget = WholeField()
    max_iterations = WholeField()
    max_consecutive_violations = WholeField()

    rows = RowsField(PLAN_ROW)
    rows_json = forms.CharField(required=False)
    follow = OneOfField(
        required=False,
        choices=[("model", "The model, advised by the plan"), ("plan", "The plan")],
    )
    retry_buffer = WholeField()
    replan_failure_threshold = WholeField(1)
    max_replans = WholeField()

    site_defaults = site.MACHINE_DEFAULTS
    """What goes for a number that is left empty, by machine."""

    def shown_slots(self) -> list[Row]:
        """The rows of the contract to show, some of them blank."""
        return blank_rows(self["slots"].value() or [], SLOT, least=3, spare=1)

    def shown_rows(self) -> list[Row]:
        """The rows of the plan to show, some of them blank."""
        return blank_rows(self["rows"].value() or [], PLAN_ROW, least=3, spare=1)


@dataclass(frozen=True)
class Part:
    """A machine's part: its fields, its settings of them, and the fields of its settings."""

    fields: tuple[str, ...]
    settings: tuple[str, ...]
    """Settings that have a field here: they have no place among the others."""
    read: Callable[[Cleaned, Fault], Settings]
    write: Callable[[Settings], dict[str, Any]]
    places: Callable[[Cleaned], dict[str, str]]
    """Where a problem stands, by the path of its setting."""


# --- JSON in a field ----------------------------------------------------------------------------------------------


def _json(data: Cleaned, name: str, kind: type, what: str, fault: Fault) -> Any:
    """A field's JSON, where it has any; None where it has none or is wrong."""
    text = str(data[name] or "").strip()
    if not text:
        return None
    try:
        found = read_json(text)
    except ValueError as wrong:
        fault(name, str(wrong))
        return None
    if not isinstance(found, kind):
        fault(name, f"This must be {what}.")
        return None
    return found


def _rows_or_json(data: Cleaned, name: str, example: str, fault: Fault) -> list[Any] | None:
    pasted = _json(data, f"{name}_json", list, f"a JSON list, such as {example}", fault)
    if pasted is not None and data[name]:
        fault(f"{name}_json", "Fill in the rows above or paste JSON, not both.")
    return pasted


def pretty(value: Any) -> str:
    """JSON for a text field."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _given(data: Cleaned, *names: str) -> Settings:
    return {name: data[name] for name in names if data[name] not in (None, "")}


# --- contract -----------------------------------------------------------------------------------------------------


def _read_contract(data: Cleaned, fault: Fault) -> Settings:
    example = '[{"id": "report", "type": "file", "description": "what it holds"}]'
    slots = _rows_or_json(data, "slots", example, fault)
    if slots is None and data["slots"]:
        slots = [{name: text for name, text in row.items() if text} for row in data["slots"]]
    found: Settings = {"contract": slots} if slots is not None else {}
    if data["coordinator"]:
        found["coordinator"] = "model"
        if slots:
            fault("coordinator", "The model writes the contract: leave the slots empty, or untick this.")
    found |= _given(data, "depth", "plan_shape")
    objects = {
        "hints": 'a JSON object, such as {"report": {"explore": 1, "exploit": 2}}',
        "budget": 'a JSON object, such as {"max_decision_rounds": 10}',
        "skills": 'a JSON object, such as {"style": "Write short sentences."}',
    }
    for name, what in objects.items():
        given = _json(data, name, dict, what, fault)
        if given is not None:
            found[name] = given
    return found


def _write_contract(settings: Settings) -> dict[str, Any]:
    slots = settings.get("contract") or []
    rows = [{column: slot.get(column, "") for column in SLOT} for slot in slots]
    texts = {
        name: pretty(settings[name]) if settings.get(name) else "" for name in ("hints", "budget", "skills")
    }
    return {
        "slots": rows,
        "coordinator": settings.get("coordinator") == "model",
        "depth": settings.get("depth") or "",
        "plan_shape": settings.get("plan_shape") or "",
        **texts,
    }


def _contract_places(data: Cleaned) -> dict[str, str]:
    slots = "slots_json" if data["slots_json"] else "slots"
    own = ("coordinator", "depth", "plan_shape", "hints", "budget", "skills")
    return {"contract": slots} | {name: name for name in own}


# --- checklist ----------------------------------------------------------------------------------------------------

_COUNTS = ("exploration_budget", "exploitation_budget", "max_iterations", "max_consecutive_violations")


def _read_checklist(data: Cleaned, fault: Fault) -> Settings:
    text = str(data["steps"] or "")
    if len(text) > MAX_JSON:
        fault("steps", f"This plan has {len(text):,} characters; the limit is {MAX_JSON:,}.")
        text = ""
    steps = [line.strip() for line in text.splitlines() if line.strip()]
    found: Settings = {"plan": steps} if steps else {}
    if data["planner"]:
        found["planner"] = "model"
        if steps:
            fault("planner", "The model writes the plan: leave the steps empty, or untick this.")
    if not data["plan_gate"]:
        found["plan_gate"] = False
    return found | _given(data, *_COUNTS)


def _write_checklist(settings: Settings) -> dict[str, Any]:
    return {
        "steps": "\n".join(" ".join(step.split()) for step in settings.get("plan") or ()),
        "planner": settings.get("planner") == "model",
        "plan_gate": settings.get("plan_gate", True),
        **{name: settings.get(name) for name in _COUNTS},
    }


def _checklist_places(data: Cleaned) -> dict[str, str]:
    return {"plan": "steps"} | {name: name for name in ("planner", "plan_gate", *_COUNTS)}


# --- planned ------------------------------------------------------------------------------------------------------

_NUMBERS = ("retry_buffer", "replan_failure_threshold", "max_replans")


def _read_planned(data: Cleaned, fault: Fault) -> Settings:
    example = '[{"tool": "calculator", "args": {"expression": "6 * 7"}}]'
    rows = _rows_or_json(data, "rows", example, fault)
    if rows is None and data["rows"]:
        rows = [_plan_row(number, row, fault) for number, row in enumerate(data["rows"], 1)]
    found: Settings = {"plan": rows} if rows is not None else {}
    if data["follow"] == "plan":
        found["follow"] = "plan"
    return found | _given(data, *_NUMBERS)


def _plan_row(number: int, row: Row, fault: Fault) -> Settings:
    found: Settings = {name: row[name] for name in ("tool", "thought") if row[name]}
    if not row["tool"]:
        fault("rows", f"Row {number}, tool: Name the tool that this row calls.")
    if row["args"]:
        try:
            found["args"] = read_json(row["args"])
        except ValueError:
            found["args"] = None
        if not isinstance(found["args"], dict):
            fault("rows", f'Row {number}, args: Arguments are a JSON object, such as {{"name": "a.txt"}}.')
    return found


def _write_planned(settings: Settings) -> dict[str, Any]:
    plan = settings.get("plan")
    rows = [
        {
            "tool": row.get("tool", ""),
            "args": json.dumps(row["args"], ensure_ascii=False) if row.get("args") else "",
            "thought": row.get("thought", ""),
        }
        for row in plan or ()
    ]
    return {
        "rows": rows,
        "rows_json": "[]" if plan == [] else "",
        "follow": settings.get("follow", "model"),
        **{name: settings.get(name) for name in _NUMBERS},
    }


def _planned_places(data: Cleaned) -> dict[str, str]:
    return {"plan": "rows_json" if data["rows_json"] else "rows"} | {
        name: name for name in ("follow", *_NUMBERS)
    }


PARTS: dict[str, Part] = {
    "contract": Part(
        fields=("slots", "slots_json", "coordinator", "depth", "plan_shape", "hints", "budget", "skills"),
        settings=("contract", "coordinator", "depth", "plan_shape", "hints", "budget", "skills"),
        read=_read_contract,
        write=_write_contract,
        places=_contract_places,
    ),
    "checklist": Part(
        fields=("steps", "planner", "plan_gate", *_COUNTS),
        settings=("plan", "planner", "plan_gate", *_COUNTS),
        read=_read_checklist,
        write=_write_checklist,
        places=_checklist_places,
    ),
    "planned": Part(
        fields=("rows", "rows_json", "follow", *_NUMBERS),
        settings=("plan", "follow", *_NUMBERS),
        read=_read_planned,
        write=_write_planned,
        places=_planned_places,
    ),
}
"""The part of each machine that has one here."""


def usual_fields() -> dict[str, Any]:
    """Every machine's fields as an empty form has them."""
    fields: dict[str, Any] = {}
    for part in PARTS.values():
        fields |= part.write({})
    return fields


def foreign(machine: str, data: Mapping[str, Any]) -> dict[str, str]:
    """Fields filled in for another machine, each with that machine: what would be lost without a word."""
    usual = usual_fields()
    return {
        name: other
        for other, part in PARTS.items()
        if other != machine
        for name in part.fields
        if _says_something(data.get(name)) and data[name] != usual.get(name)
    }


def _says_something(value: Any) -> bool:
    """Whether somebody has filled it in; 0 is a number like any other."""
    return value is not None and value is not False and value not in ("", [])
