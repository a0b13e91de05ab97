"""The tools of this installation, by name. A new tool is one file here, an import and an entry below.

The environment names tools from elsewhere: `AGENTSITE_TOOLS="package.module:NAME"`, several separated by commas. A name
is that of a `Tool`, or of a list or tuple of them; it replaces a tool of the same name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from django.core.exceptions import ImproperlyConfigured

from runs.adapters.tool import Arguments, NotHappened, Place, Result, Tool, ToolError
from runs.adapters.tools import (
    ask_person,
    calculator,
    fetch_url,
    files,
    http_request,
    now,
    python,
    search,
    search_files,
    send_mail,
    sql_query,
)
from runs.modules import CannotLoad, load

_LIST = (
    calculator.TOOL,
    now.TOOL,
    files.READ_FILE,
    files.WRITE_FILE,
    files.LIST_FILES,
    search_files.TOOL,
    search.TOOL,
    sql_query.TOOL,
    fetch_url.TOOL,
    http_request.TOOL,
    send_mail.TOOL,
    ask_person.TOOL,
    python.TOOL,
)

VARIABLE = "AGENTSITE_TOOLS"


class BadToolName(ImproperlyConfigured):
    """The environment names missing tools; nothing starts without them."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(f"{VARIABLE}: {name!r} can't be used: {why}. Write package.module:NAME.")


def tools_named(names: str) -> tuple[Tool, ...]:
    """Return the tools named by the environment."""
    return tuple(tool for name in names.split(",") if name.strip() for tool in _tools_at(name.strip()))


def _tools_at(name: str) -> tuple[Tool, ...]:
    try:
        found = load(name)
    except CannotLoad as fault:
        raise BadToolName(name, str(fault)) from fault
    tools = (found,) if isinstance(found, Tool) else found
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Tool) for tool in tools):
        raise BadToolName(name, f"it is {type(found).__name__}, no Tool and no list of them")
    return tuple(tools)


_OWN = tools_named(os.environ.get(VARIABLE, ""))

TOOLS: Mapping[str, Tool] = MappingProxyType({tool.name: tool for tool in (*_LIST, *_OWN)})

OWN = frozenset(tool.name for tool in _OWN)
"""The names of the site's own tools."""

__all__ = [
    "OWN",
    "TOOLS",
    "Arguments",
    "BadToolName",
    "NotHappened",
    "Place",
    "Result",
    "Tool",
    "ToolError",
    "tools_named",
]
