"""A run that kills its workers takes down the common one once; then it has processes of its own, and asks a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runs.store import MOST_LOST
from tests.stack import running_site

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
