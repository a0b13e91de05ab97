"""Each answer of a provider in ../shared/cases/wire does what is right (its README), from the wire to the run's end.

Not here: `wire_ollama_truncating` (a warning on the row); what a reply that was cut off does is in
`test_shared_cut.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine.effects import ANSWER, Failed, ModelReplied
from runs.models import Run
from tests.cases.playing import WIRE, only_with_cases, played
from tests.running import pending

pytestmark = [only_with_cases, pytest.mark.usefixtures("every_run_verifies")]

READ = ("wire_content_list_whole", "wire_native_call_stop", "wire_sse_as_json")
PRICED = {"wire_usage_cost": 0.0246, "wire_cached_usage": 0.07054}
ENDED = ("wire_anthropic_overflow", "wire_err200_402")
WAITED = ("wire_r429",)
ELSEWHERE = ("wire_length_parses", "wire_reasoning_only_forever", "wire_ollama_truncating")


def answers(run: Run) -> list[Any]:
    """What the model answered, call by call."""
    found = run.exchanges.filter(kind="model_call", answer_json__isnull=False).order_by("seq")
    return [ANSWER.validate_json(text or "") for text in found.values_list("answer_json", flat=True)]


def test_every_case_has_a_test() -> None:
    assert {path.stem for path in WIRE.glob("*.json")} == {*READ, *PRICED, *ENDED, *WAITED, *ELSEWHERE}


@pytest.mark.parametrize("name", [*READ, *PRICED])
def test_a_reply_in_another_form_is_read(name: str) -> None:
    run, asked = played(name)
    assert (run.status, run.answer, asked) == ("succeeded", "93", 2)
    assert run.exchanges.get(kind="tool_call").name == "calculator"


def test_parts_of_type_thinking_stand_beside_the_reply() -> None:
    run, _ = played("wire_content_list_whole")
    first = answers(run)[0]
    assert isinstance(first, ModelReplied)
    assert first.reasoning == "Twelve by seven."
    assert "Twelve" not in first.text


@pytest.mark.parametrize(("name", "cost"), PRICED.items())
def test_a_run_costs_what_its_provider_charges(name: str, cost: float) -> None:
    run, _ = played(name)
    assert run.cost_usd == pytest.approx(cost)


def test_a_prompt_that_is_too_long_is_sent_once_more_without_old_results() -> None:
    run, asked = played("wire_anthropic_overflow")
    assert (run.exit_reason, asked) == ("model_error", 2)
    assert [answer.kind for answer in answers(run)] == ["context_overflowed"] * 2


def test_an_account_without_credit_is_told_in_the_providers_words_and_not_asked_again() -> None:
    run, asked = played("wire_err200_402")
    failed = answers(run)[0]
    assert isinstance(failed, Failed)
    assert (run.status, asked, failed.blame) == ("waiting", 1, "fatal")
    assert "402" in failed.message
    assert "Insufficient credits. Add more at the credits page" in pending(run).why


def test_a_run_waits_as_long_as_its_provider_asks() -> None:
    run, asked = played("wire_r429")
    failed = answers(run)[0]
    assert isinstance(failed, Failed)
    assert (run.status, run.answer, asked, failed.wait_s) == ("succeeded", "93", 3, 3.0)
