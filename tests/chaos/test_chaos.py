"""A short run of the bench, on the database of this test run: what a developer starts by `python -m tests.chaos`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from agentsite.environment import ROOT
from tests.benchmarks import postgres
from tests.chaos.__main__ import ended
from tests.chaos.controls import CONTROLS
from tests.chaos.plants import PLANTS
from tests.stack import own_environ

SEED = 20
"""Printed by the report; `--seed` plays it again."""

pytestmark = [pytest.mark.database]


def chaos(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, on the kind of database that the tests run on."""
    kind = "postgres" if connection.vendor == "postgresql" else "sqlite"
    if kind == "postgres" and postgres.binaries() is None:
        pytest.skip("The bench starts a PostgreSQL of its own, and its programs are not here.")
    return subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--database", kind, "--lease", "1", *words],
        cwd=ROOT,
        env=own_environ(folder),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_nothing_is_lost_and_nothing_happens_twice_whoever_is_killed(tmp_path: Path) -> None:
    done = chaos(tmp_path, "--kills", "60", "--seed", str(SEED), "--most-lost", "6", "--without", "controls")
    sys.stdout.write(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.rstrip().endswith("GREEN")
    assert "  frozen inside a write, then " in done.stdout
    assert "  all frozen together, then woken" in done.stdout


def test_the_bench_sees_each_protection_that_is_off(tmp_path: Path) -> None:
    done = chaos(
        tmp_path,
        "--kills",
        "0",
        "--seed",
        str(SEED),
        "--most-lost",
        "4",
        "--without",
        "poison",
        "asleep",
        "broker",
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("red, as it must be") == len(CONTROLS) + len(PLANTS)


@pytest.mark.parametrize(
    ("code", "said", "exit_code"), [(0, "", 0), (1, "", 1), (-9, "SIGKILL", 1), (-7, "SIGBUS", 1)]
)
def test_a_bench_that_was_killed_is_red(
    code: int, said: str, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(code) == exit_code
    printed = capsys.readouterr().out
    assert said in printed and printed.endswith("RED\n") == (code < 0)
