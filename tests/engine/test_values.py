"""The one door: whatever comes in, what is stored is plain, bounded JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.engine.values import (
    MAX_DEPTH,
    MAX_NODES,
    MAX_TEXT,
    add_cost,
    canonical,
    clean,
    clean_text,
    fingerprint,
)


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


class Level(IntEnum):
    HIGH = 3


class Rude:
    """An object that can't even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@dataclass
class Pair:
    one: int
    other: str


CUT = "… [cut: too deep or too large]"

HOSTILE: dict[str, tuple[Any, Any]] = {
    "NUL": ("a\x00b", "a\u2400b"),
    "a lone high surrogate": ("a\ud800b", "a\ufffdb"),
    "a lone low surrogate": ("\udc00", "\ufffd"),
    "a surrogate pair": ("\ud83d\ude00", "\U0001f600"),
    "not a number": (math.nan, "nan"),
    "infinity": (math.inf, "inf"),
    "minus infinity": (-math.inf, "-inf"),
    "a float that overflows": (1.7e308, "1.7e+308"),
    "the smallest float": (5e-324, 5e-324),
    "minus zero": (-0.0, -0.0),
    "an integer past 2**53": (2**53 + 1, "9007199254740993"),
    "an integer at 2**53": (-(2**53), -(2**53)),
    "an integer of 5,000 digits": (10**5000, "an integer of 16610 bits"),
    "bytes": (b"abc", "abc"),
    "bytes that are no UTF-8": (b"\xff\x00", "\ufffd\u2400"),
    "a set": ({7}, [7]),
    "a tuple": ((1, (2,)), [1, [2]]),
    "keys that are no texts": (
        {1: "a", None: "b", b"c": "d", (1, 2): "e"},
        {"1": "a", "None": "b", "c": "d", "(1, 2)": "e"},
    ),
    "a key with a NUL and a surrogate": ({"\x00\ud800": 1}, {"\u2400\ufffd": 1}),
    "a key of 5,000 digits": ({10**5000: 1}, {"an integer of 16610 bits": 1}),
    "a date": (
        datetime(2026, 1, 2, tzinfo=UTC),
        "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)",
    ),
    "a decimal": (Decimal("1.10"), "Decimal('1.10')"),
    "a fraction past all digits": (Fraction(10**5000), "[Fraction: can't be shown (ValueError)]"),
    "an enum": (Level.HIGH, 3),
    "an object": (Pair(1, "x"), "Pair(one=1, other='x')"),
    "an object that can't be shown": (Rude(), "[Rude: can't be shown (RuntimeError)]"),
    "booleans and nothing": ([True, False, None], [True, False, None]),
}


@pytest.mark.parametrize("kind", list(HOSTILE))
def test_hostile_values(kind: str) -> None:
    value, expected = HOSTILE[kind]
    cleaned = clean(value)
    assert cleaned == expected
    assert type(cleaned) in (type(expected), Level)
    text = canonical(cleaned)
    text.encode("utf-8")
    assert "\x00" not in text
    assert json.loads(text) == cleaned
    assert clean(cleaned) == cleaned


def test_5000_levels_are_cut_at_the_depth() -> None:
    cleaned = clean(deep(5000))
    levels = 0
    while isinstance(cleaned, list):
        cleaned, levels = cleaned[0], levels + 1
    assert (cleaned, levels) == (CUT, MAX_DEPTH + 1)


def test_what_is_not_too_deep_is_left_alone() -> None:
    assert clean(deep(MAX_DEPTH)) == deep(MAX_DEPTH)


def test_a_million_items_are_cut() -> None:
    cleaned = clean([0] * 1_000_000)
    assert len(cleaned) <= MAX_NODES + 1
    assert cleaned[-1] == "… [cut: too large]"


def test_a_million_keys_are_cut() -> None:
    cleaned = clean(dict.fromkeys(range(1000000), 0))
    assert len(cleaned) <= MAX_NODES + 1
    assert cleaned["…"] == "[cut: too large]"


def test_wide_and_deep_together_are_cut() -> None:
    cleaned = clean([[[0] * 500] * 500] * 500)
    assert canonical(cleaned).count("0") <= MAX_NODES


def test_a_value_that_holds_itself_is_cut() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert canonical(clean(loop)).count("[") < 100


def test_a_long_text_is_cut_with_a_count() -> None:
    cleaned = clean("x" * (MAX_TEXT + 5))
    assert cleaned == "x" * MAX_TEXT + "… [5 characters cut]"
    assert clean("x" * MAX_TEXT) == "x" * MAX_TEXT


hostile = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=20)
    | st.binary(max_size=20)
    | st.decimals(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.binary(max_size=3), inner, max_size=4)
        | st.tuples(inner)
    ),
    max_leaves=12,
)


@given(hostile)
def test_whatever_comes_in_json_comes_out(value: Any) -> None:
    cleaned = clean(value)
    text = canonical(cleaned)
    text.encode("utf-8")
    assert json.loads(text, parse_constant=_no_constant) == cleaned
    assert clean(cleaned) == cleaned, "nothing was cut, so cleaning again changes nothing"
    assert canonical(json.loads(text)) == text


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=5))
def test_one_value_has_one_spelling(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical(clean(value)) == canonical(clean(backwards))
    assert fingerprint("tool", clean(value)) == fingerprint("tool", clean(backwards))


def test_the_canonical_spelling_has_no_blanks_and_sorted_keys() -> None:
    assert canonical({"b": [1, 2.5, None], "a": "é"}) == '{"a":"é","b":[1,2.5,null]}'


def test_canonical_takes_no_nan() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        canonical(math.nan)


def test_a_fingerprint_stands_for_tool_and_arguments() -> None:
    prints = {
        fingerprint("a", {}),
        fingerprint("b", {}),
        fingerprint("a", {"x": 1}),
        fingerprint("a", {"x": "1"}),
    }
    assert len(prints) == 4
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in prints)


def test_costs_do_not_drift() -> None:
    total = 0.0
    for _ in range(1000):
        total = add_cost(total, 0.1)
    assert total == 100.0


@given(st.text(max_size=60))
def test_a_clean_text_stays_as_it_is(text: str) -> None:
    assert clean_text(clean_text(text)) == clean_text(text)
