"""Each machine goes its whole way with a model of each provider, as it does with the script."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runs import actions
from runs.engine.effects import ANSWER, ModelReplied
from runs.models import ModelProfile, Run
from tests.adapters.dialects import MODELS, reply
from tests.fake_model_server import FakeModelServer
from tests.golden.stories import demonstration
from tests.running import decide, work

pytestmark = pytest.mark.usefixtures("every_run_verifies")

kinds = pytest.mark.parametrize("kind", MODELS)


def to_its_end(run: Run) -> Run:
    """Approve what the demonstration asks."""
    while run.status == "waiting":
        decide(run, "approve")
        run = work(run)
    return run


def said_in(run: Run) -> list[str]:
    """What the model said, call by call."""
    answers = run.exchanges.filter(kind="model_call").order_by("seq").values_list("answer_json", flat=True)
    read: list[Any] = [ANSWER.validate_json(text or "") for text in answers]
    return [answer.text for answer in read if isinstance(answer, ModelReplied)]


@kinds
@pytest.mark.parametrize("machine", ["contract", "checklist", "planned", "ruled"])
def test_a_machine_goes_its_way_in_every_providers_dialect(kind: str, machine: str) -> None:
    played = to_its_end(demonstration(machine)())
    assert played.status == "succeeded"
    settings = json.loads(played.settings_json) | {"model": "tiny"}
    said = said_in(played)
    with FakeModelServer([reply(kind, text=text) for text in said]) as server:
        about = {"base_url": server.base_url, "model_id": MODELS[kind], "input_price": 1.0}
        ModelProfile.objects.create(name="tiny", kind=kind, **about)
        run = actions.start_run(owner=None, machine=machine, goal=played.goal, settings=settings)
        run = to_its_end(work(run))
        assert len(server.asked) == len(said), run.exit_reason
    assert (run.status, run.answer) == ("succeeded", played.answer)
    assert said_in(run) == said
    assert run.cost_usd > 0
