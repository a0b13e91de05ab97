"""What a run makes: the fact that declares an artifact, and what of a result it is."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Literal

from runs.engine.facts import Fact
from runs.engine.values import Json

PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".svg"})
"""Files that are made to be looked at: artifacts of kind `display`."""


class ArtifactDeclared(Fact):
    """A machine keeps an output of a call under a name; each machine gives it a kind of its own."""

    name: str
    artifact_kind: str
    error: str | None = None
    empty: bool = False


def file_kind(name: str) -> Literal["file", "display"]:
    """Return the kind of artifact that a file of this name is."""
    return "display" if PurePosixPath(name).suffix.lower() in PICTURES else "file"


def part_of(value: Json, names: tuple[str, ...], name: str) -> Json:
    """Return what one output gets of a result: of several the member of its name where there is one, else the whole."""
    if len(set(names)) > 1 and isinstance(value, dict) and name in value:
        return value[name]
    return value
