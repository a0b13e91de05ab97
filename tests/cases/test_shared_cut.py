"""A reply that was cut off is never carried out, though what there is of it may parse."""

from __future__ import annotations

import pytest

from runs.engine.effects import ANSWER
from runs.models import Artifact
from tests.cases.playing import only_with_cases, played

pytestmark = [only_with_cases, pytest.mark.usefixtures("every_run_verifies")]


def test_a_reply_that_was_cut_off_writes_no_file_and_the_model_is_told() -> None:
    run, asked = played("wire_length_parses")
    assert not run.exchanges.filter(kind="tool_call").exists()
    assert not Artifact.objects.filter(run=run, name="report.md").exists()
    first = run.exchanges.filter(kind="model_call").earliest("seq")
    assert ANSWER.validate_json(first.answer_json or "").model_dump()["ended"] == "length"
    assert (run.status, run.answer, asked) == ("succeeded", "93", 2)


def test_only_reasoning_gets_one_more_try_with_more_room_and_an_end_that_names_the_cause() -> None:
    run, asked = played("wire_reasoning_only_forever")
    assert (run.status, asked) == ("failed", 2)
    last = run.steps.latest("seq")
    assert "no JSON object" not in last.facts_json
    assert "cut" in last.facts_json
