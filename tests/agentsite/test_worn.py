"""A real site and what wears it down: runs that kill their workers, a frozen worker, a sleep, a clock that is set."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.store.leases import MOST_LOST
from tests.agentsite.wearing import (
    ENVIRON,
    Clock,
    begun,
    launch,
    longest_gap,
    lost,
    questions,
    rows,
    still,
    succeeded,
    suspend,
)
from tests.stack import LONGEST_S, Site, running_site, wait_for

pytestmark = pytest.mark.stack

LEASE_S = 3.0
SHORT = ENVIRON | {"LEASE_SECONDS": str(LEASE_S), "LOG_LEVEL": "INFO"}
REPLACED_S = 30.0
"""A stopped worker is noticed within 2 s; a new one takes a few more to start, where the cores are busy."""


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One site with a short lease for all that a site has to bear."""
    with running_site(tmp_path_factory.mktemp("worn") / "data", SHORT) as site:
        yield site
        site.manage("verify", "--all")


def test_a_run_gets_one_process_of_its_own_for_each_worker_that_is_lost_on_it(worn: Site) -> None:
    """However often it is hinted at while it waits for one."""
    ids = launch(worn, *((f"beside {n}", [("work_key", 1500)] * 3) for n in range(12)))
    wait_for(lambda: begun(worn) == len(ids))
    worn.back("worker", worn.kill9("worker"))
    wait_for(lambda: still(worn), 2 * LONGEST_S)
    log = (worn.data_dir / "logs" / "worker.log").read_text()
    started = Counter(map(int, re.findall(r"run (\d+) gets a process of its own", log)))
    assert started == Counter({run: lost(worn, run) for run in ids})
    assert succeeded(worn, ids) == len(ids) and not questions(worn, ids)


def test_runs_that_kill_their_workers_take_down_one_and_no_neighbour_is_asked_about(worn: Site) -> None:
    """A neighbour's call is made again with its key, or the far side is asked whether it happened."""
    died, scheduler = worn.output.count("The worker died"), worn.pids["scheduler"]
    pills = ("pill_read", "pill_write_key", "pill_send_asked", "pill_send")
    slow = [(tool, 700 + 300 * n) for tool in ("work_key", "work_asked") for n in range(3)]
    ids = launch(
        worn,
        *((f"beside {n}", [call] * 3) for n, call in enumerate(slow)),
        *((pill, [(pill, 400)]) for pill in pills),
    )
    wait_for(lambda: still(worn), 2 * LONGEST_S)
    beside, killers = ids[: len(slow)], ids[len(slow) :]
    assert succeeded(worn, beside) == len(beside) and not questions(worn, beside)
    assert questions(worn, killers) == ["manual", *["may_have_happened"] * 3]
    assert all(lost(worn, run) >= MOST_LOST for run in killers[:-1])
    assert worn.output.count("The worker died") == died + 1
    assert worn.pids["scheduler"] == scheduler


def test_a_site_that_slept_asks_nobody_about_calls_that_ended(worn: Site) -> None:
    ids = launch(worn, *((f"run {n}", [("work", 2000)] * 2) for n in range(10)))
    wait_for(lambda: begun(worn) > 2)
    suspend(worn, 2 * LEASE_S)
    wait_for(lambda: still(worn))
    assert succeeded(worn, ids) == len(ids) and not questions(worn, ids)


def test_a_worker_that_is_frozen_inside_a_write_is_replaced_and_the_site_goes_on(tmp_path: Path) -> None:
    """Nothing can be written until `up` has killed it; then its runs go on, long before their leases run out."""
    environ = SHORT | {"FAILPOINTS": "inside_commit:freeze:25", "LEASE_SECONDS": "600"}
    with running_site(tmp_path / "data", environ) as site:
        ids = launch(site, *((f"run {n}", [("work_key", 50)] * 6) for n in range(4)))
        gap = longest_gap(site, lambda: still(site), 2 * LONGEST_S)
        assert "The worker was stopped (SIGSTOP) and is replaced." in site.output
        assert gap < REPLACED_S
        assert succeeded(site, ids) == len(ids)


@pytest.mark.skipif(not Clock.can_be_set(), reason="The clock is set by a library that a C compiler makes.")
def test_a_clock_that_is_set_asks_nobody_and_stops_nothing(tmp_path: Path) -> None:
    """Set back by an hour, by ten minutes more, and ahead again."""
    clock = Clock(tmp_path)
    with running_site(tmp_path / "data", SHORT | clock.environ) as site:
        for ahead in (-3600, -4200, 0):
            ids = launch(site, *((f"run {n}", [("work", 1000), *[("work_key", 20)] * 8]) for n in range(6)))
            wait_for(lambda: begun(site) > 0)
            clock.set(ahead)
            wait_for(lambda: still(site))
            assert succeeded(site, ids) == len(ids) and not questions(site, ids)
        assert rows(site, "SELECT id FROM runs_run WHERE ended_at < datetime(created_at, '-59 minutes')")
