"""Two sequences side by side, words that differ, and values that differ: nothing is lost, and length costs little."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runs.engine.values import canonical
from runs.reading.aligning import WINDOW, Mark, align, differing_words
from runs.reading.comparing_words import CHARACTERS, text_pieces, value_view
from runs.reading.differences import MISSING, differences_of

# --- aligning -----------------------------------------------------------------------------------------------------


def marks(text: str) -> list[Mark]:
    """A letter is a content; capitals are of another kind than small letters."""
    return [Mark(ord(letter), str(letter.isupper()), str(letter.isupper())) for letter in text]


@pytest.mark.parametrize(
    ("left", "right", "pairs"),
    [
        ("", "", []),
        ("abc", "abc", [(0, 0), (1, 1), (2, 2)]),
        ("ab", "", [(0, None), (1, None)]),
        ("abXc", "abc", [(0, 0), (1, 1), (2, None), (3, 2)]),
        ("abc", "axc", [(0, 0), (1, 1), (2, 2)]),
        ("aab", "aXab", [(0, 0), (None, 1), (1, 2), (2, 3)]),
        ("abcabc", "abc", [(0, 0), (1, 1), (2, 2), (3, None), (4, None), (5, None)]),
        ("ABab", "abAB", [(0, None), (1, None), (2, 0), (3, 1), (None, 2), (None, 3)]),
    ],
)
def test_what_belongs_together_stands_side_by_side(
    left: str, right: str, pairs: list[tuple[int | None, int | None]]
) -> None:
    assert align(marks(left), marks(right)) == pairs


def test_every_step_stands_once_and_in_order_and_equal_beginnings_together() -> None:
    chance = random.Random(4)
    for _ in range(300):
        letters = "aAbBcC"[: chance.randint(1, 6)]
        left, right = ("".join(chance.choices(letters, k=chance.randrange(40))) for _ in range(2))
        pairs = align(marks(left), marks(right))
        assert [i for i, _ in pairs if i is not None] == list(range(len(left)))
        assert [j for _, j in pairs if j is not None] == list(range(len(right)))
        assert all(
            left[i].isupper() == right[j].isupper() for i, j in pairs if i is not None and j is not None
        )


class Counted(Mark):
    """A mark that counts how often it is looked at."""

    looks = 0

    @property
    def place(self) -> str:
        Counted.looks += 1
        return "here"


def test_two_long_runs_that_share_nothing_cost_a_window_a_step() -> None:
    length = 5000
    Counted.looks = 0
    left = [Counted(number, "k", "") for number in range(length)]
    right = [Counted(-1 - number, "k", "") for number in range(length)]
    assert align(left, right) == [(place, place) for place in range(length)]
    assert Counted.looks < 6 * WINDOW * length  # the square would be 25 million pairs


def test_words_that_differ_are_marked_and_nothing_is_lost() -> None:
    left, right = differing_words("The moon makes tides.", "The moon and the sun make tides.")
    assert [piece.text for piece in left if piece.changed] == ["makes"]
    assert [piece.text for piece in right if piece.changed] == ["and the sun make"]
    chance = random.Random(7)
    for _ in range(500):
        one, other = (" ".join(chance.choices("abcd", k=chance.randrange(15))) for _ in range(2))
        pieces = differing_words(one, other)
        assert ["".join(piece.text for piece in side) for side in pieces] == [one, other]


def test_texts_with_little_in_common_are_two_texts() -> None:
    left, right = differing_words("Nobody answers here.", "42 results in 3 pages")
    assert [(piece.changed) for piece in (*left, *right)] == [False, False]


def test_a_huge_value_is_shown_around_its_first_difference() -> None:
    same = "word " * 20_000
    left, right = text_pieces(f"{same}moon {same}", f"{same}sun {same}")
    for pieces, word in ((left, "moon"), (right, "sun")):
        text = "".join(piece.text for piece in pieces)
        assert word in text
        assert len(text) < CHARACTERS + 200
        assert "characters the same" in text
        assert "more characters" in text


# --- differences --------------------------------------------------------------------------------------------------


def of(**args: Any) -> dict[str, Any]:
    return {"edge": None, "to": None, "call": {"tool": "search", "args": args}, "facts": []}


def test_arguments_are_compared_field_by_field_and_by_type() -> None:
    left = of(q="moon", n=1, deep={"a": 1, "b": [1, 2]}, gone=None)
    right = of(q="moon", n=True, deep={"a": 1, "b": [1, 3]}, new="x")
    found = {one.name: (one.left, one.right) for one in differences_of(left, right)}
    assert found == {
        "n": (1, True),
        "deep.b": ([1, 2], [1, 3]),
        "gone": (None, MISSING),
        "new": (MISSING, "x"),
    }
    assert [one.name for one in differences_of(of(n=1), of(n="1"))] == ["n"]
    assert differences_of(left, left) == []


def saved(args: dict[str, Any], value: Any = "ok") -> dict[str, Any]:
    fact = {"kind": "react.tool.result", "tool": "save", "value": value, "error": None}
    return {"edge": "ok", "to": "t", "call": {"tool": "save", "args": args}, "facts": [fact]}


def decided(thought: str, /, **args: Any) -> dict[str, Any]:
    fact = {"kind": "react.decision", "thought": thought, "tool": "note", "args": args}
    return {"edge": "ok", "to": "x", "facts": [fact]}


def told(left: dict[str, Any], right: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.left, one.right) for one in differences_of(left, right, "ruled")]


def test_values_of_one_name_stand_beside_each_other() -> None:
    for name in ("result", "error", "tool", "edge", "next state"):
        assert told(saved({name: "A"}), saved({name: "B"}))[0][1:] == ("A", "B")
    assert told(saved({"result": "A"}), saved({"result": "B"})) == [("arguments.result", "A", "B")]
    assert told(saved({"result": "A"}, 1), saved({"result": "A"}, 2)) == [("result", 1, 2)]
    assert told(decided("left", thought="s"), decided("right", thought="s")) == [("thought", "left", "right")]
    assert told(decided("s", thought="left"), decided("s", thought="right")) == [
        ("arguments.thought", "left", "right")
    ]
    both = told(of(**{"a.b": 1, "a": {"b": 2}}), of(**{"a.b": 3, "a": {"b": 4}}))
    assert [sides for _, *sides in both] == [[1, 3], [2, 4]]


def test_a_name_that_only_one_side_has_is_told_apart_too() -> None:
    assert told(saved({}), saved({"result": "B"})) == [("arguments.result", MISSING, "B")]
    assert told(saved({}), saved({"q": "B"})) == [("q", MISSING, "B")]


def test_what_has_no_name_for_readers_is_told_whole() -> None:
    def noticed(code: str) -> dict[str, Any]:
        return {"edge": None, "to": None, "facts": [{"kind": "react.notice", "code": code, "message": "No."}]}

    (found,) = differences_of(noticed("one"), noticed("two"))
    assert (found.name, found.left[0]["code"], found.right[0]["code"]) == ("facts", "one", "two")


NAMES = st.sampled_from(
    ["result", "tool", "edge", "error", "thought", "args", "text", "message", "q", "a.b", "a", "b", ""]
)
VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 1.0, "", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ARGS = st.dictionaries(NAMES, VALUES, max_size=3)
FACTS = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("react.decision"), "thought": VALUES, "tool": st.sampled_from("ab"), "args": ARGS}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("react.tool.result"), "value": VALUES, "error": st.none() | st.text(max_size=1)}
    ),
    st.fixed_dictionaries(
        {"kind": st.just("react.notice"), "code": st.sampled_from("ab"), "message": st.sampled_from("ab")}
    ),
    st.builds(
        lambda kind, rest: {**rest, "kind": kind},
        st.sampled_from(["x.began", "y.began", "x.thought"]),
        ARGS,
    ),
)
STEPS = st.fixed_dictionaries(
    {
        "edge": st.sampled_from([None, "ok"]),
        "to": st.sampled_from([None, "t"]),
        "facts": st.lists(FACTS, max_size=3),
    },
    optional={"call": st.fixed_dictionaries({"tool": st.sampled_from("ab"), "args": ARGS})},
)


@given(STEPS, STEPS)
@settings(max_examples=300, deadline=None)
@example(saved({"result": "A"}), saved({"result": "B"}))
@example(decided("left", thought="s"), decided("right", thought="s"))
@example(of(**{"a.b": 1, "a": {"b": 2}}), of(**{"a.b": 3, "a": {"b": 2}}))
@example(of(x={"": 1}), of(x=1))
def test_two_steps_that_are_not_the_same_have_a_difference(
    left: dict[str, Any], right: dict[str, Any]
) -> None:
    found = differences_of(left, right)
    assert bool(found) == (canonical(left) != canonical(right))
    assert all(one.name for one in found)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, "1"),
        ("a\nb", "a\r\nb"),
        ("moon", "moon\u200b"),
        ("\u202e", "\\u202e"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_values_that_look_alike_are_written_so_that_they_differ(left: Any, right: Any) -> None:
    (found,) = differences_of(of(q=left), of(q=right))
    view = value_view(found)
    texts = ["".join(piece.text for piece in side) for side in (view.left, view.right)]
    assert texts[0] != texts[1]
    assert "\u200b" not in texts[1]
    assert all(text.isprintable() or "\n" in text for text in texts)
