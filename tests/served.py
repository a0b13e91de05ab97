"""Runs whose model is a server, which may be busy or away."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from runs import driver
from runs.models import ModelProfile, Run
from tests.fake_model_server import FakeModelServer, Refuses, Says
from tests.launching import launch
from tests.running import make_due

SAYS_93 = Says({"thought": "FINAL ANSWER: 93", "action": None})

BUSY = Refuses(503, {"message": "All slots are taken."})

SLOW_DOWN = Refuses(429, {"message": "Slow down."}, (("Retry-After", "37"),))

NO_CREDIT = Refuses(402, {"message": "The plan ended in June."})


def launched(server: FakeModelServer, **fields: Any) -> Run:
    settings = {name: fields.pop(name) for name in ("limits", "rules") if name in fields}
    about = {"base_url": server.base_url, "model_id": "tiny-1"} | fields
    ModelProfile.objects.update_or_create(name="tiny", defaults=about)
    return launch(goal="Work out 12*7+9", model="tiny", on_retries="stop", on_limit="stop", **settings)


def once(run: Run) -> Run:
    """Let a worker drive the run until it leaves it."""
    make_due(run.pk)
    driver.drive(run.pk)
    run.refresh_from_db()
    return run


def waits_of(run: Run) -> list[float]:
    """The waits that the run has asked for, in order."""
    requests = run.exchanges.filter(kind="model_call").order_by("seq").values_list("request_json", flat=True)
    waited = [json.loads(text).get("waited_s", 0) for text in requests]
    return [after - before for before, after in pairwise(waited)]


PROFILE = {
    "name": "tiny",
    "kind": "openai",
    "enabled": "on",
    "base_url": "http://127.0.0.1:9000/v1",
    "model_id": "tiny-1",
    "output_mode": "native",
    "context_tokens": "4096",
    "max_output_tokens": "500",
    "timeout_s": "60",
    "patience_s": "600",
}
