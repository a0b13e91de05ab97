"""MCP servers as administrators see them: what state each is in, what a tool is, and what changed in its definition."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runs.adapters.mcp import Definition
from runs.models import McpServer, McpTool
from runs.reading import words
from runs.reading.compactions import DiffPiece, word_diff
from runs.reading.hidden_text import visible
from runs.reading.words import Word

HINTS = {
    "readOnlyHint": ("only reads", "may change something"),
    "destructiveHint": ("may destroy", "only adds"),
    "idempotentHint": ("can be repeated", "acts each time"),
    "openWorldHint": ("reaches others", "keeps to itself"),
}
"""What a server's hints say, where true and where false."""

STATES = {
    "on": Word("on", "check", "good"),
    "new": Word("not approved", "hand", "ask"),
    "changed": Word("changed, off", "alert", "ask"),
    "gone": Word("no longer there", "cross", "quiet"),
    "off": Word("off", "stop", "quiet"),
    "unusable": Word("can't be used", "alert", "bad"),
}


@dataclass(frozen=True)
class ToolView:
    """One tool of a server."""

    tool: McpTool
    state: str
    title: str
    description: str
    schema: str
    hints: tuple[str, ...]
    fault: str
    """Why it can't be used; empty if it can."""
    difference: tuple[DiffPiece, ...]
    """The server's changes since the approval; empty if there are none."""

    @property
    def word(self) -> Word:
        """Return its state as a word."""
        return STATES[self.state]

    @property
    def deed(self) -> str:
        """Return the label of its button."""
        return {"changed": "Approve the change", "on": "Save"}.get(self.state, "Approve")

    @property
    def effects(self) -> Word:
        """Return its side effects, as approved or proposed."""
        return words.EFFECTS[self.tool.effects]


@dataclass(frozen=True)
class ServerView:
    """One server, with how many of its tools are in which state."""

    server: McpServer
    word: Word
    on: int
    waiting: int
    """Tools whose present definition is not approved."""
    total: int


def server_views() -> list[ServerView]:
    """Return all servers."""
    return [server_view(one, list(one.tools.all())) for one in McpServer.objects.prefetch_related("tools")]


def server_view(server: McpServer, tools: Iterable[McpTool]) -> ServerView:
    """Return one server."""
    states = [state_of(tool) for tool in tools]
    waiting = sum(state in ("new", "changed") for state in states)
    return ServerView(server, _word(server), states.count("on"), waiting, len(states))


def tool_views(server: McpServer) -> list[ToolView]:
    """Return the tools of a server; those that wait for an approval first."""
    order = ["changed", "new", "on", "off", "unusable", "gone"]
    views = [tool_view(tool) for tool in server.tools.select_related("server")]
    return sorted(views, key=lambda view: (order.index(view.state), view.tool.name))


def tool_view(tool: McpTool) -> ToolView:
    """Return one tool as it is defined now, or was."""
    definition = Definition.model_validate_json(tool.found_json or tool.approved_json)
    changed = state_of(tool) == "changed"
    return ToolView(
        tool=tool,
        state=state_of(tool),
        title=visible(definition.title),
        description=visible(definition.description),
        schema=visible(_pretty(definition.input_schema)),
        hints=tuple(_hint(name, definition.hints[name]) for name in HINTS if name in definition.hints),
        fault=definition.fault,
        difference=tuple(_difference(tool)) if changed else (),
    )


def state_of(tool: McpTool) -> str:
    """Return a key of `STATES`. Whether the server is on is told once, at the server."""
    if not tool.found_sha256:
        return "gone"
    if tool.found_sha256 != tool.approved_sha256:
        if Definition.model_validate_json(tool.found_json).fault:
            return "unusable"
        return "changed" if tool.approved_sha256 else "new"
    return "on" if tool.enabled else "off"


def _word(server: McpServer) -> Word:
    if not server.enabled:
        return STATES["off"]
    if server.look_wanted_at or server.looking_since:
        return Word("looking for tools", "clock", "busy")
    if server.fault:
        return Word("can't be reached", "alert", "bad")
    if server.looked_at is None:
        return Word("not looked at", "dot", "quiet")
    return Word("reached", "check", "good")


def _difference(tool: McpTool) -> list[DiffPiece]:
    before, after = (_pretty(json.loads(text)) for text in (tool.approved_json, tool.found_json))
    return word_diff(before, after)


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def _hint(name: str, value: Any) -> str:
    yes, no = HINTS[name]
    return yes if value is True else no
