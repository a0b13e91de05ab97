"""Negative controls: a machine that is broken in one way breaks the law that is about it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from runs.engine.effects import Answer
from runs.engine.facts import Exited, Fact
from runs.engine.machine import Edge, Machine
from runs.engine.moves import Ask, Go
from runs.machines.ruled import RULED
from runs.machines.ruled.facts import StepCommitted
from runs.machines.ruled.state import RuledState
from tests import worlds
from tests.machines import laws

TRIES = 80
TOO_MANY = 800
"""Rows after which a run counts as endless; the sound machine ends before, in the same worlds."""


def breaks(law: laws.Law, machine: Machine) -> bool:
    """Whether one of a fixed lot of random worlds breaks the law."""
    for seed in range(TRIES):
        dice = random.Random(seed)
        data, stubborn = dice.randbytes(dice.randrange(60, 300)), dice.randrange(8)
        try:
            law(machine, data, stubborn, dice.randrange(laws.MOST_GIFTS + 1))
        except AssertionError:
            return True
    return False


def with_evolve(evolve: Callable[[Any, Fact], Any]) -> Machine:
    return replace(RULED, evolve=evolve)


def with_commit(commit: Callable[[RuledState, Answer | None], Ask | Go]) -> Machine:
    return replace(RULED, nodes={**RULED.nodes, "commit": commit})


def forgetful() -> Machine:
    """Its fold depends on more than the facts."""
    clock = count()

    def evolve(state: Any, fact: Fact) -> Any:
        after = RULED.evolve(state, fact)
        return (
            after.model_copy(update={"rejections": next(clock)}) if isinstance(fact, StepCommitted) else after
        )

    return with_evolve(evolve)


def unspeakable() -> Machine:
    """Its state holds what JSON can't."""

    def evolve(state: Any, fact: Fact) -> Any:
        after: Any = RULED.evolve(state, fact)
        if fact.kind == "react.decision" and after.draft.tool:
            draft = after.draft.model_copy(update={"args": {**after.draft.args, "pair": (1, 2)}})
            return after.model_copy(update={"draft": draft})
        return after

    return with_evolve(evolve)


def short_cut() -> Machine:
    """It declares an edge that its table does not have."""
    edges = tuple(
        Edge("validate", "retry", "validate") if edge.name == "retry" else edge for edge in RULED.edges
    )
    return replace(RULED, edges=edges)


def endless() -> Machine:
    """It never has enough."""

    def commit(state: RuledState, answer: Answer | None) -> Ask | Go:
        return Go("continue", (StepCommitted(number=min(state.steps + 1, state.settings.max_steps - 1)),))

    return with_commit(commit)


def greedy() -> Machine:
    """It takes one step too many."""

    def commit(state: RuledState, answer: Answer | None) -> Ask | Go:
        if state.steps < state.settings.max_steps:
            return Go("continue", (StepCommitted(number=state.steps + 1),))
        return RULED.nodes["commit"](state, answer)

    return with_commit(commit)


def fickle() -> Machine:
    """It changes its mind about why it ends."""

    def evolve(state: Any, fact: Fact) -> Any:
        if fact.kind == "ruled.step.committed":
            state = state.model_copy(update={"exit_reason": "max_steps"})
        after = RULED.evolve(state, fact)
        return after.model_copy(update={"exit_reason": fact.reason}) if isinstance(fact, Exited) else after

    return with_evolve(evolve)


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (laws.replay, forgetful),
        (laws.resume, forgetful),
        (laws.survive_json, unspeakable),
        (laws.graph, short_cut),
        (laws.halt, endless),
        (laws.budget, greedy),
        (laws.one_exit, fickle),
    ],
)
def test_the_law_bites(law: laws.Law, broken: Callable[[], Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "TOO_MANY_ROWS", TOO_MANY)
    assert breaks(law, broken())
    assert not breaks(law, RULED)
