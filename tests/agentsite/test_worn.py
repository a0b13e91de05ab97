"""A real site and what wears it down: runs that kill their workers, a frozen worker, a sleep, a clock set back."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.agentsite.pills import TOOLS
from tests.stack import Site, running_site, wait_for

pytestmark = pytest.mark.stack

ENVIRON = {"AGENTSITE_TOOLS": "tests.agentsite.pills:TOOLS", "LEASE_SECONDS": "1"}
RULES = [{"when": {"tool": "*"}, "do": "allow"}]
FINAL = {"thought": "FINAL ANSWER: done", "action": None}
LAUNCH = """
import json
from runs import actions
for goal, script in json.loads({told!r}):
    print(actions.start_run(machine="ruled", goal=goal, owner=None, settings={settings!r}, script=script).pk)
"""

Call = tuple[str, int]
"""A tool, and how many milliseconds its call takes."""


def script_of(calls: Iterable[Call]) -> dict[str, Any]:
    """The replies that make these calls, one after the other."""
    thoughts = [
        {"thought": f"I use {tool}", "action": {"tool": tool, "args": {"ms": ms}}} for tool, ms in calls
    ]
    return {"replies": {"decision": [*thoughts, FINAL]}}


def launch(site: Site, *runs: tuple[str, list[Call]]) -> list[int]:
    """Start runs of these goals and calls, which the site's worker drives."""
    import json

    told = json.dumps([(goal, script_of(calls)) for goal, calls in runs])
    settings = {"rules": RULES, "tools": [tool.name for tool in TOOLS]}
    printed = site.manage("shell", "-c", LAUNCH.format(told=told, settings=settings))
    return [int(line) for line in printed.splitlines() if line.isdecimal()]


def rows(site: Site, query: str) -> list[Any]:
    """All rows of a query on the site's own file."""
    with contextlib.closing(sqlite3.connect(site.data_dir / "agentsite.sqlite3", timeout=20)) as database:
        return database.execute(query).fetchall()


def begun(site: Site) -> int:
    """How many calls are under way that must not be made twice."""
    return int(rows(site, "SELECT count(*) FROM runs_exchange WHERE status = 'started'")[0][0])


def still(site: Site) -> bool:
    """Whether each run has ended or waits for a person."""
    return not rows(site, "SELECT id FROM runs_run WHERE ended_at IS NULL AND status <> 'waiting'")


def test_each_run_of_a_lost_worker_gets_one_process_of_its_own(tmp_path: Path) -> None:
    """However often it is hinted at while it waits for one."""
    with running_site(tmp_path / "data", ENVIRON | {"LOG_LEVEL": "INFO"}) as site:
        ids = launch(site, *((f"beside {n}", [("work_key", 1500)] * 3) for n in range(12)))
        wait_for(lambda: begun(site) == len(ids))
        site.kill9("worker")
        wait_for(lambda: still(site), 120)
        log = (site.data_dir / "logs" / "worker.log").read_text()
        started = Counter(map(int, re.findall(r"run (\d+) gets a process of its own", log)))
        assert started == Counter(ids)
        assert not rows(site, "SELECT id FROM runs_interrupt")
        assert not rows(site, "SELECT id FROM runs_run WHERE status <> 'succeeded'")
