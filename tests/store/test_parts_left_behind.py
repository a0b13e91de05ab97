"""A worker that is killed while it writes a file leaves a part of it, which counts for nothing and is removed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from runs.adapters import folder as folder_module
from runs.adapters.folder import KEPT, RunFolder
from runs.models import Artifact, Run
from runs.store import creating, leases
from runs.store.artifacts import LEFT_BEHIND_S
from tests.artifacts import kept_in, made, saving
from tests.commands import command
from tests.launching import FINAL, launch, script, think
from tests.running import lose_worker, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

PART = ".0123456789abcdef.part"


def parts(run: Run) -> list[Path]:
    """What was being written, wherever it stands."""
    return sorted(creating.folder_of(run.pk).rglob("*.part"))


def a_lease_later(*paths: Path) -> None:
    """As it is once another worker may take the run of one that was killed."""
    moment = time.time() - LEFT_BEHIND_S - 1
    for path in paths:
        os.utime(path, (moment, moment))


def launched_and_killed(played: dict[str, Any], place: str) -> Run:
    """A run whose worker was a process that is gone; it wrote into the directory of this site."""
    words = ("--machine=ruled", "--goal=Keep a file", f"--script={json.dumps(played)}", "--inline")
    done = command("launch", *words, failpoints=place)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    run = Run.objects.get()
    assert leases.claim(run.pk, "too early") is None
    lose_worker(run)
    return run


@pytest.mark.parametrize(("place", "where"), [("inside_put:kill9", KEPT), ("inside_put:kill9:2", "out")])
def test_killed_in_the_middle_of_a_file_the_next_worker_removes_the_part(place: str, where: str) -> None:
    tool = saving([made("out/a.txt", "one")])
    run = launched_and_killed(script(think("save"), FINAL, tools={"save": tool}), place)
    (left,) = parts(run)
    assert (left.parent.name, left.read_bytes()) == (where, b"one")
    a_lease_later(left)
    work(run)
    assert run.status == "succeeded"
    assert parts(run) == []
    assert RunFolder(creating.folder_of(run.pk)).read("out/a.txt") == b"one"
    assert Artifact.objects.get(run=run).version == 1


def test_a_part_that_somebody_may_still_be_writing_is_left_alone() -> None:
    """A worker whose run was given back from beside it lives, and is in the middle of its call."""
    run = launch(played=script(think("save"), FINAL, tools={"save": saving([made("a.txt", "one")])}))
    folder = creating.folder_of(run.pk)
    (folder / KEPT).mkdir(parents=True)
    old, young = folder / PART, folder / KEPT / PART
    for path in (old, young):
        path.write_bytes(b"o")
    a_lease_later(old)
    slice_of(run)
    assert run.status == "succeeded"
    assert parts(run) == [young]


def test_parts_count_to_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_module, "MAX_KEPT", 1)
    monkeypatch.setattr(folder_module, "MAX_KEPT_BYTES", 3)
    run = launch(played=script(think("save"), FINAL, tools={"save": saving([made("a.txt", "one")])}))
    kept = creating.folder_of(run.pk) / KEPT
    kept.mkdir(parents=True)
    (kept / PART).write_bytes(b"much more than three")
    slice_of(run)
    assert Artifact.objects.get(run=run).name == "a.txt"
    assert len(kept_in(run)) == 2


def test_a_file_of_a_run_that_looks_like_a_part_is_none() -> None:
    run = launch(FINAL)
    folder = creating.folder_of(run.pk)
    RunFolder(folder).write("notes.part", b"mine")
    (folder / ".other.part").write_bytes(b"somebody's")
    a_lease_later(folder / "notes.part", folder / ".other.part")
    slice_of(run)
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == [".other.part", "notes.part"]


def test_a_run_without_files_has_no_directory_made_for_it() -> None:
    run = work(launch(FINAL))
    assert not creating.folder_of(run.pk).exists()
