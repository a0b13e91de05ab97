"""Commands that start together on a new data directory make one database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agentsite.environment import ROOT
from tests.stack import own_environ

PREPARE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "agentsite.settings"
import django
django.setup()
from agentsite.migrating import prepare_database
print("ready", flush=True)
sys.stdin.readline()
prepare_database()
"""


def test_two_that_prepare_the_database_at_once_both_succeed(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [
        subprocess.Popen([sys.executable, "-c", PREPARE], cwd=ROOT, env=own_environ(tmp_path), **pipes)  # type: ignore[call-overload]
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout.readline() == "ready\n"
    for one in both:
        one.stdin.write("go\n")
        one.stdin.flush()
    ended = [(one.communicate(timeout=120)[1], one.returncode) for one in both]
    assert ended == [("", 0), ("", 0)]
