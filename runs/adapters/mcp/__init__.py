"""Tools of MCP servers. Importing this loads neither the SDK nor the schema library: the first call does."""

from runs.adapters.mcp.definitions import Definition, DefinitionChanged
from runs.adapters.mcp.settings import ServerSettings, how_to_add, is_installed
from runs.adapters.mcp.tools import Approved, Notes, tool_of

__all__ = [
    "Approved",
    "Definition",
    "DefinitionChanged",
    "Notes",
    "ServerSettings",
    "how_to_add",
    "is_installed",
    "tool_of",
]
