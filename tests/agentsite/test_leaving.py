"""Workers that are told to end while runs are in the middle of something: real processes, real signals."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsite.environment import ROOT
from agentsite.management.commands.up import worker_command
from tests.fake_model_server import Asked, Behaviour, FakeModelServer, Says, Stalls
from tests.stack import Site, running_site, wait_for

pytestmark = pytest.mark.stack

LEASE_S = 20.0
"""Without a drain a run would wait for so long."""

AT_ONCE_S = 40.0
"""It takes less than a second on idle cores; they may be busy with other tests."""

LONG_LEASE_S = 120.0
"""The lease of a site whose runs are handed over at once, busy cores or not."""

PATIENCE_S = 60.0
"""Starting takes long where the cores are busy."""

FINAL: dict[str, Any] = {"thought": "FINAL ANSWER: 42", "action": None}
DEED: dict[str, Any] = {"thought": "I go through", "action": {"tool": "gate", "args": {}}}
RULES = [{"when": {"tool": "*"}, "do": "allow"}]


def played(*replies: Any, **pace: float) -> dict[str, Any]:
    """A script."""
    return {"replies": {"decision": replies}, "pace": pace}


@contextlib.contextmanager
def gated(tmp_path: Path, **environ: str) -> Iterator[Site]:
    """A site with a blind tool that lasts until `open_gate`; the test may stop and start it."""
    tool = {"AGENTSITE_TOOLS": "tests.agentsite.gate:GATE", "GATE_FILE": str(tmp_path / "open")}
    with running_site(tmp_path / "data", tool | environ) as site:
        yield site


def open_gate(tmp_path: Path) -> None:
    (tmp_path / "open").touch()


def launch(site: Site, server: FakeModelServer | None, *scripts: dict[str, Any]) -> list[int]:
    """Runs that workers drive: one of the server's model, where there is one, and one of each script."""
    code = [
        f"from runs import actions; rules = {RULES!r}; common = dict(machine='ruled', goal='tides', owner=None)"
    ]
    if server is not None:
        code.append(f"actions.register_model(name='m', base_url={server.base_url!r}, model_id='m')")
        code.append(
            "print(actions.start_run(**common, settings={'rules': rules, 'tools': ['gate'], 'model': 'm'}).pk)"
        )
    for script in scripts:
        code.append(
            f"print(actions.start_run(**common, settings={{'rules': rules, 'tools': ['gate']}}, script={script!r}).pk)"
        )
    told = site.manage("shell", "-c", "\n".join(code)).splitlines()
    return [int(line) for line in told if line.isdecimal()]


def asked(site: Site, query: str, *values: Any) -> Any:
    """The first row of a query on the site's own file."""
    with contextlib.closing(sqlite3.connect(site.data_dir / "agentsite.sqlite3", timeout=20)) as database:
        return database.execute(query, values).fetchone()


def run_row(site: Site, run: int) -> Any:
    return asked(site, "SELECT status, worker, head FROM runs_run WHERE id = ?", run)


def held(site: Site, run: int) -> bool:
    return bool(run_row(site, run)[1])


def deed(site: Site, run: int) -> Any:
    """How far the run's blind call is: its state, or nothing."""
    found = asked(site, "SELECT status FROM runs_exchange WHERE run_id = ? AND name = 'gate'", run)
    return found and found[0]


def ended(site: Site, run: int) -> bool:
    return str(run_row(site, run)[0]) in ("succeeded", "failed", "stopped", "cancelled")


class SilentFirst:
    """The first request is never answered, the others at once; when each of them came."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self, request: Asked) -> Behaviour:
        self.at.append(time.monotonic())
        return Stalls() if len(self.at) == 1 else Says(FINAL)


@contextlib.contextmanager
def second_worker(site: Site) -> Iterator[subprocess.Popen[str]]:
    """Another worker of the same site, ready for work."""
    environ = site.environ | {
        "REDIS_URL": f"unix://{site.data_dir / 'broker' / 'valkey.sock'}",
        "LOG_LEVEL": "INFO",
        "BROKER_TIMEOUT": "10",
        "CELERY_SKIP_CHECKS": "1",
    }
    command = [sys.executable, *worker_command()[1:], "--hostname", "second@%h"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        while "ready" not in process.stderr.readline():
            assert process.poll() is None
        yield process
    finally:
        process.terminate()
        process.wait(40)
        process.stderr.close()


def test_stopping_everything_cuts_a_silent_call_and_finishes_a_deed(tmp_path: Path) -> None:
    """And the next starts: one goes on, another finds that an old copy of the database was put back."""
    model = SilentFirst()
    with gated(tmp_path) as site, FakeModelServer(model) as server:
        silent, deeds = launch(site, server, played(DEED, FINAL))
        wait_for(lambda: model.at and deed(site, deeds) == "started", PATIENCE_S)
        assert site.process is not None
        site.process.send_signal(signal.SIGINT)
        wait_for(lambda: run_row(site, silent) == ("queued", "", 0), LEASE_S - 5)
        assert deed(site, deeds) == "started"
        open_gate(tmp_path)
        assert site.process.wait(PATIENCE_S) == 0
        site.stop()
        assert (deed(site, deeds), *run_row(site, deeds)[:2]) == ("answered", "queued", "")
        old = database_copied(site.data_dir, tmp_path)
        site.start()
        wait_for(lambda: ended(site, silent) and ended(site, deeds), PATIENCE_S)
        exported = site.export(str(deeds))
        assert (exported["run"]["status"], exported["run"]["totals"]["tool_calls"]) == ("succeeded", 1)
        assert exported["interrupts"] == []
        assert site.stop() == 0
        database_copied(old, site.data_dir)
        site.start()
        assert "This database is not the last one used here" in site.output
        assert {run_row(site, run)[0] for run in (silent, deeds)} == {"paused"}
        site.manage("verify", "--all")


def database_copied(source: Path, target: Path) -> Path:
    """The database's files as somebody copies them by hand while the site is stopped."""
    for name in ("agentsite.sqlite3", "agentsite.sqlite3-wal", "agentsite.sqlite3-shm"):
        (target / name).unlink(missing_ok=True)
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    return target


def test_a_deed_that_takes_longer_than_the_drain_is_a_persons_to_judge(tmp_path: Path) -> None:
    with gated(tmp_path, DRAIN_SECONDS="0.5", LEASE_SECONDS="2") as site:
        (run,) = launch(site, None, played(DEED, FINAL))
        wait_for(lambda: deed(site, run) == "started", PATIENCE_S)
        assert site.stop() == 0
        assert deed(site, run) == "started"
        told = f"Waiting up to 0.5 s for 1 call: run {run}, gate.\nCut off mid-call: run {run}, gate. "
        assert f"\n{told}The outcome is unknown.\n" in site.output
        site.start()
        wait_for(lambda: run_row(site, run)[0] == "waiting", PATIENCE_S)
        assert [one["kind"] for one in site.export(str(run))["interrupts"]] == ["may_have_happened"]


def test_a_second_interrupt_does_not_wait_and_names_the_calls_that_it_cut_off(tmp_path: Path) -> None:
    with gated(tmp_path) as site:
        runs = launch(site, None, played(DEED, FINAL), played(DEED, FINAL))
        wait_for(lambda: all(deed(site, run) == "started" for run in runs), PATIENCE_S)
        calls = "; ".join(f"run {run}, gate" for run in runs)
        assert site.process is not None
        site.process.send_signal(signal.SIGINT)
        wait_for(lambda: f"Waiting up to 25 s for 2 calls: {calls}." in site.output)
        assert site.stop() == 0
        told = f"Cut off mid-call: {calls}. The outcomes are unknown."
        assert site.output.endswith(f"\n{told}\nStopped.")
        assert told in (site.data_dir / "logs" / "worker.log").read_text()


def test_of_what_is_said_to_be_cut_off_no_answer_is_kept(tmp_path: Path) -> None:
    """The gate opens as soon as the line is there, while the worker still lives."""
    with gated(tmp_path) as site:
        runs = launch(site, None, played(DEED, FINAL), played(DEED, FINAL))
        wait_for(lambda: all(deed(site, run) == "started" for run in runs), PATIENCE_S)
        assert site.process is not None
        site.process.send_signal(signal.SIGINT)
        wait_for(lambda: "Waiting up to" in site.output)
        site.process.send_signal(signal.SIGINT)
        wait_for(lambda: "Cut off mid-call" in site.output)
        open_gate(tmp_path)
        wait_for(site.process_ended)  # a third Ctrl-C would meet it at its very end
        assert site.stop() == 0
        told = re.findall(r"run (\d+), gate", site.output.rpartition("Cut off mid-call")[2])
        assert [int(run) for run in told] == [run for run in runs if deed(site, run) == "started"]


def test_a_deploy_hands_every_run_to_the_other_worker_at_once(tmp_path: Path) -> None:
    """One is in a silent call, one in a streamed one, one in a deed: the first worker ends, the second goes on."""
    model = SilentFirst()
    lease = str(LONG_LEASE_S)
    with gated(tmp_path, LEASE_SECONDS=lease) as site, FakeModelServer(model) as server:
        deploy(site, server, model, tmp_path)


def deploy(site: Site, server: FakeModelServer, model: SilentFirst, tmp_path: Path) -> None:
    silent, streamed, deeds = launch(site, server, played(FINAL, model_s=60.0), played(DEED, FINAL))
    wait_for(lambda: model.at and held(site, streamed) and deed(site, deeds) == "started", PATIENCE_S)
    workers = {run: run_row(site, run)[1] for run in (silent, streamed, deeds)}
    first = site.pids["worker"]
    with second_worker(site):
        assert {run: run_row(site, run)[1] for run in workers} == workers
        told = time.monotonic()
        os.kill(first, signal.SIGTERM)
        wait_for(lambda: len(model.at) > 1, LONG_LEASE_S)
        assert model.at[1] - told < AT_ONCE_S
        wait_for(lambda: run_row(site, streamed)[1] not in ("", workers[streamed]), LONG_LEASE_S)
        assert time.monotonic() - told < AT_ONCE_S
        assert deed(site, deeds) == "started"
        open_gate(tmp_path)
        opened = time.monotonic()
        wait_for(lambda: ended(site, deeds), LONG_LEASE_S)
        assert time.monotonic() - opened < AT_ONCE_S
        wait_for(lambda: ended(site, silent), PATIENCE_S)  # before the second worker is told to end, too
        print(f"silent call: {model.at[1] - told:.2f} s")  # noqa: T201 (shown by pytest -s)
    for run in (silent, deeds):
        exported = site.export(str(run))
        assert (exported["run"]["status"], exported["interrupts"]) == ("succeeded", [])
        assert "recovered" not in {step["kind"] for step in exported["steps"]}
    halted_and_let_go_on(site, streamed)


def halted_and_let_go_on(site: Site, streamed: int) -> None:
    """The workers of other processes stop too, and go on without a loss."""
    wait_for(lambda: held(site, streamed), PATIENCE_S)
    site.manage("halt", "--reason", "fire drill")
    wait_for(lambda: run_row(site, streamed) == ("queued", "", 0), AT_ONCE_S)
    site.manage("unhalt")
    wait_for(lambda: held(site, streamed), AT_ONCE_S + 2)
    site.manage("abort", str(streamed))
