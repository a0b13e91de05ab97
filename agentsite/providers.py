"""The libraries of providers that the base lacks: installed by hash if a model profile needs them."""

import sys
from collections.abc import Iterable
from pathlib import Path

from agentsite import bootstrap
from agentsite.environment import ROOT
from runs.adapters.models import EXTRAS, missing_package


class NotHere(Exception):
    """This environment is not ours to change."""

    def __init__(self, lock: Path) -> None:
        super().__init__(
            f"agentsite installs packages only into its own .venv. Install them yourself: "
            f"{sys.executable} -m pip install --require-hashes --no-deps -r {lock.name}"
        )


def lock_of(kind: str) -> Path:
    """Return the lock of a kind of model."""
    return ROOT / f"requirements-{kind}.lock"


def add(kind: str) -> None:
    """Install the library for a kind of model; raises `NotHere` or `InstallFailed`."""
    venv, lock = ROOT / ".venv", lock_of(kind)
    if venv.resolve() != Path(sys.prefix).resolve():
        raise NotHere(lock)
    bootstrap.install(Path(sys.executable), venv, lock)


def add_missing(kinds: Iterable[str]) -> list[str]:
    """Install the libraries for these kinds of models; return a sentence for each failure."""
    told = []
    for kind in sorted({kind for kind in kinds if kind in EXTRAS and missing_package(kind)}):
        try:
            add(kind)
        except (NotHere, bootstrap.InstallFailed) as why:
            told.append(f"Models of kind {kind} can't be called. {why}")
    return told
