"""What a script of the tool `python` may use."""

from __future__ import annotations

from pydantic import Field

from runs.engine.values import Value


class ScriptLimits(Value):
    """The limits of one script. Time stands still while it waits for a call of a tool."""

    seconds: float = Field(default=5.0, gt=0, le=30)
    megabytes: int = Field(default=64, ge=1, le=1024)
    depth: int = Field(default=200, ge=10, le=1000)
    """Nested calls of functions."""
    calls: int = Field(default=50, ge=0, le=500)
    """Calls of tools."""
