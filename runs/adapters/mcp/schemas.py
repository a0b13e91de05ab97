"""The arguments of a tool, checked against its server's JSON schema: bounded, and without fetching anything."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema_rs

from runs.adapters.tool import ToolError
from runs.engine.values import canonical

MOST_TOLD = 5
"""Faults that the model reads of one call."""


class UnfitArguments(ToolError):
    """Arguments that the server's schema does not accept; nothing was called."""

    ran = False

    def __init__(self, tool: str, faults: list[str]) -> None:
        super().__init__(f"{tool} does not take these arguments: {'; '.join(faults)}.")


class UnfitSchema(ToolError):
    """A schema that can't be read, or refers to one elsewhere."""

    ran = False

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(f"The schema of {tool} can't be used: {why}")


def check(tool: str, schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Refuse arguments that do not fit. Raises `UnfitArguments` or `UnfitSchema`."""
    validator = _validator_of(tool, canonical(schema))
    faults = []
    for fault in validator.iter_errors(arguments):
        where = ".".join(map(str, fault.instance_path)) or "arguments"
        faults.append(f"{where}: {fault.message[:200]}")
        if len(faults) == MOST_TOLD:
            break
    if faults:
        raise UnfitArguments(tool, faults)


def check_schema(tool: str, schema: dict[str, Any]) -> None:
    """Refuse a schema that no call could be checked against."""
    _validator_of(tool, canonical(schema))


@lru_cache(maxsize=256)
def _validator_of(tool: str, text: str) -> Any:
    try:
        return jsonschema_rs.validator_for(text, retriever=_refuse)
    except (ValueError, jsonschema_rs.ReferencingError) as fault:
        why = fault.message if isinstance(fault, jsonschema_rs.ValidationError) else str(fault)
        raise UnfitSchema(tool, why[:300]) from None


def _refuse(address: str) -> Any:
    raise ValueError(f"it refers to {address[:200]}, and nothing is fetched")
