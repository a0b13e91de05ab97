"""Runs that read private data and contact hosts."""

from __future__ import annotations

import json
from typing import Any

from runs.models import Run
from tests.launching import FINAL, launch, script, think

DIARY = {"params": {}, "effects": "read", "reads": "private", "results": [{"output": "my diary"}]}

VISIT = {
    "params": {"url": "string"},
    "required": ["url"],
    "effects": "read",
    "outward": "url",
    "reads": "untrusted",
    "results": [{"output": "a page"}],
}

PLAYED = {"diary": DIARY, "visit": VISIT}

READ, GO, AGAIN = (
    think("diary"),
    think("visit", url="https://api.test/?d=1"),
    think("visit", url="https://api.test/2"),
)

OTHER = think("visit", url="https://other.test/")


def launched(*replies: Any, **settings: Any) -> Run:
    return launch(played=script(*replies, FINAL, tools=PLAYED), **settings)


def visited(run: Run) -> list[str]:
    """The addresses that calls went to."""
    calls = run.exchanges.filter(kind="tool_call", name="visit", answer_json__isnull=False).order_by("seq")
    return [json.loads(text)["args"]["url"] for text in calls.values_list("request_json", flat=True)]
