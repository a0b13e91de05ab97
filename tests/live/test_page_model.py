"""The page's own model, in the language it is written in: 2,000 random schedules, none may end on a wrong view."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCHEDULES = Path(__file__).with_name("schedules.mjs")
REPLIES = Path(__file__).with_name("replies.mjs")
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None and not os.environ.get("CI"),
    reason="The page's model is JavaScript; install Node 18 or newer to test it by itself (apt-get install nodejs).",
)


def wrong_of(schedules: int, seed: int, *mode: str) -> int:
    """How many of the schedules end on a wrong view."""
    assert NODE is not None, "node is missing: apt-get install nodejs"
    done = subprocess.run(
        [NODE, str(SCHEDULES), str(schedules), str(seed), *mode], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    if not mode:
        assert done.stdout.strip() == "0", done.stderr
    return int(done.stdout)


def test_no_schedule_of_two_thousand_ends_on_a_wrong_view() -> None:
    assert wrong_of(2000, seed=1) == 0


def test_without_the_head_in_hello_and_pong_the_check_fails() -> None:
    """The negative control: a lost tail would never be noticed."""
    assert wrong_of(300, 1, "without-head") > 0


def test_a_half_written_reply_shows_its_thought_as_far_as_it_goes() -> None:
    assert NODE is not None, "node is missing: apt-get install nodejs"
    done = subprocess.run([NODE, str(REPLIES)], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("0", "")
