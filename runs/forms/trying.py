"""The form that tries a tool out: fields from its schema, and each fault beside the field that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runs.actions import Problem
from runs.adapters.tool import Tool
from runs.forms.fields import Fault
from runs.reading.arguments import ArgumentField, fields_of, read_arguments


@dataclass(frozen=True)
class TrialForm:
    """The arguments of a call, as a page shows them."""

    fields: tuple[ArgumentField, ...]
    args: dict[str, Any]
    non_field_errors: tuple[str, ...] = ()
    fresh: bool = True
    """True: there is no proposed call that a change would be shown against."""

    @property
    def errors(self) -> dict[str, str]:
        """Return the faults by argument, and those of the call as a whole under an empty name."""
        found = {field.name: field.error for field in self.fields if field.error}
        return found | ({"": " ".join(self.non_field_errors)} if self.non_field_errors else {})

    @property
    def faults(self) -> list[Fault]:
        """Return the faulty fields, with the ids of their controls."""
        return [Fault(field.label, f"arg-{at}") for at, field in enumerate(self.fields, 1) if field.error]

    def with_problems(self, problems: Iterable[Problem]) -> TrialForm:
        """Return the form with the problems at their fields; one that names no field is told above them."""
        told: dict[str, str] = {}
        for problem in problems:
            told.setdefault(problem.path, problem.message)
        fields = tuple(replace(one, error=one.error or told.get(one.name, "")) for one in self.fields)
        rest = set(told) - {one.name for one in fields}
        return replace(
            self, fields=fields, non_field_errors=tuple(told[path] for path in told if path in rest)
        )


def empty_trial(tool: Tool) -> TrialForm:
    """Return the form for a call without arguments."""
    return TrialForm(fields_of(tool.spec().parameters, {}), {})


def read_trial(tool: Tool, data: Mapping[str, str]) -> TrialForm:
    """Return the form as it was filled in."""
    read = read_arguments(tool.spec().parameters, {}, data)
    return TrialForm(read.fields, read.args)
