"""Our client for `@modelcontextprotocol/conformance`: lists the tools of an address, and calls each once.

    npx @modelcontextprotocol/conformance client --scenario tools_call \
        --command "python -m tests.adapters.mcp.conformance"

The scenarios `initialize`, `tools_call` and `sse-retry` pass. Node 22 is needed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from runs.adapters.mcp import Approved, ServerSettings, sessions, tool_of
from runs.adapters.tool import Place
from tests.adapters.mcp.serving import Heard


def main(address: str) -> None:
    """Call each tool once, with the simplest arguments that its schema takes."""
    settings = ServerSettings(name="conformance", kind="http", address=address, timeout_s=25)
    with tempfile.TemporaryDirectory() as folder:
        for definition in sessions.look(settings):
            tool = tool_of(settings, Approved(definition, effects="read"), Heard())
            arguments = tool.arguments.model_validate(simplest(definition.input_schema))
            tool.run(arguments, Place(Path(folder), "key", settings.timeout_s))
    sessions.close_all()


def simplest(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that fit a schema of plain properties."""
    values = {"string": "a", "number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}
    return {name: values[one.get("type", "string")] for name, one in schema.get("properties", {}).items()}


if __name__ == "__main__":
    main(sys.argv[-1])
