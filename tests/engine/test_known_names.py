"""The names that a model knows at a place of its data."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from runs.engine.known_names import known_beside
from runs.engine.values import Value


class Leaf(Value):
    """Data of one name."""

    leaf: int = 0


class Other(Value):
    """Data of another name."""

    other: int = 0


class Tree(Value):
    """Data in every form that holds other data."""

    one: Leaf = Leaf()
    many: tuple[Leaf, ...] = ()
    named: dict[str, Leaf] = {}
    checked: dict[Annotated[str, Field(pattern="^a")], Leaf] = {}
    either: Leaf | Other | None = None
    below: Tree | None = None
    number: int = 0


NAMES = [*Tree.model_fields]


@pytest.mark.parametrize(
    ("place", "known"),
    [
        (["x"], NAMES),
        (["one", "x"], ["leaf"]),
        (["many", 3, "x"], ["leaf"]),
        (["named", "b", "x"], ["leaf"]),
        (["checked", "ab", "x"], ["leaf"]),
        (["either", "Other", "x"], ["leaf", "other"]),
        (["below", "below", "x"], NAMES),
        (["number", "x"], []),
    ],
)
def test_the_names_of_a_place(place: list[int | str], known: list[str]) -> None:
    assert known_beside(Tree, place) == known
