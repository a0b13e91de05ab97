"""What tests of forks and of replays share."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from agentsite.environment import ROOT
from runs import actions, driver
from runs.models import Run
from runs.reading.script_export import launch_of
from tests.running import work

WRITE = {
    "params": {"name": "string"},
    "required": ["name"],
    "effects": "write",
    "results": [
        {"output": "one", "files": [{"name": "report.md", "text": "first"}]},
        {"output": "two", "files": [{"name": "report.md", "text": "second"}]},
    ],
}


def everything(run: Run) -> str:
    """A digest of all that is kept of a run."""
    rows = [list(run.steps.order_by("seq").values()), list(run.exchanges.order_by("seq").values())]
    rows += [list(run.interrupts.order_by("seq").values()), list(run.budgets.order_by("id").values())]
    rows += [list(Run.objects.filter(pk=run.pk).values())]
    return hashlib.sha256(repr(rows).encode()).hexdigest()


def rows_of(run: Run) -> list[tuple[Any, ...]]:
    """The rows, but for what names the run, its questions and its times."""
    found = run.steps.order_by("seq").values_list(
        "seq", "kind", "live", "node", "edge", "to", "facts_json", "state_json"
    )
    names = {str(interrupt.pk): str(interrupt.seq) for interrupt in run.interrupts.all()}
    told = []
    for *row, facts, state in found:
        for name, place in names.items():
            facts = facts.replace(name, place)
        told.append((*row, facts, state))
    return told


def check_replay(run: Run) -> Run:
    """Replay the run: the rows are the same, nothing was called, and it is untouched."""
    before = everything(run)
    made, difference = actions.replay(run, by=None)
    assert difference is None
    assert (made.origin, made.copied_from, made.copied_upto) == ("replay", run, run.head)
    assert everything(run) == before
    assert rows_of(made)[: run.head] == rows_of(run)
    assert made.finished
    if run.finished:
        assert rows_of(made) == rows_of(run)
        assert (made.status, made.exit_reason, made.answer) == (run.status, run.exit_reason, run.answer)
    return made


def relaunched(run: Run) -> Run:
    """The run's export as a launch, launched."""
    told = json.loads(json.dumps(launch_of(run)))
    again = actions.start_run(owner=None, **told)
    return work(again)


def outcome_of(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the file as a test of its own."""
    path = folder / "test_recorded.py"
    path.write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:django", str(path)]
    return subprocess.run(
        [*words, "-c", "/dev/null", "--rootdir", str(folder)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_as_read(run: Run) -> None:
    """The replay of a run whose model was sent prompts, and counted their tokens."""
    record = driver.record_of(run).model_copy(update={"reads_prompt": True})
    made = driver.made_again(record)
    assert made.difference is None, str(made.difference)
    assert len(made.rows) == run.head
