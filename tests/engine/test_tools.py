"""Arguments against a tool's schema: what blocks a call, and what is dropped."""

from __future__ import annotations

from typing import Any

import pytest

from runs.engine.effects import ToolCall
from runs.engine.tools import ToolSpec, check_arguments, mismatch


def spec(required: list[str] | None = None, **properties: Any) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": required or []}
    return ToolSpec(name="search", effects="read", parameters=parameters)


VALUES: dict[str, Any] = {
    "string": "x",
    "integer": 3,
    "number": 2.5,
    "boolean": True,
    "object": {"a": 1},
    "array": [1],
    "null": None,
}


@pytest.mark.parametrize("kind", list(VALUES))
@pytest.mark.parametrize("given", list(VALUES))
def test_types(kind: str, given: str) -> None:
    """A boolean is neither integer nor number; an integer is a number."""
    fits = kind == given or (kind == "number" and given == "integer")
    assert (mismatch({"type": kind}, VALUES[given]) == "") is fits


def test_a_required_argument_of_the_wrong_type_is_a_fault() -> None:
    checked = check_arguments(spec(["n"], n={"type": "integer"}), {"n": True})
    assert [(fault.code, fault.param, fault.message) for fault in checked.faults] == [
        ("type_mismatch", "n", "search: n must be an integer, not a boolean.")
    ]
    assert checked.args == {}


@pytest.mark.parametrize("args", [{}, {"q": None}])
def test_absent_and_null_are_missing(args: dict[str, Any]) -> None:
    checked = check_arguments(spec(["q"], q={"type": "string"}), args)
    assert [(fault.code, fault.message) for fault in checked.faults] == [
        ("missing_required", "search needs the argument q.")
    ]


def test_null_is_missing_even_where_the_schema_would_take_it() -> None:
    checked = check_arguments(spec(["q"], q={"type": ["string", "null"]}), {"q": None})
    assert [fault.code for fault in checked.faults] == ["missing_required"]


def test_an_optional_argument_of_the_wrong_type_is_dropped_and_the_call_goes_on() -> None:
    checked = check_arguments(
        spec(["q"], q={"type": "string"}, n={"type": "integer"}), {"q": "x", "n": "three"}
    )
    assert (checked.args, checked.faults) == ({"q": "x"}, ())
    assert [(drop.code, drop.message) for drop in checked.drops] == [
        ("param_dropped", "search: n must be an integer, not a string; dropped.")
    ]


def test_an_unknown_argument_is_dropped() -> None:
    checked = check_arguments(spec(), {"colour": "red"})
    assert (checked.args, checked.faults) == ({}, ())
    assert [(drop.code, drop.param) for drop in checked.drops] == [("unknown_param", "colour")]


def test_dropped_ones_come_before_unknown_ones() -> None:
    checked = check_arguments(spec(n={"type": "integer"}), {"colour": "red", "n": "x"})
    assert [drop.code for drop in checked.drops] == ["param_dropped", "unknown_param"]


def test_missing_ones_come_before_wrong_ones() -> None:
    checked = check_arguments(spec(["n", "q"], n={"type": "integer"}, q={"type": "string"}), {"n": "x"})
    assert [fault.code for fault in checked.faults] == ["missing_required", "type_mismatch"]


def test_an_optional_null_is_as_good_as_absent() -> None:
    checked = check_arguments(spec(n={"type": "integer"}), {"n": None})
    assert (checked.args, checked.faults, checked.drops) == ({}, (), ())


def test_a_null_that_the_schema_takes_is_kept() -> None:
    assert check_arguments(spec(n={"type": ["integer", "null"]}), {"n": None}).args == {"n": None}


def test_a_required_argument_that_the_schema_does_not_describe_is_passed_on() -> None:
    checked = check_arguments(spec(["q"]), {"q": [1]})
    assert (checked.args, checked.faults, checked.drops) == ({"q": [1]}, (), ())


@pytest.mark.parametrize("properties", [True, {}, {"description": "anything"}, {"type": "whatever"}])
def test_a_schema_that_says_nothing_takes_anything(properties: Any) -> None:
    assert check_arguments(spec(["q"], q=properties), {"q": {"a": 1}}).args == {"q": {"a": 1}}


# --- of a call that changes something nothing is left out -------------------------------------------------


def changing(effects: Any = "write") -> ToolSpec:
    properties = {
        "path": {"type": "string"},
        "older_than_days": {"type": "integer"},
        "dry_run": {"type": "boolean"},
        "only": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"size": {"type": "integer"}},
                "required": ["size"],
                "additionalProperties": False,
            },
        },
    }
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    return ToolSpec(name="purge", effects=effects, parameters=parameters)


@pytest.mark.parametrize("effects", ["write", "send", "execute"])
@pytest.mark.parametrize(
    ("args", "code", "why"),
    [
        (
            {"older_than_days": "30"},
            "type_mismatch",
            "purge: older_than_days must be an integer, not a string; mend it, or take it out.",
        ),
        (
            {"dry_run": "true"},
            "type_mismatch",
            "purge: dry_run must be a boolean, not a string; mend it, or take it out.",
        ),
        ({"dryRun": True}, "unknown_param", "purge has no argument dryRun; take it out."),
        (
            {"only": [{"size": "5"}]},
            "type_mismatch",
            "purge: only is not right at 0: it is not right at size: it must be an integer, not a string; "
            "mend it, or take it out.",
        ),
        (
            {"only": [{"size": 5, "age": 3}]},
            "type_mismatch",
            "purge: only is not right at 0: it has no member age; mend it, or take it out.",
        ),
        (
            {"only": [{}]},
            "type_mismatch",
            "purge: only is not right at 0: it needs the member size; mend it, or take it out.",
        ),
    ],
)
def test_what_another_call_would_lose_is_a_fault_of_a_changing_one(
    effects: str, args: dict[str, Any], code: str, why: str
) -> None:
    checked = check_arguments(changing(effects), {"path": "/var/log", **args})
    assert [(fault.code, fault.message) for fault in checked.faults] == [(code, why)]
    assert checked.drops == ()
    assert [drop.param for drop in check_arguments(changing("read"), {"path": "/", **args}).drops] == [*args]


def test_the_faults_of_required_ones_come_first_and_unknown_ones_last() -> None:
    checked = check_arguments(changing(), {"dryRun": True, "dry_run": "no", "path": 5})
    assert [(fault.code, fault.param) for fault in checked.faults] == [
        ("type_mismatch", "path"),
        ("type_mismatch", "dry_run"),
        ("unknown_param", "dryRun"),
    ]


def test_a_number_without_a_fraction_is_an_integer_however_deep_it_stands() -> None:
    checked = check_arguments(changing(), {"path": "/", "older_than_days": 30.0, "only": [{"size": 5.0}]})
    assert checked.faults == ()
    assert repr(checked.args) == "{'path': '/', 'older_than_days': 30, 'only': [{'size': 5}]}"


@pytest.mark.parametrize(
    ("schema", "value", "passed"),
    [
        ({"type": "number"}, 30.0, "30.0"),
        ({"type": ["integer", "number"]}, 30.0, "30.0"),
        ({"type": ["integer", "null"]}, 30.0, "30"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 30.0, "30"),
        ({"type": "integer"}, -0.0, "0"),
        (True, 30.0, "30.0"),
    ],
)
def test_only_where_the_schema_wants_an_integer_a_number_becomes_one(
    schema: Any, value: Any, passed: str
) -> None:
    assert repr(check_arguments(spec(["n"], n=schema), {"n": value}).args["n"]) == passed


@pytest.mark.parametrize("number", [30.5, 1e17, True])
def test_any_other_number_is_no_integer(number: Any) -> None:
    assert mismatch({"type": "integer"}, number)


def test_a_schema_that_takes_further_arguments_has_no_unknown_ones() -> None:
    parameters = {"type": "object", "additionalProperties": {"type": "integer"}}
    checked = check_arguments(
        ToolSpec(name="set", effects="write", parameters=parameters), {"a": 1.0, "b": "x"}
    )
    assert (checked.args, [fault.code for fault in checked.faults]) == ({"a": 1}, ["type_mismatch"])


@pytest.mark.parametrize("parameters", [{}, {"properties": None, "required": None}])
def test_a_tool_without_parameters_takes_none(parameters: dict[str, Any]) -> None:
    bare = ToolSpec(name="now", effects="none", parameters=parameters)
    assert check_arguments(bare, {}).faults == ()
    assert [drop.code for drop in check_arguments(bare, {"x": 1}).drops] == ["unknown_param"]


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"enum": ["a", "b"]}, "c", "must be one of a, b"),
        ({"enum": ["a", "b"]}, "a", ""),
        ({"const": 1}, 2, "must be 1"),
        ({"type": "integer", "minimum": 1}, 0, "must be at least 1"),
        ({"type": "integer", "maximum": 5}, 6, "must be at most 5"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, 5, ""),
        ({"type": "string", "minLength": 2}, "a", "must have at least 2 characters"),
        ({"type": "string", "maxLength": 2}, "abc", "must have at most 2 characters"),
        ({"type": "string", "pattern": "^a"}, "ba", "must match ^a"),
        ({"type": "string", "pattern": "^a", "x-must": "must begin with a"}, "ba", "must begin with a"),
        ({"type": "string", "pattern": "^a", "x-must": "must begin with a"}, "ab", ""),
        ({"type": "string", "pattern": "^a$"}, "a\n", "must match ^a$"),
        ({"type": "string", "pattern": r"^[$]\$$"}, "$$", ""),
        ({"type": "string", "pattern": "(?<broken"}, "x", ""),
        ({"type": ["string", "integer"]}, [], "must be a string or an integer, not an array"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, ""),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1.5, "must be a string, not a number"),
        ({"anyOf": []}, 1, ""),
    ],
)
def test_what_a_schema_demands(schema: dict[str, Any], value: Any, wrong: str) -> None:
    assert mismatch(schema, value) == wrong


def test_a_model_reads_no_sentence_of_a_pattern() -> None:
    said = spec(["q"], q={"type": "string", "pattern": "^a", "x-must": "must begin with a"}, more=True)
    shown = {"q": {"type": "string", "pattern": "^a"}, "more": True}
    assert said.shown == {**said.parameters, "properties": shown}
    named = ToolSpec(name="search", effects="read", parameters={"properties": {"x-must": {"type": "string"}}})
    assert named.shown == named.parameters


# --- calls that only read -----------------------------------------------------------------------------------


VISIT = ToolSpec(name="visit", effects="send", reads_if={"method": ("GET", "HEAD")})


@pytest.mark.parametrize(
    ("args", "effects"),
    [({"method": "GET"}, "read"), ({"method": "POST"}, "send"), ({}, "send"), ({"method": "get"}, "send")],
)
def test_what_a_call_does_may_follow_from_an_argument(args: dict[str, Any], effects: str) -> None:
    assert VISIT.call_with(args) == ToolCall(tool="visit", args=args, effects=effects)


def test_a_tool_without_such_an_argument_is_stored_as_before() -> None:
    assert "reads_if" not in spec().model_dump()
    assert VISIT.model_dump()["reads_if"] == {"method": ("GET", "HEAD")}
