"""A machine in a folder of its own, outside the repository's packages, works in full without a change elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentsite.environment import ROOT

FOLDER = ROOT / "tests" / "fifth"


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """The environment of a site where the machine is installed: its folder lies outside the repository."""
    shutil.copytree(FOLDER, tmp_path / "poll_machine", ignore=shutil.ignore_patterns("__pycache__"))
    return {**os.environ, "PYTHONPATH": str(tmp_path), "AGENTSITE_MACHINES": "poll_machine:POLL"}


def passes(environ: dict[str, str], *tests: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_a_fifth_machine_launches_reads_well_and_is_exported(elsewhere: dict[str, str]) -> None:
    passes(elsewhere, "tests/machines/poll_site.py")


def test_a_fifth_machine_plays_the_laws(elsewhere: dict[str, str]) -> None:
    passes(elsewhere, "tests/machines/test_laws.py", "-k", "poll")
