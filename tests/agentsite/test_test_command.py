"""`manage.py test` hands pytest's own arguments on."""

import subprocess
import sys

import pytest

from agentsite.environment import ROOT
from agentsite.management.commands.test import split_mark
from tests.stack import own_environ


@pytest.mark.parametrize(
    ("given", "mark", "rest"),
    [
        ([], "", []),
        (["-q", "tests/engine"], "", ["-q", "tests/engine"]),
        (["-m", "database", "-q"], "database", ["-q"]),
        (["-mdatabase"], "database", []),
        (["--maxfail=1", "-k", "x"], "", ["--maxfail=1", "-k", "x"]),
    ],
)
def test_a_mark_is_taken_out_to_be_narrowed(given: list[str], mark: str, rest: list[str]) -> None:
    assert split_mark(given) == (mark, rest)


@pytest.mark.parametrize(
    ("chosen", "code"), [("test_any_host_at_all_is_refused", 0), ("no_test_has_such_a_name", 5)]
)
def test_the_exit_code_is_pytests(chosen: str, code: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "test", "-q", "tests/agentsite/test_environment.py", "-k", chosen],
        cwd=ROOT,
        env=own_environ(tmp_path_factory.mktemp("data")),
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
