"""Runs go on where no hint ever arrives."""

import json
from pathlib import Path

import pytest

from tests.stack import running_site

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
