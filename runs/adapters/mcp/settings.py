"""How to reach an MCP server: read by the web server too, which does without the SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from runs.engine.values import Value

Kind = Literal["stdio", "http"]

PACKAGES = ("mcp", "jsonschema_rs")
"""What requirements-mcp.lock has and requirements.lock has not."""

CONNECT_S = 30.0
"""Seconds in which a server must start and list its tools."""

INHERITED = ("PATH", "LANG", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""The only variables of the worker that a server process gets unasked."""


SECRET = re.compile(r"\$(AGENTSITE_MCP_[A-Z0-9_]+)")
"""How a value names a variable of the site. Servers get no others, as they may hold a secret of somebody else."""


class ServerSettings(Value):
    """How to reach a server. Two servers are the same session only where all of this is the same."""

    # A secret in a variable or header must not be shown by an error about it.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    name: str
    """The namespace of its tools."""
    kind: Kind
    command: tuple[str, ...] = ()
    """Of a stdio server: the program and its arguments."""
    folder: Path = Path()
    """Of a stdio server: its home and working directory."""
    variables: tuple[tuple[str, str], ...] = Field(default=(), repr=False)
    """Of a stdio server: what is added to its environment."""
    address: str = ""
    headers: tuple[tuple[str, str], ...] = Field(default=(), repr=False)
    """Of an HTTP server: what is sent with each request."""
    secrets: tuple[str, ...] = Field(default=(), repr=False)
    """Values that must not come back in results or errors."""
    connect_s: float = CONNECT_S
    timeout_s: float = 60.0
    """Seconds for one call."""
    version: int = 0
    """Rises with each change of the server by an administrator."""
    fault: str = ""
    """Why the server can't be reached from here; empty where nothing is known to hinder it."""

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment of the server process; `own` is the worker's."""
        kept = {name: own[name] for name in INHERITED if name in own}
        return {**kept, "HOME": str(self.folder), **dict(self.variables)}


def is_installed() -> bool:
    """Return whether the packages of MCP servers are installed."""
    return all(find_spec(name) is not None for name in PACKAGES)


def how_to_add() -> str:
    """Return what to do where they are missing."""
    return "Restart the site, which installs them, or run: python3 manage.py add_provider mcp"
