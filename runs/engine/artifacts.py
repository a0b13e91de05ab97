"""Artifacts: the fact that declares one, and its part of a result."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from runs.engine.facts import Fact
from runs.engine.values import Json

PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg"})
"""Files made to be looked at: artifacts of kind `display`."""


class ArtifactDeclared(Fact):
    """An output of a call, kept under a name; each machine has its own kind of this fact."""

    name: str
    artifact_kind: str
    error: str | None = None
    empty: bool = False


def file_kind(name: str) -> Literal["file", "display"]:
    """Return the artifact kind of a file of this name."""
    return "display" if PurePosixPath(name).suffix.lower() in PICTURES else "file"


def part_of(value: Json, names: tuple[str, ...], name: str) -> Json:
    """Return one output's part of a result: the member of its name, if there are several outputs and it is there; else
    the whole.
    """
    if len(set(names)) > 1 and isinstance(value, dict) and name in value:
        return value[name]
    return value
