"""Forms that hold more than anyone writes are refused within a second, with the limit, and keep what was written."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs import actions
from runs.engine.values import MAX_DEPTH, MAX_NODES, clean, is_too_large
from runs.models import Run
from tests.cast import alice, bob, cast_member, signed_in
from tests.launching import run_with_letter, sent
from tests.pages import fork_form, send_card
from tests.stack import A_BUSY_SECOND

pytestmark = [pytest.mark.django_db]

NUMBERS = f"[{','.join(['0'] * 2_000_000)}]"
RULES = json.dumps([{"when": {"tool": "write_*"}, "do": "ask"}] * 50_000)
FAULTY_RULES = json.dumps([{"then": "ask"}] * 50_000)
ANSWERS = json.dumps({"answers": [{"verdict": "approve"}] * 100_000})

TOO_LONG = "characters; the limit is 1,000,000."
TOO_MANY = "This may have at most 500 entries; it has "

FILLED_IN = {"goal": "Look.", "model": "script", "script": '{"replies": []}', "asks": "writes"}
FILLED_IN |= {"on_limit": "ask", "on_retries": "ask", "on_clarify": "ask"}


@contextmanager
def within_a_second() -> Iterator[None]:
    """Of this process's own time, so that a busy machine is not taken for a slow site."""
    began = time.process_time()
    yield
    assert time.process_time() - began < A_BUSY_SECOND


@pytest.fixture
def browser() -> Client:
    """Somebody who may launch; what every first page needs is loaded."""
    client = signed_in(cast_member("dora", "operators", "reviewers"))
    client.get("/runs/new/")
    return client


LAUNCHES = {
    "2,000,000 numbers among the settings": ("ruled", "more", f'{{"skills": {NUMBERS}}}', TOO_LONG),
    "2,000,000 numbers as rules": ("ruled", "rules", NUMBERS, TOO_LONG),
    "2,000,000 numbers as rules on thoughts": ("ruled", "ruleset", NUMBERS, TOO_LONG),
    "2,000,000 numbers as slots": ("contract", "slots_json", NUMBERS, TOO_LONG),
    "2,000,000 numbers as hints": ("contract", "hints", f'{{"a": {NUMBERS}}}', TOO_LONG),
    "2,000,000 numbers as a plan": ("planned", "rows_json", NUMBERS, TOO_LONG),
    "2,000,000 digits as a limit": ("ruled", "max_steps", "9" * 2_000_000, "Enter a whole number"),
    "1,500,000 lines as a plan": ("checklist", "steps", "x\n" * 1_500_000, TOO_LONG),
    "50,000 rules": ("ruled", "rules", RULES, TOO_LONG),
    "50,000 faulty rules": ("ruled", "rules", FAULTY_RULES, "values on 64 levels at most."),
    "4,000 faulty rules": ("ruled", "rules", json.dumps([{"then": 1}] * 4000), f"{TOO_MANY}4,000."),
    "100,000 answers": ("ruled", "more", ANSWERS, TOO_LONG),
    "6,000 answers": (
        "ruled",
        "more",
        json.dumps({"answers": [{"verdict": "x"}] * 6000}),
        f"{TOO_MANY}6,000.",
    ),
    "6,000 names": ("ruled", "more", json.dumps({f"n{n}": n for n in range(6000)}), TOO_MANY),
    "6,000 children": (
        "ruled",
        "more",
        json.dumps({"subgraphs": {f"n{n}": {"machine": "ruled"} for n in range(6000)}}),
        f"{TOO_MANY}6,000.",
    ),
    "6,000 rules of a child": (
        "ruled",
        "more",
        json.dumps({"subgraphs": {"sub": {"machine": "ruled", "settings": {"rules": [{}] * 6000}}}}),
        f"subgraphs.sub.settings.rules: {TOO_MANY}6,000.",
    ),
}


@pytest.mark.parametrize(("machine", "field", "text", "sentence"), LAUNCHES.values(), ids=LAUNCHES)
def test_a_launch_is_refused_with_the_limit_and_keeps_what_was_written(
    machine: str, field: str, text: str, sentence: str, browser: Client
) -> None:
    with within_a_second():
        answer = browser.post("/runs/new/", {**FILLED_IN, "machine": machine, field: text})
    assert answer.status_code == 422
    page = unescape(answer.content.decode())
    assert sentence in page
    assert text.strip()[:60] in page
    assert not Run.objects.exists()


def test_many_rows_that_are_all_wrong_are_refused_within_a_second(browser: Client) -> None:
    rows = {f"slots-{number}-id": "x" * 1000 for number in range(240)}
    with within_a_second():
        answer = browser.post("/runs/new/", {**FILLED_IN, "machine": "contract", **rows})
    assert answer.status_code == 422


def test_many_tools_that_are_not_there_are_refused_within_a_second(browser: Client) -> None:
    with within_a_second():
        answer = browser.post(
            "/runs/new/", {**FILLED_IN, "machine": "ruled", "tools": [f"tool_{n}" for n in range(900)]}
        )
    assert answer.status_code == 422


FORKS = {
    "2,000,000 numbers as settings": ("settings", f'{{"a": {NUMBERS}}}', TOO_LONG),
    "50,000 rules": ("settings", f'{{"rules": {RULES}}}', TOO_LONG),
    "100,000 answers": ("settings", ANSWERS, TOO_LONG),
    "4,000 faulty rules": ("settings", json.dumps({"rules": [{"then": 1}] * 4000}), f"{TOO_MANY}4,000."),
    "2,000,000 numbers as a control value": ("state-metadata", f'{{"a": {NUMBERS}}}', TOO_LONG),
    "2,000,000 numbers as arguments": ("args", f'{{"a": {NUMBERS}}}', TOO_LONG),
    "many short numbers as arguments": ("args", f"[{','.join(['0'] * 30_000)}]", "20,000 values"),
}


@pytest.mark.parametrize(("field", "text", "sentence"), FORKS.values(), ids=FORKS)
def test_a_fork_is_refused_with_the_limit_and_keeps_what_was_written(
    field: str, text: str, sentence: str, browser: Client
) -> None:
    run = sent(User.objects.get(username="dora"))
    filled_in = fork_form(run, 3) | {"verdict": "approve", field: text}
    with within_a_second():
        answer = browser.post(f"/runs/{run.pk}/fork/", filled_in)
    assert answer.status_code == 422
    page = unescape(answer.content.decode())
    assert sentence in page and text[:60] in page
    assert Run.objects.count() == 1


DECISIONS = {
    "2,000,000 numbers": ("arg.tags", NUMBERS, f"tags has 4,000,001 {TOO_LONG}"),
    "100,000 texts": ("arg.tags", json.dumps(["x"] * 100_000), "tags is too large: at most 20,000 values."),
    "2,000,000 digits": ("arg.copies", "9" * 2_000_000, "copies must be a whole number."),
    "2,000,000 brackets": ("arg.tags", "[" * 2_000_000, TOO_LONG),
}


@pytest.mark.parametrize(("field", "text", "sentence"), DECISIONS.values(), ids=DECISIONS)
def test_arguments_are_refused_with_the_limit_and_stay_on_the_card(
    field: str, text: str, sentence: str
) -> None:
    run, client = run_with_letter(alice()), signed_in(bob())
    client.get(f"/runs/{run.pk}/")
    with within_a_second():
        answer = send_card(client, run, "approve", **{field: text})
    assert answer.status_code == 422
    page = unescape(answer.content.decode())
    assert sentence in page and text[:60] in page


@pytest.mark.parametrize(
    "settings", [{"answers": [{"verdict": "approve"}] * 100_000}, {"skills": [0] * 2_000_000}]
)
def test_what_comes_by_another_way_than_a_form_is_refused_as_soon(settings: dict[str, Any]) -> None:
    with within_a_second(), pytest.raises(actions.BadLaunch, match="at most"):
        actions.check_launch(machine="ruled", goal="Look.", settings=settings, owner=alice(), script="{}")


@pytest.mark.parametrize(
    ("value", "cut"),
    [
        ([0] * (MAX_NODES - 1), False),
        ([0] * MAX_NODES, True),
        ({str(n): [n] for n in range(MAX_NODES // 2)}, True),
        ("x", False),
        (json.loads("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)), False),
        (json.loads("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2)), True),
    ],
    ids=["as many", "one more", "as many in pairs", "a text", "as deep", "one deeper"],
)
def test_too_large_is_what_would_be_cut(value: Any, cut: bool) -> None:  # noqa: FBT001
    assert is_too_large(value) is cut
    assert (clean(value) != value) is cut
