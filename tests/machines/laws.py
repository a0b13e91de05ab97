"""The laws of docs/invariants.md, "The laws of the kernel": each plays a machine in one world and asserts."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from math import isclose
from typing import Any

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


def world_of(machine: Machine, data: bytes, stubborn: int, gifts: int) -> tuple[TapedWorld, Run]:
    world = TapedWorld(play_of(machine), Tape(data, stubborn), gifts, MOST_DEATHS)
    return world, world.start(machine)


def replay(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """Folding the log gives the stored state, after every row."""
    world, run = world_of(machine, data, stubborn, gifts)
    states: dict[int, State] = {}

    def fold_the_row(run: Run) -> None:
        row = run.rows[-1]
        facts = machine.facts.validate_python(json.loads(json.dumps(row.facts)))
        before = states[facts[0].to_seq] if row.kind == "rewind" else states[max(states, default=0)]
        states[row.seq] = machine.fold(before, facts)
        assert states[row.seq] == run.snapshot.state, f"the fold of step {row.seq} gives another state"
        assert states[row.seq] == run.state_of(row)

    states[0] = machine.open(run.terms)
    run.watchers.append(fold_the_row)
    run.drive(world)
    assert folded(run) == run.snapshot.state


def resume(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
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


def survive_json(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
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


def graph(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """Only declared edges are taken, one after the other."""
    world, run = world_of(machine, data, stubborn, gifts)
    run.drive(world)
    declared = {(edge.source, edge.name, edge.target) for edge in machine.edges}
    edges = tables.EDGES.get(machine.name, declared)
    at = machine.start
    for row in run.rows:
        assert row.node == at
        if row.kind == "transition":
            assert (row.node, row.edge, row.to) in edges, f"step {row.seq} takes no declared edge"
        elif row.kind == "stop":
            assert (row.edge, row.to) == (None, END)
        else:
            assert row.kind == "rewind" or row.to == at
        at = row.to
    assert [row.seq for row in run.rows] == list(range(1, len(run.rows) + 1))


def halt(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """A run ends within its bound, whatever is answered. Only a raised limit or a lost worker moves the bound."""
    world, run = world_of(machine, data, stubborn, gifts)
    run.drive(world)
    given_away = gifts - world.gifts + MOST_DEATHS - world.deaths
    rows = play_of(machine).rows(run) * (1 + (COMPACTION_ROWS if run.window() else 0))
    bound = (rows + GIFT_ROWS) * (1 + given_away)
    assert run.ended, f"the run has not ended after {len(run.rows)} rows"
    assert len(run.rows) <= bound, f"the run has {len(run.rows)} rows; its bound is {bound}"


def budget(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """A gating counter never passes its cap."""
    world, run = world_of(machine, data, stubborn, gifts)
    play = play_of(machine)

    def look(run: Run) -> None:
        for line in machine.budget(run.state):
            if line.name not in play.advisory and not line.scope.startswith("stage"):
                over = run.rows[-1].state[play.overdrawn[line.name]] if line.name in play.overdrawn else 0
                assert 0 <= line.used <= line.limit + over, (
                    f"{line.name} is {line.used:g} of {line.limit + over:g} at step {run.rows[-1].seq}"
                )

    run.watchers.append(look)
    run.drive(world)


def one_exit(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """The reason is written once, and is one of those that are declared."""
    world, run = world_of(machine, data, stubborn, gifts)
    run.drive(world)
    reasons = [row.state["exit_reason"] for row in run.rows if row.live and row.state["exit_reason"]]
    for earlier, later in pairwise(reasons):
        assert later in (earlier, play_of(machine).reworded.get(earlier))
    assert run.exit_reason == reasons[-1]
    assert run.exit_reason in machine.exit_reasons, f"{run.exit_reason} is no declared exit reason"
    assert sum(row.to == END for row in run.rows) == 1
    assert run.status in ("succeeded", "stopped", "failed", "cancelled")


def gates(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
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


def totals(machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    """Totals are the sum of what the answers cost, and never fall, not even after a rollback."""
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
    assert isclose(run.totals.cost_usd, sum(map(_cost, run.answers)), rel_tol=1e-6, abs_tol=1e-12)
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


Law = Callable[[Machine, bytes, int, int], None]

LAWS: tuple[Law, ...] = (replay, resume, survive_json, graph, halt, budget, one_exit, gates, totals)
