"""What administrators do with MCP servers: name them, have a worker look at them, approve their tools."""

from __future__ import annotations

import logging

from runs.actions.common import NotAllowed, name_of
from runs.models import McpServer, McpTool
from runs.rights import Person, may_manage_servers
from runs.store import mcp

log = logging.getLogger(__name__)


def save_server(server: McpServer, *, by: Person) -> None:
    """Keep a server and look at it. Its tools stay as they were approved."""
    check_servers(by)
    mcp.save_server(server)
    log.warning("MCP server %s was saved by %s", server.name, name_of(by))
    mcp.want_look(server)


def look_for_tools(server: McpServer, *, by: Person) -> None:
    """Have a worker list the server's tools."""
    check_servers(by)
    mcp.want_look(server)


def delete_server(server: McpServer, *, by: Person) -> None:
    """Forget a server with its tools; runs that name them may not call them any more."""
    check_servers(by)
    server.delete()
    log.warning("MCP server %s was deleted by %s", server.name, name_of(by))


def approve_tool(tool: McpTool, sha256: str, *, by: Person) -> None:
    """Let runs call the tool as it was shown. Raises `DefinitionMoved` where it has changed since."""
    check_servers(by)
    mcp.approve(tool, sha256, name_of(by))
    log.warning("MCP tool %s was approved by %s", tool.full_name, name_of(by))


def switch_tool_off(tool: McpTool, *, by: Person) -> None:
    """Have no run call the tool until it is approved again."""
    check_servers(by)
    mcp.switch_off(tool)
    log.warning("MCP tool %s was switched off by %s", tool.full_name, name_of(by))


def check_servers(person: Person) -> None:
    """Raise `NotAllowed` if the person may not manage servers."""
    if not may_manage_servers(person):
        raise NotAllowed("You may not manage MCP servers. An administrator can.")
