"""`manage.py test` hands pytest's own arguments on."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsite.environment import ROOT
from agentsite.management.commands.test import run_lanes, split_mark
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


def test_the_command_hands_everything_to_pytest(tmp_path: Path) -> None:
    file, chosen = "tests/agentsite/test_environment.py", "test_any_host_at_all_is_refused"
    done = subprocess.run(
        [sys.executable, "manage.py", "test", "-q", "-m", "not browser", file, "-k", chosen],
        cwd=ROOT,
        env=own_environ(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.fixture
def project(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one of three tests, one for each run of pytest; the browser's fails."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    browser: …\n    stack: …\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_plain(): pass\n"
        "@pytest.mark.browser\ndef test_browser(): assert False\n"
        "@pytest.mark.stack\ndef test_stack(): pass\n"
    )
    settings.BASE_DIR = tmp_path
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("chosen", "code"), [("plain", 0), ("stack", 0), ("browser or plain", 1), ("no", 5)])
def test_the_exit_code_is_pytests(chosen: str, code: int) -> None:
    assert run_lanes(["-q", "-k", chosen]) == code


@pytest.mark.usefixtures("project")
def test_what_the_second_lane_ran_is_shown_after_the_first(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_lanes(["-q"]) == 1
    closing = [
        line for line in capfd.readouterr().out.splitlines() if " in " in line and "deselected" in line
    ]
    assert [line.split(",")[0] for line in closing] == ["1 passed", "1 failed", "1 passed"]
