"""The tools of MCP servers for runs: rows into tools, and what is learned of a server back into rows."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping

from django.conf import settings
from django.db import DatabaseError

from runs.adapters.mcp import Approved, Definition, ServerSettings, how_to_add, is_installed, tool_of
from runs.adapters.mcp.settings import SECRET
from runs.adapters.tool import Tool, ToolError
from runs.adapters.tools import TOOLS
from runs.models import ON, McpServer, McpTool
from runs.store import halting, mcp

log = logging.getLogger(__name__)


class _Ledger:
    """Keeps what the adapter learns. A database that is away does not change how a call ended."""

    def listed(self, server: str, found: tuple[Definition, ...]) -> None:
        """Keep what the server defines."""
        self._kept(lambda: mcp.keep_found(server, found))

    def failed(self, server: str, why: str, last_words: str) -> None:
        """Keep why it failed."""
        self._kept(lambda: mcp.keep_fault(server, why, last_words))

    def _kept(self, deed: Callable[[], None]) -> None:
        try:
            deed()
        except DatabaseError as fault:
            log.warning("what an MCP server did is not noted (%s)", fault)


LEDGER = _Ledger()


def tools_here() -> Mapping[str, Tool]:
    """Return every tool that a run may be launched with."""
    approved = McpTool.objects.filter(ON).select_related("server").order_by("server__name", "name")
    return {**TOOLS, **{tool.full_name: _tool(tool) for tool in approved}}


def tools_named(names: Iterable[str]) -> tuple[dict[str, Tool], set[str]]:
    """Return the tools of servers that were ever approved under these names, and the names of those that are off."""
    wanted = [name for name in names if "." in name]
    if not wanted:
        return {}, set()
    servers = {name.partition(".")[0] for name in wanted}
    rows = (
        McpTool.objects.filter(server__name__in=servers).exclude(approved_sha256="").select_related("server")
    )
    found = {tool.full_name: tool for tool in rows if tool.full_name in wanted}
    off = {name for name, tool in found.items() if not tool.is_on}
    return {name: _tool(tool) for name, tool in found.items()}, off


def look_at_wanted() -> bool:
    """List the tools of a server that a person requested. Return whether there was one."""
    if halting.halt_now() is not None:
        return False
    server = mcp.take_wanted()
    if server is None:
        return False
    look_at(server)
    return True


def look_at(server: McpServer) -> None:
    """List the tools of a server, and keep them or why that failed."""
    told = settings_of(server)
    if not is_installed():
        LEDGER.failed(server.name, f"The packages for MCP servers are not installed. {how_to_add()}", "")
        return
    if told.fault:
        LEDGER.failed(server.name, told.fault, "")
        return
    from runs.adapters.mcp import sessions

    try:
        found = sessions.look(told)
    except (ToolError, OSError) as fault:  # NotReached, CutOff and TooSlow are OSErrors
        LEDGER.failed(server.name, str(fault), getattr(fault, "last_words", ""))
    else:
        LEDGER.listed(server.name, found)


def settings_of(server: McpServer) -> ServerSettings:
    """Return how to reach a server. What the environment lacks is told in `fault`."""
    missing: list[str] = []
    secrets: list[str] = []

    def value_of(found: re.Match[str]) -> str:
        value = os.environ.get(found[1], "")
        (secrets if value else missing).append(value or found[1])
        return value

    pairs = pairs_of(server.variables, "=") if server.kind == "stdio" else pairs_of(server.headers, ":")
    filled = tuple((name, SECRET.sub(value_of, value)) for name, value in pairs)
    fault = f"The environment of the site lacks {', '.join(missing)}." if missing else ""
    return ServerSettings(
        name=server.name,
        kind="stdio" if server.kind == "stdio" else "http",
        command=tuple(filter(None, map(str.strip, server.command.splitlines()))),
        folder=settings.DATA_DIR / "mcp" / server.name,
        variables=filled if server.kind == "stdio" else (),
        address=server.address,
        headers=filled if server.kind == "http" else (),
        secrets=tuple(secrets),
        timeout_s=server.timeout_s,
        version=server.version,
        fault=fault,
    )


def pairs_of(text: str, sign: str) -> list[tuple[str, str]]:
    """Return the names and values of lines such as `NAME=value`."""
    lines = (line.partition(sign) for line in text.splitlines() if line.strip())
    return [(name.strip(), value.strip()) for name, _, value in lines]


def _tool(tool: McpTool) -> Tool:
    approved = Approved(
        definition=Definition.model_validate_json(tool.approved_json),
        effects=tool.effects,  # type: ignore[arg-type]  # the form takes no other
        repeatable=tool.repeatable,
        reads=tool.reads,  # type: ignore[arg-type]
        outward=tool.outward,
    )
    return tool_of(settings_of(tool.server), approved, LEDGER)
