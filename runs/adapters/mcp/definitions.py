"""A tool as its server defines it, and its hash: an approval holds for exactly this definition."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal

from pydantic import Field

from runs.adapters.tool import ToolError
from runs.engine.values import Value, canonical, depth_of

Method = Literal["tools/call", "resources/list", "resources/read", "prompts/list", "prompts/get"]

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MOST_CHARACTERS = 65_536
MOST_DEEP = 24
MOST_TOOLS = 500


class Definition(Value):
    """A tool as its server describes it."""

    name: str
    method: Method = "tools/call"
    title: str = ""
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=dict)
    output_schema: dict[str, Any] | None = None
    hints: dict[str, Any] = Field(default_factory=dict)
    """The server's own claims about the tool; no decision uses them."""

    @property
    def text(self) -> str:
        """Return the canonical text, which is stored and hashed."""
        return canonical(self.model_dump(mode="json"))

    @property
    def sha256(self) -> str:
        """Return the hash of that text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def fault(self) -> str:
        """Return why the tool can't be used, as a sentence; empty if it can."""
        if not NAME.fullmatch(self.name):
            return "Its name has characters other than letters, digits, _ . and -, or more than 64."
        if len(self.text) > MOST_CHARACTERS:
            return f"Its definition has more than {MOST_CHARACTERS:,} characters."
        if depth_of(self.input_schema) > MOST_DEEP:
            return f"Its schema is nested deeper than {MOST_DEEP} levels."
        if self.input_schema.get("type") != "object":
            return "Its arguments are not an object."
        return ""


class DefinitionChanged(ToolError):
    """A server defines a tool otherwise than an administrator approved it; nothing was called."""

    ran = False

    def __init__(self, tool: str, found: tuple[Definition, ...]) -> None:
        self.found = found
        super().__init__(
            f"The server has changed {tool}. It is off until an administrator approves the change."
        )


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1, "maxLength": 2_000}

RESOURCES = (
    Definition(
        name="list_resources",
        method="resources/list",
        description="Lists the resources of the server: address, name and description of each.",
        input_schema=_object(),
        hints={"readOnlyHint": True},
    ),
    Definition(
        name="read_resource",
        method="resources/read",
        description="Reads a resource of the server.",
        input_schema=_object(("uri",), uri={**_TEXT, "description": "Address of the resource."}),
        hints={"readOnlyHint": True},
    ),
)
"""What a server with resources offers beside its tools."""

PROMPTS = (
    Definition(
        name="list_prompts",
        method="prompts/list",
        description="Lists the prompts of the server with their arguments.",
        input_schema=_object(),
        hints={"readOnlyHint": True},
    ),
    Definition(
        name="get_prompt",
        method="prompts/get",
        description="Returns a prompt of the server, filled with arguments.",
        input_schema=_object(
            ("name",),
            name={**_TEXT, "description": "Name of the prompt."},
            arguments={"type": "object", "additionalProperties": {"type": "string"}},
        ),
        hints={"readOnlyHint": True},
    ),
)
"""What a server with prompts offers beside its tools."""
