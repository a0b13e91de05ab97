"""Fake servers for tests: over stdio, and over HTTP in a process of the test's own."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runs.adapters.mcp import Approved, Definition, ServerSettings, tool_of
from runs.adapters.tool import Tool
from runs.adapters.toolbox import Toolbox
from runs.engine.effects import Failed, ToolCall, ToolReturned
from tests.stack import LONGEST_S, free_port, wait_for

FAKE = Path(__file__).with_name("fake_server.py")


@dataclass
class Heard:
    """What the adapter noted of its servers."""

    found: list[tuple[Definition, ...]] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)

    def listed(self, server: str, found: tuple[Definition, ...]) -> None:
        """Note the definitions."""
        self.found.append(found)

    def failed(self, server: str, why: str, last_words: str) -> None:
        """Note the fault."""
        self.faults.append((why, last_words))


@dataclass
class Bench:
    """One server with a toolbox over its tools, each approved as it is defined now."""

    settings: ServerSettings
    folder: Path
    heard: Heard = field(default_factory=Heard)

    def defined(self) -> dict[str, Definition]:
        """Return what the server defines now."""
        from runs.adapters.mcp import sessions

        return {one.name: one for one in sessions.look(self.settings)}

    def tool(self, name: str, **said: Any) -> Tool:
        """Return a tool, approved."""
        return tool_of(self.settings, Approved(self.defined()[name], **said), self.heard)

    def box(self, *tools: Tool) -> Toolbox:
        """Return a toolbox that may call the tools."""
        named = {tool.name: tool for tool in tools}
        return Toolbox(named, self.folder, None, [], named)

    def call(self, tool: Tool, /, **args: Any) -> ToolReturned | Failed:
        """Call a tool; `MayHaveHappened` as the driver gets it."""
        call = ToolCall(tool=tool.name, args=args, effects=tool.effects, idempotent=tool.idempotent)
        return self.box(tool).call(call, 1, "key-1")

    def value(self, name: str, /, **args: Any) -> Any:
        """Return the value that a tool returns."""
        answer = self.call(self.tool(name), **args)
        assert isinstance(answer, ToolReturned), answer
        return answer.value


def stdio_settings(folder: Path, **changed: Any) -> ServerSettings:
    """Return how to start the fake server."""
    told: dict[str, Any] = {
        "name": "fake",
        "kind": "stdio",
        "command": (sys.executable, str(FAKE), "stdio"),
        "folder": folder / "home",
        "timeout_s": LONGEST_S,
    }
    return ServerSettings(**told | changed)


@contextmanager
def http_settings(port: int = 0, **changed: Any) -> Iterator[ServerSettings]:
    """Start the fake server over HTTP, and end it."""
    port = port or free_port()
    told: dict[str, Any] = {"name": "fake", "kind": "http", "timeout_s": LONGEST_S}
    process = subprocess.Popen(
        [sys.executable, str(FAKE), "streamable-http", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _listens(port))
        yield ServerSettings(**told | {"address": f"http://127.0.0.1:{port}/mcp"} | changed)
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    """Return whether a process runs, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
