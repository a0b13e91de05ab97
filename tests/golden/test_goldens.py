"""A run that waits belongs to no version of the code: what earlier ones wrote is read, verified and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runs import actions, driver
from runs.models import Exchange, Run
from runs.reading import exporting, panels, rows
from runs.store import verifying
from tests.golden import keeping
from tests.golden.record import VERSION
from tests.golden.stories import STORIES, go_on

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

GOLDENS = keeping.all_of_them()
IDS = [f"{path.parent.name}-{path.stem}" for path in GOLDENS]


def outcome(run: Run) -> dict[str, Any]:
    """What a reader would call the run's result."""
    names = (
        "status",
        "exit_reason",
        "ok",
        "answer",
        "answer_source",
        "node",
        "head",
        "model_calls",
        "tool_calls",
    )
    return {name: getattr(run, name) for name in (*names, "input_tokens", "output_tokens", "cost_usd")}


def ended_as(golden: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], list[list[Any]]]:
    """The recorded results, and the recorded path."""
    runs = {row["id"]: row for row in golden["ends"]["Run"]}
    names = list(outcome(Run()))
    path = [
        [step["run_id"], step["seq"], step["kind"], step["node"], step["edge"], step["to"]]
        for step in sorted(golden["ends"]["Step"], key=lambda step: (step["run_id"], step["seq"]))
    ]
    return {key: {name: row[name] for name in names} for key, row in runs.items()}, path


def test_every_story_is_kept_of_this_version() -> None:
    assert {path.stem for path in GOLDENS if path.parent.name == VERSION} == {story.name for story in STORIES}


@pytest.mark.parametrize("path", GOLDENS, ids=IDS)
def test_what_ended_then_verifies_and_can_be_read(path: Path) -> None:
    golden = keeping.read(path)
    keeping.load(golden["ends"])
    for run in Run.objects.order_by("pk"):
        assert verifying.verify(run, driver.tool_specs(run)) is None
        assert run.finished
        assert len(rows.row_views(run)) == run.head
        assert set(panels.panels_of(run, None)) >= {"header", "answer"}
        assert exporting.export(run)["run"]["status"] == run.status


@pytest.mark.parametrize("path", GOLDENS, ids=IDS)
def test_what_waited_then_goes_on_now_and_ends_as_it_did(path: Path) -> None:
    golden = keeping.read(path)
    keeping.load(golden["waits"])
    run = Run.objects.get(pk=golden["run"])
    assert run.status == "waiting"
    go_on(run, tuple(golden["verdicts"]))
    results, wanted = ended_as(golden)
    runs = list(Run.objects.order_by("pk"))
    assert {one.pk: outcome(one) for one in runs} == results
    assert keeping.path_of(runs) == wanted


def test_a_golden_that_was_changed_does_not_verify() -> None:
    """The negative control."""
    golden = keeping.read(GOLDENS[0])
    step = golden["ends"]["Step"][1]
    step["facts_json"] = step["facts_json"].replace("a", "b", 1) + " "
    keeping.load(golden["ends"])
    run = Run.objects.get(pk=golden["run"])
    misfit = verifying.verify(run, driver.tool_specs(run))
    assert misfit is not None and misfit.seq == step["seq"]
    Exchange.objects.all().delete()
    Run.objects.all().delete()


@pytest.mark.parametrize("path", GOLDENS, ids=IDS)
def test_what_ended_then_is_replayed_as_it_was(path: Path) -> None:
    """The words of its questions too are those of its time."""
    golden = keeping.read(path)
    keeping.load(golden["ends"])
    made, difference = actions.replay(Run.objects.get(pk=golden["run"]), by=None)
    assert difference is None
    assert made.copied_upto == made.head
