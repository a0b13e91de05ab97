"""Runs that make files."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from runs import actions
from runs.adapters.folder import KEPT
from runs.models import Run
from runs.store import creating
from tests.launching import FINAL, launch, script, think
from tests.running import transitions, work


def made(name: str, text: str) -> dict[str, str]:
    """A file of a scripted result."""
    return {"name": name, "text": text}


def saving(*results: Any, effects: str = "read", **parts: Any) -> dict[str, Any]:
    """A scripted tool that makes files."""
    return {"effects": effects, "results": [{"output": "ok", "files": files} for files in results], **parts}


def run_saving(*results: Any, **settings: Any) -> Run:
    """A `ruled` run that calls the tool as often as there are results."""
    replies = [think("save", n=number) for number in range(len(results))]
    tool = saving(*results) | {"params": {"n": "integer"}}
    return work(launch(played=script(*replies, FINAL, tools={"save": tool}), **settings))


def kept_in(run: Run) -> set[str]:
    """What is kept by its digest."""
    return {path.name for path in (creating.folder_of(run.pk) / KEPT).iterdir()}


def render(*outputs: tuple[str, str], tool: str = "save") -> dict[str, Any]:
    declared = [{"name": name, "kind": kind} for name, kind in outputs]
    call = {"tool_id": tool, "params": {}, "out_artifacts": declared}
    return {"action": "call_tool", "strategy": "explore", "tool_call": call}


def contract_run(*decisions: Any, **tools: Any) -> Run:
    done = {"action": "complete", "completion_summary": "Done."}
    played = {"replies": {"decision": [*decisions, done]}, "tools": tools}
    return work(actions.start_run(machine="contract", goal="g", settings={}, owner=None, script=played))


def gone_back() -> Run:
    """Two versions of a.txt and one of b.txt; the run went back to the first, and waits."""
    results = ([made("a.txt", "one")], [made("a.txt", "two"), made("b.txt", "x")])
    replies = [think("save", n=number) for number in range(2)]
    tool = saving(*results) | {"params": {"n": "integer"}}
    played = script(*replies, FINAL, tools={"save": tool})
    run = work(launch(played=played, interrupt_every=2))
    assert run.status == "waiting"
    actions.rewind(run, to=transitions(run, "executed")[0], by=None)
    run.refresh_from_db()
    return run


def png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
