"""Packages that the base lacks: installed by hash if a model profile or an MCP server needs them."""

import sys
from collections.abc import Iterable
from pathlib import Path

from agentsite import bootstrap
from agentsite.environment import ROOT
from runs.adapters import mcp
from runs.adapters.models import EXTRAS, missing_package


class NotHere(Exception):
    """This environment is not ours to change."""

    def __init__(self, lock: Path) -> None:
        super().__init__(
            f"agentsite installs packages only into its own .venv. Install them yourself: "
            f"{sys.executable} -m pip install --require-hashes --no-deps -r {lock.name}"
        )


MCP = "mcp"
"""What MCP servers need, beside the kinds of models."""


def lock_of(kind: str) -> Path:
    """Return the lock of a kind of model, or of MCP."""
    return ROOT / f"requirements-{kind}.lock"


def add(kind: str) -> None:
    """Install what a kind of model, or MCP, needs; raises `NotHere` or `InstallFailed`."""
    venv, lock = ROOT / ".venv", lock_of(kind)
    if venv.resolve() != Path(sys.prefix).resolve():
        raise NotHere(lock)
    bootstrap.install(Path(sys.executable), venv, lock)


def add_missing(kinds: Iterable[str]) -> list[str]:
    """Install the packages of these kinds of models, or of MCP; return a sentence for each failure."""
    told = []
    for kind in sorted({kind for kind in kinds if _is_missing(kind)}):
        try:
            add(kind)
        except (NotHere, bootstrap.InstallFailed) as why:
            what = "Tools of MCP servers" if kind == MCP else f"Models of kind {kind}"
            told.append(f"{what} can't be called. {why}")
    return told


def _is_missing(kind: str) -> bool:
    return not mcp.is_installed() if kind == MCP else kind in EXTRAS and bool(missing_package(kind))
