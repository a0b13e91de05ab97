"""A tool that reads with one argument and sends with another: asked about by the call, kept, replayed, exported."""

from __future__ import annotations

import json

import pytest

from runs import actions
from runs.models import Run
from runs.reading.script_export import launch_of
from tests.launching import FINAL, launch, script, think
from tests.running import decide, pending, work

pytestmark = pytest.mark.usefixtures("every_run_verifies")

VISIT = {
    "params": {"method": "string", "url": "string"},
    "required": ["method", "url"],
    "effects": "send",
    "reads_if": {"method": ["GET", "HEAD"]},
    "results": [{"output": "seen"}],
}
LOOK = think("visit", method="GET", url="https://api.test/1")
POST = think("visit", method="POST", url="https://api.test/2")


def made(run: Run) -> list[tuple[str, str]]:
    """Method and effect of the calls that were made."""
    calls = run.exchanges.filter(kind="tool_call", answer_json__isnull=False).order_by("seq")
    told = [json.loads(text) for text in calls.values_list("request_json", flat=True)]
    return [(call["args"]["method"], call["effects"]) for call in told]


def visiting() -> Run:
    return work(launch(played=script(LOOK, POST, FINAL, tools={"visit": VISIT})))


def test_only_the_call_that_sends_asks() -> None:
    run = visiting()
    question = pending(run)
    assert (question.effects, question.risk, question.args["method"]) == ("send", "high", "POST")
    assert made(run) == [("GET", "read")]
    decide(run, "approve")
    assert made(work(run)) == [("GET", "read"), ("POST", "send")]
    again, difference = actions.replay(run, by=None)
    assert (difference, made(again)) == (None, made(run))


def test_an_edit_to_another_method_does_what_that_does() -> None:
    run = visiting()
    decide(run, "edit", args={"method": "GET", "url": "https://api.test/2"})
    assert made(work(run)) == [("GET", "read"), ("GET", "read")]


def test_a_script_that_is_exported_asks_as_the_run_did() -> None:
    run = visiting()
    decide(run, "approve")
    told = launch_of(work(run))
    again = work(launch(played=told["script"], **told["settings"]))
    assert (again.status, made(again)) == ("succeeded", made(run))
    del told["settings"]["answers"]
    assert pending(work(launch(played=told["script"], **told["settings"]))).args["method"] == "POST"
