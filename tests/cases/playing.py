"""Plays a case of ../shared/cases/wire: the provider's answers as they were sent, and the launch that met them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runs import actions
from runs.models import ModelProfile, Run
from tests.fake_model_server import FakeModelServer, Sends
from tests.running import work

WIRE = Path(__file__).resolve().parents[3] / "shared" / "cases" / "wire"

only_with_cases = pytest.mark.skipif(
    not WIRE.is_dir(), reason="the shared cases are not beside this checkout"
)


def played(name: str) -> tuple[Run, int]:
    """Play a case to its end; the run, and how often the provider was asked."""
    case = json.loads((WIRE / f"{name}.json").read_text())
    responses = [_as_sent(response) for response in case["responses"]]
    launch, number = case["launch"], iter(range(10_000))
    with FakeModelServer(lambda asked: responses[min(next(number), len(responses) - 1)]) as server:
        ModelProfile.objects.create(
            name=launch["settings"]["model"],
            base_url=server.base_url,
            model_id="gpt-4o",
            input_price=2.5,
            output_price=10.0,
        )
        run = actions.start_run(owner=None, **launch)
        return work(run), len(server.asked)


def _as_sent(response: dict[str, Any]) -> Sends:
    headers = {"content-type": "application/json"} | response["headers"]
    return Sends(response["body"].encode(), response["status"], tuple(headers.items()))
