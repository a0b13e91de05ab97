"""A run that kills its workers takes down the common one once; then it has processes of its own, and asks a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs import driver, tasks
from runs.models import Run
from runs.store import leases
from runs.store.leases import MOST_LOST
from tests.launching import FINAL, launch, think
from tests.running import work
from tests.stack import running_site
from tests.workers import die_in, kill

SCRIPT = {
    "replies": {
        "decision": [{"thought": "I try", "action": {"tool": "poison", "args": {"label": "poison", "n": 1}}}]
    }
}
TOOLS = {"AGENTSITE_TOOLS": "tests.chaos.far_side:TOOLS", "LEASE_SECONDS": "1"}
WAITS = 6
"""The exit code of `launch` where the run waits for a person."""


@pytest.mark.stack
def test_a_run_that_kills_its_workers_takes_the_common_one_down_once(tmp_path: Path) -> None:
    script, settings = tmp_path / "script.json", tmp_path / "settings.json"
    script.write_text(json.dumps(SCRIPT))
    settings.write_text(json.dumps({"tools": ["poison"]}))
    with running_site(tmp_path / "data", TOOLS) as site:
        told = site.manage(
            *("launch", "--machine", "ruled", "--goal", "poison", "--script", str(script), "--json"),
            *("--settings", str(settings)),
            code=WAITS,
        )
        exported = json.loads(told)
        assert [one["kind"] for one in exported["interrupts"]] == ["manual"]
        assert [step["kind"] for step in exported["steps"]].count("recovered") == MOST_LOST
        assert site.output.count("The worker died") == 1
        site.manage("abort", exported["run"]["id"])
        site.manage("verify", exported["run"]["id"])


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The runs for which a process would have been started."""
    started: list[int] = []

    def start(run_id: int) -> list[int]:
        started.append(run_id)
        return []

    monkeypatch.setattr(driver, "drive_alone", start)
    return started


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_slice_asks_nothing_more_to_learn_whether_a_worker_was_lost(alone: list[int]) -> None:
    first, second, third = (launch(think("search", q="tides"), FINAL) for _ in range(3))
    driver.drive(first.pk)  # what a process asks once is asked by now
    with CaptureQueriesContext(connection) as driven:
        driver.drive(second.pk)
    with CaptureQueriesContext(connection) as driven_on:
        tasks.drive_on(third.pk)
    assert len(driven_on) == len(driven)
    assert alone == []


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_a_run_whose_worker_was_lost_is_driven_alone_until_it_moves(alone: list[int]) -> None:
    run = launch(think("search", q="tides"), FINAL)
    for _ in range(2):
        die_in(run, before=kill)
        tasks.drive_on(run.pk)
    run.refresh_from_db()
    assert alone == [run.pk, run.pk]
    assert run.epoch == 2, "no worker that others need has taken it"
    lease = leases.claim(run.pk, "its own")
    assert lease is not None
    tasks.drive_on(run.pk)
    assert alone == [run.pk, run.pk], "its own process has it by now"
    leases.let_go(lease)
    tasks.drive_on(run.pk)
    assert alone == [run.pk] * 3, "it has not moved yet"
    work(run)
    tasks.drive_on(run.pk)
    assert alone == [run.pk] * 3
    assert Run.objects.get(pk=run.pk).answer == "42"
