"""A run that is read while it moves: what is read is of one moment."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress

import pytest
from django.core.management import call_command
from django.db import DatabaseError

from runs.driver import Slice
from runs.models import Run
from runs.reading import as_test, exporting, script_export
from runs.store import db
from tests.launching import ALLOW, FINAL, launch, think
from tests.running import in_threads, just_after, work
from tests.workers import slice_of

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]


def moving_run() -> Run:
    """A run that is not at its end."""
    run = launch(think("search", q="a"), think("send", to="bob"), think("search", q="b"), FINAL, rules=ALLOW)
    slice_of(run, Slice(moves=4))
    assert run.status == "queued" and run.head > 3
    return run


def moving_on(run: Run) -> Callable[[], object]:
    """Let a worker drive the run to its end, meanwhile."""
    return lambda: in_threads(1, lambda _: work(Run.objects.get(pk=run.pk)))


def test_an_export_has_the_rows_and_exchanges_of_its_head() -> None:
    run = moving_run()
    with just_after("runs_exchange", moving_on(run)):
        told = exporting.export(run)
    assert len(told["steps"]) == told["run"]["head"] == run.head
    assert told["run"]["status"] == "queued"
    assert work(run).head > len(told["steps"])
    assert exporting.export(run)["run"]["head"] == run.head


def test_nothing_that_is_written_while_something_is_read_stays() -> None:
    run = launch(FINAL)
    with suppress(DatabaseError), db.snapshot():
        Run.objects.filter(pk=run.pk).update(goal="written by who only reads")
    assert Run.objects.get(pk=run.pk).goal == run.goal


def test_an_export_of_a_run_that_was_read_earlier_is_of_now() -> None:
    run = moving_run()
    work(Run.objects.get(pk=run.pk))
    told = exporting.export(run)
    assert told["run"]["status"] == "succeeded"
    assert len(told["steps"]) == told["run"]["head"]


def test_a_script_and_a_test_of_a_moving_run_are_of_one_moment() -> None:
    run = moving_run()
    script, test = script_export.launch_of(run), as_test.pytest_file(run)
    with just_after("runs_exchange", moving_on(run)):
        assert script_export.launch_of(run) == script
    assert work(run).finished
    assert script_export.launch_of(run) != script
    assert as_test.pytest_file(run) != test


@pytest.mark.parametrize("words", [["--all"], []])
def test_a_run_that_moves_while_it_is_verified_fits(words: list[str]) -> None:
    run = moving_run()
    out = io.StringIO()
    with just_after("runs_step", moving_on(run)):
        call_command("verify", *(words or [str(run.pk)]), stdout=out)
    assert "steps verified" in out.getvalue() or "1 run verifies" in out.getvalue()
    assert work(run).finished
