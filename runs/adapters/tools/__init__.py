"""The tools of this installation, by name. A new tool is one file here and one line in the list below."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError
from runs.adapters.tools import calculator, fetch_url, files, now

_LIST = (
    calculator.TOOL,
    now.TOOL,
    files.READ_FILE,
    files.WRITE_FILE,
    files.LIST_FILES,
    fetch_url.TOOL,
)

TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in _LIST})

__all__ = ["TOOLS", "Arguments", "Place", "Result", "Tool", "ToolError"]
