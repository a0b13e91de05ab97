"""What the run page says of the rules of `ruled`."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest

from runs import actions
from runs.models import Run
from runs.reading import panels
from tests.launching import FINAL, SEARCH, USAGE, launch, script, think
from tests.running import decide, work

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("every_run_verifies")]

GUESS = {"thought": "I guess it is noon", "action": {"tool": "search", "args": {"q": "tides"}}}
LOOK = think("search", q="tides")


def panel(run: Run) -> str:
    """The machine's own part as plain text."""
    text = re.sub(r"<[^>]+>", " ", panels.panels_of(Run.objects.get(pk=run.pk), None)["machine"])
    return html.unescape(" ".join(text.split()))


def test_before_the_first_thought_the_rules_stand_there() -> None:
    shown = panel(launch(FINAL, ruleset=[{"type": "max_depth", "value": 7}]))
    assert "No thought checked yet." in shown
    assert "max depth at most 7 steps not broken; breaking it ends the run" in shown


def test_thoughts_that_passed_and_failed_are_counted_by_rule_with_the_step() -> None:
    run = work(launch(GUESS, GUESS, LOOK, FINAL))
    assert run.status == "succeeded"
    shown = panel(run)
    assert "2 of 4 thoughts passed" in shown
    rejected = run.steps.filter(edge="retry").order_by("-seq")[0].seq
    assert re.search(rf"forbid guessing none of .* broken 2 times step {rejected} ", shown)
    assert "a tool is used before the answer not broken" in shown


def test_a_retry_that_goes_on_says_why_and_counts() -> None:
    run = work(launch(GUESS, GUESS, GUESS, GUESS))
    assert run.status == "waiting"
    shown = panel(run)
    assert "Retries in a row 4 of 3" in shown
    assert "Retry" in shown and "I guess" in shown


def test_the_cost_stands_against_its_rule() -> None:
    run = work(launch(LOOK, FINAL, ruleset=[{"type": "cost_limit", "value": 0.01}]))
    assert "Cost by the rule $0.002 of $0.01" in panel(run)


def test_a_rule_that_ended_the_run_is_broken_once() -> None:
    dear: Any = {**USAGE, "cost_usd": 0.6}
    played = {**script(LOOK, FINAL, tools={"search": SEARCH}), "usage": dear}
    run = work(launch(played=played))
    assert run.exit_reason == "cost_limit"
    assert "cost limit at most $0.500 broken 1 time; breaking it ends the run" in panel(run)


def test_what_people_said_and_rollbacks_are_listed() -> None:
    run = work(launch(LOOK, think("send", to="bob"), LOOK, FINAL))
    decide(run, "reject", message="Not to bob.")
    work(run)
    at = run.steps.filter(kind="transition").order_by("seq")[0].seq
    assert "Not to bob." in panel(run)
    again = work(launch(LOOK, think("send", to="bob"), FINAL))
    actions.rewind(again, to=at, by=None, message="Not by mail.")
    assert "Not by mail." in panel(again)
    mark = again.steps.get(kind="rewind").seq
    assert f"Rolled back to step {at}" in panel(again) and f"( step {mark} )" in panel(again)


def test_without_rules_the_panel_says_so() -> None:
    assert "No rules: every thought passes." in panel(work(launch(FINAL, ruleset=[])))
