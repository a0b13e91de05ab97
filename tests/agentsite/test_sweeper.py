"""Runs go on where no hint ever arrives."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from tests.stack import running_site, wait_for

SCRIPT = {
    "replies": {
        "decision": [
            {"thought": "I look it up", "action": {"tool": "search", "args": {"q": "tides"}}},
            {"thought": "FINAL ANSWER: 42", "action": None},
        ]
    },
    "tools": {
        "search": {"params": {"q": "string"}, "effects": "read", "results": [{"output": "three results"}]}
    },
}


@pytest.mark.stack
def test_with_all_messages_suppressed_a_run_still_finishes(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with running_site(tmp_path / "data", {"HINTS": "0"}) as site:
        told = site.manage(
            *("launch", "--machine", "ruled", "--goal", "tides", "--script", str(script), "--wait", "--json")
        )
        exported = json.loads(told)
        assert exported["run"]["status"] == "succeeded"
        assert exported["run"]["answer"] == "42"
        site.manage("verify", str(exported["run"]["id"]))


@pytest.mark.stack
def test_with_the_worker_and_the_broker_frozen_a_run_still_finishes(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps(SCRIPT))
    with running_site(tmp_path / "data") as site, site.frozen("worker"), site.frozen("broker"):
        told = site.manage(
            *("launch", "--machine", "ruled", "--goal", "tides", "--script", str(script), "--wait", "--json")
        )
        assert json.loads(told)["run"]["answer"] == "42"


CALLS = 18
"""Of a run of several slices: each takes seven rows."""

LONGEST_GAP_S = 4.0
"""Less than any sweep takes to find a run whose hint was lost."""


@pytest.mark.stack
def test_a_long_run_does_not_wait_for_a_broker_that_freezes_in_its_middle(tmp_path: Path) -> None:
    search = {"thought": "I look it up", "action": {"tool": "search", "args": {"q": "tides"}}}
    played = SCRIPT | {
        "replies": {"decision": [*[search] * CALLS, {"thought": "FINAL ANSWER: 42", "action": None}]},
        "pace": {"tool_s": 0.2, "stream": False},
    }
    script = tmp_path / "script.json"
    script.write_text(json.dumps(played))
    with running_site(tmp_path / "data") as site:
        told = site.manage(
            "launch", "--machine", "ruled", "--goal", "tides", "--script", str(script), code=None
        )
        run = told.removeprefix("Run ").partition(":")[0]
        wait_for(lambda: len(site.export(run)["steps"]) > 4)
        with site.frozen("broker"):
            froze = datetime.now(UTC)
            wait_for(lambda: site.export(run)["run"]["ended_at"])
        times = [datetime.fromisoformat(step["started_at"]) for step in site.export(run)["steps"]]
        assert sum(time > froze for time in times) > CALLS
        assert max((later - before).total_seconds() for before, later in pairwise(times)) < LONGEST_GAP_S
