"""Settings: unknown keys, mixed moments and empty tests are refused; what was given survives JSON."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from runs.engine.settings import LIMIT_NAMES, ArgumentTest, InterruptRule, Limits, Settings, When


@pytest.mark.parametrize(
    "settings",
    [
        {"no_such": 1},
        {"limits": {"cost_usd": -1}},
        {"limits": {"tokens": 1.5}},
        {"limits": {"seconds": 1}},
        {"on_limit": "maybe"},
        {"interrupt_every": 0},
        {"rules": [{"do": "maybe"}]},
        {"rules": [{"when": {"tools": "x"}, "do": "ask"}]},
        {"rules": [{"when": {"args": {"x": {}}}, "do": "ask"}]},
        {"rules": [{"when": {"args": {"x": {"is": 1}}}, "do": "ask"}]},
        {"rules": [{"when": {"same_call": 0}, "do": "ask"}]},
        {"rules": [{"when": {"tool": "x", "every_n_steps": 2}, "do": "ask"}]},
        {"rules": [{"when": {"next_cost_usd": 1, "first_step": True}, "do": "ask"}]},
        {"rules": [{"when": {}, "do": "ask", "deadline_s": 0}]},
        {"subgraphs": {"Bad Name": {"machine": "ruled"}}},
        {"answers": [{"verdict": "maybe"}]},
        {"context": {"compact_at": 0}},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(settings)


@pytest.mark.parametrize(
    "test",
    [
        {"equals": None},
        {"equals": 1},
        {"in": [1, None]},
        {"like": "a*"},
        {"not_like": "b", "equals": "c"},
        {"lt": 1.5, "gt": 0},
    ],
)
def test_a_test_on_an_argument_survives_json_as_it_was_given(test: dict[str, Any]) -> None:
    """An `equals: null` is a test; an `equals` that nobody gave is none."""
    given = ArgumentTest.model_validate(test)
    assert given.model_dump(mode="json") == test
    again = ArgumentTest.model_validate_json(given.model_dump_json())
    assert (again, again.model_fields_set) == (given, given.model_fields_set)


def test_a_rule_survives_json_inside_the_settings() -> None:
    rule = {
        "when": {"tool": "send_*", "args": {"to": {"not_like": "*@example.com"}}},
        "do": "ask",
        "deadline_s": 3600,
    }
    settings = Settings.model_validate({"rules": [rule], "limits": {"tokens": 5}})
    again = Settings.model_validate_json(settings.model_dump_json())
    assert again == settings
    test = (again.rules[0].when.args or {})["to"]
    assert test.model_fields_set == {"not_like"}


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"do": "deny"}, "deny when any tool is called"),
        ({"do": "ask", "name": "No mail to strangers"}, "No mail to strangers"),
        (
            {"do": "ask", "when": {"tool": "send_*", "args": {"to": {"not_like": "*@example.com"}}}},
            "ask when tool send_*, to not like *@example.com",
        ),
        ({"do": "ask", "when": {"effects": ["send", "write"]}}, "ask when effects send or write"),
        ({"do": "notify", "when": {"every_n_steps": 3}}, "notify when every 3 steps"),
        ({"do": "ask", "when": {"first_step": True}}, "ask when before the first step"),
        ({"do": "ask", "when": {"same_call": 2}}, "ask when the same call 2 times"),
        ({"do": "deny", "when": {"next_cost_usd": 0.5}}, "deny when next cost above $0.5"),
        ({"do": "ask", "when": {"args": {"n": {"in": [1, 2]}}}}, "ask when n in [1, 2]"),
    ],
)
def test_a_rule_reads_as_words(rule: dict[str, Any], words: str) -> None:
    assert InterruptRule.model_validate(rule).words() == words


def test_tools_are_named_once_each() -> None:
    assert Settings(tools=("a", "b", "a")).tools == ("a", "b")


def test_a_limit_that_is_not_set_is_none() -> None:
    assert [Limits(tokens=0).of(name) for name in LIMIT_NAMES] == [None, 0, None]


def test_what_a_rule_looks_at() -> None:
    assert When().about_calls
    assert When(same_call=2).about_calls
    assert not When(every_n_steps=2).about_calls
    assert not When(next_cost_usd=0).about_calls


@pytest.mark.parametrize(
    "given",
    [
        {"limits": {"tokens": 10**60}},
        {"limits": {"tokens": "9" * 60}},
        {"limits": {"cost_usd": 1e300}},
        {"limits": {"active_seconds": float("inf")}},
        {"rules": [{"do": "ask", "deadline_s": 1e300}]},
        {"interrupt_every": 10**60},
    ],
)
def test_numbers_that_nothing_can_count_to_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(given)
