"""Runs for open pages, launched at a command line."""

from __future__ import annotations

import json
import re
from typing import Any

from playwright.sync_api import Page

from tests.stack import Site

SEND = {
    "params": {"to": "string", "text": "string"},
    "required": ["to"],
    "effects": "send",
    "results": [{"output": "sent"}],
}

LOOK_UP = {
    "params": {"q": "string"},
    "required": ["q"],
    "effects": "read",
    "results": [{"output": "three results"}],
}

NOTE = {
    "params": {"text": "string"},
    "required": ["text"],
    "effects": "write",
    "results": [{"output": "noted"}],
}


def call(tool: str, **args: Any) -> dict[str, Any]:
    """A reply that calls a tool."""
    return {"thought": f"I use {tool}", "action": {"tool": tool, "args": args}}


def launch(site: Site, *replies: dict[str, Any], settings: dict[str, Any] | None = None) -> str:
    """A run of a script; its id."""
    script = {
        "replies": {"decision": [*replies, {"thought": "FINAL ANSWER: done", "action": None}]},
        "tools": {"send": SEND, "look_up": LOOK_UP, "note": NOTE},
    }
    said = site.manage(
        *("launch", "--machine", "ruled", "--goal", "Tell ann the news"),
        *("--settings", json.dumps(settings or {}), "--script", json.dumps(script)),
    )
    found = re.search(r"\d+", said)
    assert found is not None, said
    return found[0]


def rows_are_complete(site: Site, page: Page, run: str) -> None:
    """The page has every row of the run, once and in order."""
    head = site.export(run)["run"]["head"]
    seqs = page.locator("[data-rows] > [data-seq]").evaluate_all(
        "rows => rows.map(row => Number(row.dataset.seq))"
    )
    assert seqs == list(range(1, head + 1))
