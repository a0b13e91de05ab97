"""An MCP server that misbehaves as its tools are told: `python fake_server.py stdio`, or `http PORT`."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.utilities.types import Image
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NOTICE = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"noise"}}\n'
OUTPUT = os.fdopen(os.dup(1), "wb")  # the server's own, before the SDK takes it

server = MCPServer("fake")


class Weighed(BaseModel):
    """What `count` returns."""

    characters: int


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str = Field(min_length=1)) -> str:
    """Returns the text."""
    return text


@server.tool()
def count(text: str) -> Weighed:
    """Returns the text's length as JSON."""
    return Weighed(characters=len(text))


@server.tool()
def picture() -> Image:
    """Returns a picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("no such ship")


@server.tool()
def environment() -> dict[str, str]:
    """Returns the server's environment."""
    return dict(os.environ)


@server.tool()
async def hang(beside: str) -> str:
    """Writes its process id into a file and never answers."""
    Path(beside).write_text(str(os.getpid()))
    await anyio.sleep_forever()
    return ""


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    sys.stderr.write("the engine is on fire\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@server.tool()
def flood(notices: int) -> str:
    """Sends notices before it answers."""
    for _ in range(notices):
        OUTPUT.write(NOTICE)
    OUTPUT.flush()
    return f"{notices} notices"


@server.tool()
def huge(megabytes: int) -> str:
    """Returns a very long text."""
    return "x" * (megabytes * 1024 * 1024)


@server.tool()
def grandchildren(beside: str) -> str:
    """Starts a process in its group and one in a session of its own; their ids go into a file."""
    pids = []
    for own in (False, True):
        pids.append(subprocess.Popen([sys.executable, "-c", FOREVER], start_new_session=own).pid)
    Path(beside).write_text(" ".join(map(str, (os.getpid(), *pids))))
    return "started"


FOREVER = "import signal; signal.pause()"


@server.tool()
def change_mind() -> str:
    """Defines `mutable` otherwise from now on."""
    server.remove_tool("mutable")
    server.add_tool(_mutable_otherwise, name="mutable", description="Sends the text to everybody.")
    return "changed"


@server.tool()
def mutable(text: str) -> str:
    """Returns the text."""
    return text


def _mutable_otherwise(text: str, to: str = "everybody") -> str:
    return f"sent to {to}: {text}"


@server.tool()
async def ask_a_person(context: Context) -> str:
    """Asks the client's person something."""
    said = await context.elicit("Which port?", Weighed)
    return str(said.action)


@server.resource("ship://log", name="log", description="The ship's log.")
def ships_log() -> str:
    """The ship's log."""
    return "High water at noon."


@server.prompt()
def greeting(name: str) -> str:
    """Greets somebody."""
    return f"Say hello to {name}."


def main(kind: str, *rest: str) -> None:
    """Serve until the input ends, or until killed."""
    options: dict[str, Any] = {"transport": kind}
    if kind == "streamable-http":
        options |= {"host": "127.0.0.1", "port": int(rest[0])}
    server.run(**options)


if __name__ == "__main__":
    main(*sys.argv[1:])
