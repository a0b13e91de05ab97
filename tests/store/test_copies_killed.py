"""K12: a process that dies in the middle of a fork or a replay leaves nothing half-made, and the old run as it was."""

from __future__ import annotations

import signal

import pytest

from runs import actions, failpoints
from runs.models import Budget, Exchange, Interrupt, Run, Step
from runs.store.creating import folder_of
from tests.commands import command
from tests.launching import FINAL, TOOLS, launch, script, think
from tests.replaying import WRITE, everything
from tests.running import decide, transitions, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

PLACES = ("inside_fork", "after_fork_files")


def old_run() -> Run:
    replies = (think("write", name="a"), think("send", to="bob"), FINAL)
    run = work(launch(played=script(*replies, tools={**TOOLS, "write": WRITE})))
    for _ in range(2):
        decide(run, "approve")
        work(run)
    assert run.status == "succeeded"
    return run


def counts() -> list[int]:
    return [kind.objects.count() for kind in (Run, Step, Exchange, Interrupt, Budget)]


@pytest.mark.parametrize("verb", ["fork", "replay"])
@pytest.mark.parametrize("place", PLACES)
def test_a_fault_in_the_middle_leaves_nothing(verb: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = old_run()
    before, rows = everything(run), counts()
    at = transitions(run, "executed")[0]
    monkeypatch.setitem(failpoints.PLANNED, place, [])
    with pytest.raises(failpoints.FailpointReached):
        _copy(verb, run, at)
    assert (everything(run), counts()) == (before, rows)
    monkeypatch.delitem(failpoints.PLANNED, place)
    assert work(_copy(verb, run, at)).head > at


def _copy(verb: str, run: Run, at: int) -> Run:
    return actions.fork(run, at=at, by=None) if verb == "fork" else actions.replay(run, by=None, to=at)[0]


@pytest.mark.parametrize("place", PLACES)
def test_a_killed_process_leaves_nothing_that_a_later_run_would_find(place: str) -> None:
    run = old_run()
    before, rows = everything(run), counts()
    at = transitions(run, "executed")[0]
    died = command(
        "fork",
        str(run.pk),
        f"--at={at}",
        "--sure",
        failpoints=f"{place}:kill9",
    )
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    assert (everything(run), counts()) == (before, rows)
    fresh = launch(FINAL)
    assert not folder_of(fresh.pk).exists()
    work(fresh)
    forked = work(actions.fork(run, at=at, by=None))
    assert (folder_of(forked.pk) / "report.md").read_text() == "first"
