"""Shared parts of prompts: the tools in words, the shape of a reply, worked examples for a weak model.

A weak model (`terms.guided`) is guided by worked examples and by schemas that fit the state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from runs.engine.tools import ToolSpec
from runs.engine.values import canonical


def tools_text(tools: list[ToolSpec]) -> str:
    """Return the tools, a line each, with the schema of their arguments."""
    if not tools:
        return "(none)"
    return "\n".join(
        f"- {spec.name}: {spec.description} Arguments: {canonical(spec.shown)}" for spec in tools
    )


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly these members."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class Way(NamedTuple):
    """One worked example: a goal, its second half if files are written, and the way to it."""

    goal: str
    then: str
    expression: str
    result: str
    file: str


WORKED: tuple[Way, ...] = (
    Way("What is 12 * 4?", "Save it as a.txt.", "12 * 4", "48", "a.txt"),
    Way("Add 7 and 5.", "Write the sum to sum.txt.", "7 + 5", "12", "sum.txt"),
    Way("Divide 90 by 9.", "Save the result in part.txt.", "90 / 9", "10", "part.txt"),
    Way("What is 50 - 8?", "Write it to left.txt.", "50 - 8", "42", "left.txt"),
    Way("Subtract 4 from 20.", "Save it as less.txt.", "20 - 4", "16", "less.txt"),
    Way("Multiply 3 by 31.", "Write the answer to b.txt.", "3 * 31", "93", "b.txt"),
    Way("Calculate 300 + 21.", "Save it as total.txt.", "300 + 21", "321", "total.txt"),
    Way("What is 25 plus 50?", "Save it to c.txt.", "25 + 50", "75", "c.txt"),
)

NUMBER = r"-?[0-9]{1,9}(\.[0-9]{1,4})?"
"""A number as a weak model may write it."""

SHORT = r"[^\"\\\n]{1,80}"
"""A short text, likewise."""

LED: dict[str, dict[str, Any]] = {
    "calculator": {"expression": {"type": "string", "pattern": r"^[0-9.]{1,9} [-+*/] [0-9.]{1,9}$"}},
    "write_file": {
        "name": {"type": "string", "pattern": r"^[a-z_]{1,20}\.txt$"},
        "content": {"type": "string", "pattern": rf"^{NUMBER}$"},
    },
}
"""Arguments of the tools in the worked examples, narrower than the tools' own schemas."""
