"""What a command loads before it works: no queue, no message layer, no server, no model's library, no browser."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentsite.environment import ROOT
from tests.stack import own_environ

HEAVY = {
    *(
        "celery",
        "kombu",
        "redis",
        "channels",
        "daphne",
        "twisted",
        "runs.admin",
        "runs.views",
        "agentsite.urls",
    ),
    *("pydantic_ai", "openai", "anthropic", "httpx", "playwright", "pytest"),
}
MOST_MODULES = 970
"""Python itself, Django, pydantic and the site's own."""

AS_A_SHELL_STARTS_IT = """
import gc, runpy, sys
sys.argv = ["manage.py", *sys.argv[1:]]
try:
    runpy.run_path("manage.py", run_name="__main__")
except SystemExit:
    pass
print("\\n" + " ".join(sys.modules))
print(gc.isenabled(), gc.get_freeze_count() > 0)
"""


def started(data_dir: Path, *words: str) -> tuple[set[str], str]:
    """Return the modules that a command has loaded, and how it leaves the collector of garbage."""
    done = subprocess.run(
        [sys.executable, "-c", AS_A_SHELL_STARTS_IT, *words],
        cwd=ROOT,
        env=own_environ(data_dir),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules, collector = done.stdout.splitlines()[-2:]
    return set(modules.split()), collector


@pytest.mark.parametrize(
    "command", ["abort", "decide", "export", "launch", "machines", "pause", "up", "verify"]
)
def test_a_command_loads_what_it_needs(command: str, tmp_path: Path) -> None:
    modules, _ = started(tmp_path, command, "--help")
    assert modules & HEAVY == set()
    assert len(modules) < MOST_MODULES


def test_garbage_is_collected_again_once_a_command_is_loaded(tmp_path: Path) -> None:
    _, collector = started(tmp_path, "machines")
    assert collector == "True True"
