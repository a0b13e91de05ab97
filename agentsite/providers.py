"""Packages that the base lacks, installed by hash: for models, MCP servers, the tool python, OpenTelemetry."""

import sys
from collections.abc import Iterable
from importlib.util import find_spec
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


MCP, OTEL, PYTHON = "mcp", "otel", "python"

TOOLS = {
    MCP: "Tools of MCP servers",
    OTEL: "The exporters to OpenTelemetry",
    PYTHON: "Scripts of the tool python",
}
"""What needs packages beside the kinds of models."""

OTEL_PACKAGES = (
    "opentelemetry.sdk",
    "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry.exporter.otlp.json.common",
)


def titled(kind: str) -> str:
    """Return what the packages of that kind are for."""
    return TOOLS.get(kind, f"Models of kind {kind}")


def lock_of(kind: str) -> Path:
    """Return the lock of a kind of model, or of a name in `TOOLS`."""
    return ROOT / f"requirements-{kind}.lock"


def add(kind: str) -> None:
    """Install what a kind of model, or a name in `TOOLS`, needs; raises `NotHere` or `InstallFailed`."""
    venv, lock = ROOT / ".venv", lock_of(kind)
    if venv.resolve() != Path(sys.prefix).resolve():
        raise NotHere(lock)
    bootstrap.install(Path(sys.executable), venv, lock)


def add_missing(kinds: Iterable[str]) -> list[str]:
    """Install the packages of these kinds of models, of MCP or OpenTelemetry; return a sentence for each failure."""
    told = []
    for kind in sorted({kind for kind in kinds if _is_missing(kind)}):
        try:
            add(kind)
        except (NotHere, bootstrap.InstallFailed) as why:
            told.append(f"{titled(kind)} can't be called. {why}")
    return told


def _is_missing(kind: str) -> bool:
    match kind:
        case "mcp":
            return not mcp.is_installed()
        case "otel":
            return not all(map(_is_found, OTEL_PACKAGES))
    return kind in EXTRAS and bool(missing_package(kind))


def _is_found(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
