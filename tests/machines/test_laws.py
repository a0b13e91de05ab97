"""The laws of docs/invariants.md, "The laws of the kernel", for every machine, in random worlds.

`--hypothesis-profile=ci` plays WORLDS of them; without it a tenth.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs.engine.effects import (
    ANSWER,
    EFFECT,
    Answer,
    ChildFinished,
    Failed,
    HumanSaid,
    ModelCall,
    ModelReplied,
    Summarised,
    ToolCall,
    ToolReturned,
)
from runs.engine.machine import END, Machine, State
from runs.engine.settings import LIMIT_NAMES
from runs.engine.tools import check_arguments
from runs.machines import CATALOGUE
from tests.machines import tables
from tests.machines.plays import play_of
from tests.machines.tapes import Tape, TapedWorld
from tests.worlds import Run, folded

MOST_GIFTS = 12
MOST_DEATHS = 3

GIFT_ROWS = 5
"""Rows that one gift brings by itself: the question, the decision, the limit or the rewind, a release."""

COMPACTION_ROWS = 4
"""Rows that one compaction brings before a call: three attempts at the summary, and its row."""

LAWS = 9
WORLDS = 6_000 if settings.get_current_profile_name() == "ci" else 600
"""Of all machines and laws together."""

every_machine = pytest.mark.parametrize("machine", CATALOGUE.values(), ids=list(CATALOGUE))


def worlds() -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A tape, whether it goes on for ever, and what people may give."""
    tapes = given(
        data=st.binary(min_size=30, max_size=300),
        stubborn=st.integers(0, 7),
        gifts=st.integers(0, MOST_GIFTS),
    )
    each = max(5, WORLDS // (LAWS * len(CATALOGUE)))
    quietly = settings(max_examples=each, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda law: tapes(quietly(law))


def world_of(machine: Machine, data: bytes, stubborn: int, gifts: int) -> tuple[TapedWorld, Run]:
    world = TapedWorld(play_of(machine), Tape(data, stubborn), gifts, MOST_DEATHS)
    return world, world.start(machine)


def test_every_machine_is_played() -> None:
    assert all(play_of(machine) for machine in CATALOGUE.values())


@every_machine
@worlds()
def test_replay(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """Folding the log gives the stored state, after every row."""
    world, run = world_of(machine, data, stubborn, gifts)
    states: dict[int, State] = {}

    def fold_the_row(run: Run) -> None:
        row = run.rows[-1]
        facts = machine.facts.validate_python(json.loads(json.dumps(row.facts)))
        before = states[facts[0].to_seq] if row.kind == "rewind" else states[max(states, default=0)]
        states[row.seq] = machine.fold(before, facts)
        assert states[row.seq] == run.snapshot.state
        assert states[row.seq] == run.state_of(row)

    states[0] = machine.open(run.terms)
    run.watchers.append(fold_the_row)
    run.drive(world)
    assert folded(run) == run.snapshot.state


@every_machine
@worlds()
def test_resume(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """Stop after any row and go on elsewhere: the same log."""
    world, run = world_of(machine, data, stubborn, gifts)
    stored = [run.stored(world)]
    place = data[0] % 5
    while run.step(world):
        if len(stored) <= 3 and len(run.rows) % 5 == place:
            stored.append(run.stored(world))
    for text in stored:
        elsewhere = TapedWorld(play_of(machine), Tape(data, stubborn), 0, 0)
        again = Run.load(text, machine, elsewhere).drive(elsewhere)
        assert again.log() == run.log()
        assert again.snapshot == run.snapshot


@every_machine
@worlds()
def test_survive_json(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """State, facts, effects, answers and settings come out of JSON as they went in."""
    world, run = world_of(machine, data, stubborn, gifts)

    def look(run: Run) -> None:
        row, pending = run.rows[-1], run.snapshot.pending
        assert machine.facts.validate_json(json.dumps(row.facts, allow_nan=False)) == row.told
        assert run.state_of(row) == run.snapshot.state
        if row.kind == "ask":
            assert pending and EFFECT.validate_json(json.dumps(row.effect, allow_nan=False)) == pending.effect

    run.watchers.append(look)
    run.drive(world)
    for answer in run.answers:
        assert ANSWER.validate_json(ANSWER.dump_json(answer)) == answer
    settings = run.terms.settings
    text = settings.model_dump_json()
    assert machine.settings.model_validate_json(text) == settings
    assert machine.settings.model_validate_json(text).model_dump_json() == text


@every_machine
@worlds()
def test_graph(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """Only declared edges are taken, one after the other."""
    world, run = world_of(machine, data, stubborn, gifts)
    run.drive(world)
    declared = {(edge.source, edge.name, edge.target) for edge in machine.edges}
    edges = tables.EDGES.get(machine.name, declared)
    at = machine.start
    for row in run.rows:
        assert row.node == at
        if row.kind == "transition":
            assert (row.node, row.edge, row.to) in edges
        elif row.kind == "stop":
            assert (row.edge, row.to) == (None, END)
        else:
            assert row.kind == "rewind" or row.to == at
        at = row.to
    assert [row.seq for row in run.rows] == list(range(1, len(run.rows) + 1))


@every_machine
@worlds()
def test_halt(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """A run ends within its bound, whatever anybody says; only a person's gift and a lost worker move the bound."""
    world, run = world_of(machine, data, stubborn, gifts)
    run.drive(world)
    given_away = gifts - world.gifts + MOST_DEATHS - world.deaths
    rows = play_of(machine).rows(run) * (1 + (COMPACTION_ROWS if run.window() else 0))
    bound = (rows + GIFT_ROWS) * (1 + given_away)
    assert run.ended
    assert len(run.rows) <= bound


@every_machine
@worlds()
def test_budget(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """A gating counter never passes its cap."""
    world, run = world_of(machine, data, stubborn, gifts)
    play = play_of(machine)

    def look(run: Run) -> None:
        for line in machine.budget(run.state):
            if line.name not in play.advisory and not line.scope.startswith("stage"):
                over = run.rows[-1].state[play.overdrawn[line.name]] if line.name in play.overdrawn else 0
                assert 0 <= line.used <= line.limit + over, line

    run.watchers.append(look)
    run.drive(world)


@every_machine
@worlds()
def test_one_exit(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """The reason is written once, and is one of those that are declared."""
    world, run = world_of(machine, data, stubborn, gifts)
    run.drive(world)
    reasons = [row.state["exit_reason"] for row in run.rows if row.live and row.state["exit_reason"]]
    for earlier, later in pairwise(reasons):
        assert later in (earlier, play_of(machine).reworded.get(earlier))
    assert run.exit_reason == reasons[-1]
    assert run.exit_reason in machine.exit_reasons
    assert sum(row.to == END for row in run.rows) == 1
    assert run.status in ("succeeded", "stopped", "failed", "cancelled")


@every_machine
@worlds()
def test_nothing_passes_the_gates_unseen(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """A call fits its schema, is permitted, was allowed by a rule or a person, and no limit was reached before it."""
    world, run = world_of(machine, data, stubborn, gifts)
    rules = run.terms.settings.rules
    allowing = [rule for rule in rules if rule.do in ("allow", "notify") and rule.when.about_calls]

    def look(run: Run) -> None:
        row = run.rows[-1]
        pending = run.snapshot.pending
        if row.kind != "ask" or row.attempt > 1 or pending is None:
            return
        effect = pending.effect
        if isinstance(effect, ToolCall):
            spec = run.terms.tools.get(effect.tool)
            if spec is not None:  # `final_answer` is built in, and its machine checks it
                assert spec.permitted
                assert check_arguments(spec, effect.args).args == effect.args
                assert not check_arguments(spec, effect.args).faults
            if not effect.repeatable and not allowing:
                assert _decided_before(run) in ("approve", "edit", "top_up")
        if (isinstance(effect, ToolCall) and not effect.infra) or (
            isinstance(effect, ModelCall) and effect.at_limit != "pass" and not effect.sanitize
        ):
            for name in LIMIT_NAMES:
                limit = run.snapshot.limits.get(name)
                assert limit is None or run.totals.used(name) < limit

    run.watchers.append(look)
    run.drive(world)


def _decided_before(run: Run) -> Any:
    """The verdict right before the last row."""
    decision = next(row for row in reversed(run.rows[:-1]) if row.kind != "limit")
    return decision.facts[0]["verdict"] if decision.kind == "decision" else None


@every_machine
@worlds()
def test_totals_only_grow(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """What was spent stays spent, a rollback included, and is what the answers cost."""
    world, run = world_of(machine, data, stubborn, gifts)
    seen = [run.totals]

    def look(run: Run) -> None:
        before, now = seen[-1], run.totals
        assert now.cost_usd >= before.cost_usd
        assert now.model_calls >= before.model_calls
        assert now.tool_calls >= before.tool_calls
        seen.append(now)

    run.watchers.append(look)
    run.drive(world)
    assert run.totals.cost_usd == pytest.approx(sum(map(_cost, run.answers)))
    assert run.totals.tool_calls <= sum(map(_may_count, run.answers))


def _cost(answer: Answer) -> float:
    match answer:
        case ModelReplied(usage=usage) | Summarised(usage=usage):
            return usage.cost_usd
        case ChildFinished(cost_usd=cost):
            return cost
    return 0


def _may_count(answer: Answer) -> bool:
    return isinstance(answer, ChildFinished | Failed | HumanSaid) or (
        isinstance(answer, ToolReturned) and answer.ran
    )


@every_machine
def test_random_worlds_take_every_edge(machine: Machine) -> None:
    """What these worlds never reach, the laws above say nothing about."""
    missing = set(machine.targets)
    for seed in range(1500):
        dice = random.Random(seed)
        data, stubborn = dice.randbytes(dice.randrange(60, 300)), dice.randrange(8)
        world, run = world_of(machine, data, stubborn, gifts=dice.randrange(MOST_GIFTS + 1))
        missing -= {(row.node, str(row.edge)) for row in run.drive(world).rows}
        if not missing:
            return
    raise AssertionError(f"never taken: {sorted(missing)}")
