"""Small worlds, walked to the end: every edge and every exit reason is reached, and no path goes round in a circle.

A world is small where replies, results and decisions come from a short list. The walk visits every state that the
kernel can come to; two rows with the same node, state, question and use of limits are one place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from runs.engine import kernel
from runs.engine.effects import (
    Answer,
    ChildFinished,
    ChildRun,
    ContextOverflowed,
    Failed,
    HumanCall,
    ModelCall,
    ModelReplied,
    ToolCall,
    ToolReturned,
    Usage,
)
from runs.engine.machine import END, Machine, Terms
from runs.engine.moves import Go, Rewind, Stop
from runs.engine.settings import LIMIT_NAMES
from runs.engine.snapshot import Snapshot
from runs.engine.tools import ToolSpec
from runs.machines import CATALOGUE
from runs.machines.ruled import RULED
from tests.worlds import call, final, said

MOST_PLACES = 60_000


@dataclass(frozen=True)
class SmallWorld:
    """What can be said in it."""

    settings: dict[str, Any]
    replies: tuple[Any, ...]
    results: tuple[Answer, ...] = (ToolReturned(value="ok"),)
    usage: Usage = field(default_factory=Usage)
    verdicts: tuple[str, ...] = ("approve", "reject", "abort", "resume", "finish")
    effects: Any = "read"
    others: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """What is said in the other roles; where nothing stands, a text."""


@dataclass
class Walk:
    """Where a walk came."""

    edges: set[tuple[str, str]] = field(default_factory=set)
    exits: set[str] = field(default_factory=set)
    facts: set[str] = field(default_factory=set)
    abouts: set[str] = field(default_factory=set)
    places: int = 0
    longest: int = 0


def answers_to(world: SmallWorld, snapshot: Snapshot) -> Iterator[Answer | None]:
    """Everything that can be said now."""
    pending = snapshot.pending
    match pending.effect if pending else None:
        case None:
            yield None
        case ModelCall(role="decision"):
            yield from (_replied(reply, world.usage) for reply in world.replies)
        case ModelCall(role=role):
            yield from (_replied(reply, Usage()) for reply in world.others.get(role, ("all I know",)))
        case ToolCall() | ChildRun():
            yield from world.results
        case HumanCall() as held:
            yield from (
                said(verdict, message="As I said.") for verdict in world.verdicts if verdict in held.verdicts
            )


def _replied(reply: Any, usage: Usage) -> Answer:
    if isinstance(reply, Failed | ContextOverflowed):
        return reply
    return ModelReplied(text=reply if isinstance(reply, str) else json.dumps(reply), usage=usage)


def walk(machine: Machine, world: SmallWorld) -> Walk:
    """Depth first, each place once; a place that is met again on the way to it is a circle."""
    settings = machine.settings.model_validate(world.settings)
    own = {spec.name: spec for spec in machine.built_in}
    tools = {"search": ToolSpec(name="search", effects=world.effects), **own}
    limits = {name: limit for name in LIMIT_NAMES if (limit := settings.limits.of(name)) is not None}
    start = Snapshot(
        machine.start, machine.open(Terms(goal="g", settings=settings, tools=tools)), limits=limits
    )
    found = Walk()
    open_places: set[str] = set()
    seen: set[str] = set()
    stack: list[tuple[str, Iterator[Answer | None], Snapshot]] = []

    def enter(snapshot: Snapshot) -> None:
        place = _place(snapshot)
        assert place not in open_places, f"a circle through {place}"
        if place in seen:
            return
        found.places += 1
        assert found.places < MOST_PLACES
        open_places.add(place)
        seen.add(place)
        answers = iter(()) if snapshot.node == END else answers_to(world, snapshot)
        stack.append((place, answers, snapshot))

    enter(start)
    while stack:
        place, answers, snapshot = stack[-1]
        answer = next(answers, _DONE)
        if answer is _DONE:
            open_places.discard(place)
            stack.pop()
            continue
        assert answer is None or not isinstance(answer, _Done)
        move, totals = kernel.decide(machine, snapshot, answer)
        assert not isinstance(move, Rewind)
        found.facts |= {fact.kind for fact in move.facts}
        after = kernel.advance(machine, snapshot, move, totals)
        match move:
            case Go(edge=edge):
                found.edges.add((snapshot.node, edge))
            case Stop(reason=reason):
                assert after.state.exit_reason == reason
        if after.pending and isinstance(after.pending.effect, HumanCall):
            found.abouts.add(after.pending.effect.about)
        if after.node == END:
            assert after.state.exit_reason is not None
            found.exits.add(after.state.exit_reason)
        found.longest = max(found.longest, after.head)
        enter(after)
    return found


class _Done:
    """No answer is left."""


_DONE = _Done()


def _place(snapshot: Snapshot) -> str:
    pending = snapshot.pending
    asked = [pending.effect.model_dump(mode="json"), pending.attempt] if pending else None
    state = snapshot.state.model_dump(mode="json")
    used = [snapshot.totals.used(name) for name in snapshot.limits]
    return json.dumps([snapshot.node, state, asked, used], sort_keys=True)


GUESS = call("search", thought="I guess")
TERMINAL = [{"type": "forbid_pattern", "value": "stop", "severity": "terminal"}, {"type": "forbid_guessing"}]

RULED_WORLDS: dict[str, SmallWorld] = {
    "a fixed subgraph": SmallWorld(
        {"max_steps": 1, "subgraphs": {"auth": {"machine": "ruled", "at": "thought"}}},
        (final(),),
        results=(ChildFinished(run="c", status="succeeded", answer="found", metadata={"answer": "found"}),),
    ),
    "two steps, everything": SmallWorld(
        {"max_steps": 2, "max_rejections": 1, "cache": False},
        (call("search"), final(), GUESS, "unreadable"),
        (
            ToolReturned(value="ok"),
            Failed(blame="recoverable", message="no"),
            Failed(blame="fatal", message="fire"),
        ),
    ),
    "nobody to ask": SmallWorld(
        {"max_steps": 1, "on_retries": "stop"}, (call("search"), GUESS, {"thought": "nothing"}, final())
    ),
    "a terminal rule": SmallWorld(
        {"max_steps": 2, "ruleset": TERMINAL}, ({"thought": "stop"}, {"thought": "go"}, GUESS)
    ),
    "money": SmallWorld({"max_steps": 4}, (call("search"), GUESS, final()), usage=Usage(cost_usd=0.2)),
    "a failing model": SmallWorld(
        {"max_steps": 2},
        (
            call("search"),
            final(),
            Failed(blame="transient", message="busy"),
            Failed(blame="fatal", message="gone"),
            ContextOverflowed(),
        ),
    ),
    "a failing tool": SmallWorld(
        {"max_steps": 3},
        (call("search"), final()),
        (ToolReturned(value="ok"), Failed(blame="transient", message="busy")),
    ),
    "a held tool": SmallWorld({"max_steps": 2}, (call("search"), GUESS, final()), effects="write"),
    "every step": SmallWorld({"max_steps": 3, "interrupt_every": 1}, (call("search"), GUESS, final())),
    **{
        f"limit {name}, {on_limit}": SmallWorld(
            {"max_steps": 5, "limits": {name: limit}, "on_limit": on_limit},
            (call("search"), GUESS, final()),
            usage=Usage(input_tokens=60, output_tokens=40, cost_usd=0.01),
        )
        for name, limit in (("cost_usd", 0.02), ("tokens", 200), ("active_seconds", 0))
        for on_limit in ("ask", "stop")
    },
}


def chosen(tool: str, **args: Any) -> dict[str, Any]:
    """A reply of `planned`, and a row of its plans."""
    return {"thought": "next", "tool": tool, "args": args}


ANSWER = chosen("final_answer", answer="42")
ROWS = (chosen("search"), ANSWER)
NO, FIRE = Failed(blame="recoverable", message="no"), Failed(blame="fatal", message="fire")
NEW_PLAN = {"outline": "again", "steps": [chosen("search")]}

PLANNED_WORLDS: dict[str, SmallWorld] = {
    "a plan, everything": SmallWorld(
        {"plan": ROWS[:1], "retry_buffer": 1, "max_replans": 2, "replan_failure_threshold": 1},
        (chosen("search"), chosen("nosuch"), ANSWER, "unreadable"),
        (ToolReturned(value="ok"), NO, FIRE),
        others={"planner": (NEW_PLAN, "unreadable")},
    ),
    "two failures": SmallWorld(
        {"plan": ROWS, "retry_buffer": 2, "max_replans": 1},
        (chosen("search"), ANSWER),
        (ToolReturned(value="ok"), NO),
        others={"planner": (NEW_PLAN,)},
    ),
    "no replans": SmallWorld(
        {"plan": ROWS, "retry_buffer": 1, "max_replans": 0, "interrupt_every": 1},
        (chosen("search"), chosen("search", q=1), ANSWER),
        (ToolReturned(value="ok"), NO),
    ),
    "rows as they stand": SmallWorld(
        {"plan": [chosen("search"), chosen("search"), ANSWER], "follow": "plan"},
        (ANSWER,),
        (ToolReturned(value="ok"), NO),
        others={"planner": (NEW_PLAN, {"steps": []}, "unreadable")},
    ),
    "a planner": SmallWorld(
        {"retry_buffer": 0, "max_replans": 1},
        (chosen("search"), ANSWER),
        others={
            "planner": (NEW_PLAN, {"steps": []}, "unreadable", Failed(blame="transient", message="busy")),
            "fallback": ("all I know", "", FIRE),
        },
    ),
    "a failing model": SmallWorld(
        {"plan": ROWS, "retry_buffer": 0},
        (ANSWER, Failed(blame="transient", message="busy"), FIRE, ContextOverflowed()),
        others={"fallback": (ContextOverflowed(), FIRE)},
    ),
    "a held tool": SmallWorld({"plan": ROWS, "retry_buffer": 0}, (chosen("search"), ANSWER), effects="write"),
    **{
        f"limit {name}, {on_limit}": SmallWorld(
            {"plan": ROWS, "retry_buffer": 2, "limits": {name: limit}, "on_limit": on_limit},
            (chosen("search"), ANSWER, "unreadable"),
            usage=Usage(input_tokens=60, output_tokens=40, cost_usd=0.01),
        )
        for name, limit in (("cost_usd", 0.02), ("tokens", 200), ("active_seconds", 0))
        for on_limit in ("ask", "stop")
    },
}

SLOT = [{"id": "s", "type": "inline"}]
TWO_ROUNDS = {"s": {"explore": 1, "exploit": 1}}


def contract_call(strategy: str, name: str = "a", kind: str = "inline") -> dict[str, Any]:
    """A call of `contract` that declares one artifact."""
    declared = {"tool_id": "search", "params": {}, "out_artifacts": [{"name": name, "kind": kind}]}
    return {"action": "call_tool", "strategy": strategy, "tool_call": declared}


EXPLORE, EXPLOIT = contract_call("explore"), contract_call("exploit")
COMPLETE = {"action": "complete", "completion_summary": "done"}
FILLED = {**COMPLETE, "map_slots": [{"slot": "s", "artifact": "a"}]}
SHOW = {"action": "decision", "show_artifacts": ["a"]}
ASKING = {"action": "clarify", "questions": ["Which one?"]}

CONTRACT_WORLDS: dict[str, SmallWorld] = {
    "one slot, everything": SmallWorld(
        {"contract": SLOT, "hints": TWO_ROUNDS, "budget": {"max_decision_reruns": 1}},
        (EXPLORE, EXPLOIT, FILLED, COMPLETE, SHOW, "unreadable"),
        (
            ToolReturned(value="ok"),
            Failed(blame="recoverable", message="no"),
            Failed(blame="fatal", message="fire"),
        ),
    ),
    "looking": SmallWorld(
        {"contract": SLOT, "budget": {"max_context_reads": 1, "max_decision_rounds": 4}},
        (EXPLORE, SHOW, {**EXPLORE, "show_artifacts": ["a"]}, {"action": "decision"}),
    ),
    "bad calls": SmallWorld(
        {"contract": SLOT, "hints": TWO_ROUNDS},
        (
            contract_call("wild"),
            contract_call("explore", kind="wild"),
            contract_call("explore", name="b", kind="search"),
            {"action": "call_tool", "strategy": "exploit"},
            {"action": "wild"},
        ),
    ),
    "questions without an answer": SmallWorld(
        {"contract": SLOT, "hints": TWO_ROUNDS, "on_clarify": "exit"}, (ASKING, EXPLORE, FILLED)
    ),
    "questions with one": SmallWorld(
        {"contract": SLOT, "hints": TWO_ROUNDS, "limits": {"tokens": 400}, "on_limit": "stop"},
        (ASKING, EXPLORE, FILLED),
        usage=Usage(input_tokens=60, output_tokens=40),
        verdicts=("respond", "abort"),
    ),
    "a coordinator": SmallWorld(
        {"coordinator": "model", "budget": {"max_decision_rounds": 1}},
        (EXPLORE, FILLED),
        others={"coordinator": ({"slots": SLOT, "depth": "shallow"}, "unreadable", FIRE)},
    ),
    "a failing model": SmallWorld(
        {"contract": SLOT, "hints": TWO_ROUNDS},
        (EXPLORE, COMPLETE, Failed(blame="transient", message="busy"), FIRE, ContextOverflowed()),
    ),
    "a held tool": SmallWorld(
        {"contract": SLOT, "hints": TWO_ROUNDS, "interrupt_every": 1}, (EXPLORE, FILLED), effects="write"
    ),
    **{
        f"limit {name}, {on_limit}": SmallWorld(
            {"contract": SLOT, "limits": {name: limit}, "on_limit": on_limit},
            (EXPLORE, FILLED),
            usage=Usage(input_tokens=60, output_tokens=40, cost_usd=0.01),
        )
        for name, limit in (("cost_usd", 0.02), ("tokens", 200), ("active_seconds", 0))
        for on_limit in ("ask", "stop")
    },
}

LOOK = {"action": "call_tool", "strategy": "explore", "tool_call": {"tool_id": "search", "params": {}}}
PRODUCE = {**LOOK, "strategy": "exploit"}
RECALL = {"action": "call_tool", "tool_call": {"tool_id": "react.read", "params": {"paths": ["st:1"]}}}
TICKED = {"action": "complete", "notes": "✓ [1]", "completion_summary": "done"}
TICKING = {**LOOK, "notes": "✗ [1]"}
DONE = {"action": "complete", "completion_summary": "done"}
ASK_BACK = {"action": "clarify", "questions": ["Which one?"]}

CHECKLIST_WORLDS: dict[str, SmallWorld] = {
    "one step, everything": SmallWorld(
        {
            "plan": ["look"],
            "exploration_budget": 1,
            "exploitation_budget": 1,
            "max_consecutive_violations": 1,
        },
        (LOOK, PRODUCE, TICKED, TICKING, DONE, RECALL, "unreadable"),
        (
            ToolReturned(value="ok"),
            Failed(blame="recoverable", message="no"),
            Failed(blame="fatal", message="fire"),
        ),
    ),
    "a planner": SmallWorld(
        {"planner": "model", "max_iterations": 2},
        (LOOK, TICKED, DONE),
        others={"planner": ({"steps": ["look"]}, {"steps": []}, "unreadable")},
    ),
    "nobody to ask": SmallWorld({"max_iterations": 2, "on_clarify": "exit"}, (LOOK, ASK_BACK, DONE)),
    "somebody to ask": SmallWorld(
        {"max_iterations": 2, "limits": {"tokens": 200}, "on_limit": "stop"},
        (ASK_BACK, DONE),
        usage=Usage(input_tokens=60, output_tokens=40),
        verdicts=("respond", "abort"),
    ),
    "a failing model": SmallWorld(
        {"max_iterations": 2},
        (
            LOOK,
            DONE,
            Failed(blame="transient", message="busy"),
            Failed(blame="fatal", message="gone"),
            ContextOverflowed(),
        ),
    ),
    "a failing tool": SmallWorld(
        {"max_iterations": 3},
        (LOOK, RECALL, DONE),
        (ToolReturned(value="ok"), Failed(blame="transient", message="busy")),
    ),
    "a held tool": SmallWorld({"max_iterations": 3}, (LOOK, DONE), effects="write"),
    "every decision": SmallWorld({"max_iterations": 3, "interrupt_every": 1}, (LOOK, "unreadable", DONE)),
    "no iteration": SmallWorld({"max_iterations": 0}, (DONE,)),
    **{
        f"limit {name}, {on_limit}": SmallWorld(
            {"max_iterations": 4, "limits": {name: limit}, "on_limit": on_limit},
            (LOOK, RECALL, "unreadable", DONE),
            usage=Usage(input_tokens=60, output_tokens=40, cost_usd=0.01),
        )
        for name, limit in (("cost_usd", 0.02), ("tokens", 200), ("active_seconds", 0))
        for on_limit in ("ask", "stop")
    },
}

WORLDS: dict[str, dict[str, SmallWorld]] = {
    "checklist": CHECKLIST_WORLDS,
    "contract": CONTRACT_WORLDS,
    "planned": PLANNED_WORLDS,
    "ruled": RULED_WORLDS,
}
"""By machine. A new machine may add its small worlds here."""

EVERY = [(name, world) for name in CATALOGUE if name in WORLDS for world in WORLDS[name]]


@cache
def walked(machine: str, world: str) -> Walk:
    return walk(CATALOGUE[machine], WORLDS[machine][world])


@pytest.mark.parametrize(("machine", "world"), EVERY, ids=[": ".join(pair) for pair in EVERY])
def test_every_path_of_a_small_world_ends(machine: str, world: str) -> None:
    """No circle, so that every path ends; each end has a reason that is declared."""
    found = walked(machine, world)
    assert found.exits <= set(CATALOGUE[machine].exit_reasons)
    assert found.exits


@pytest.mark.parametrize("machine", sorted(set(CATALOGUE) & set(WORLDS)))
def test_nothing_that_is_declared_is_dead(machine: str) -> None:
    """Together the small worlds take every edge, reach every exit reason and draw every conclusion."""
    declared = CATALOGUE[machine]
    walks = [walked(machine, world) for world in WORLDS[machine]]
    edges = {edge for found in walks for edge in found.edges}
    exits = {reason for found in walks for reason in found.exits}
    facts = {kind for found in walks for kind in found.facts}
    assert edges == set(declared.targets)
    assert exits == set(declared.exit_reasons)
    own = {fact.model_fields["kind"].default for fact in declared.own_facts}
    assert own <= facts


def test_the_walk_sees_a_circle() -> None:
    """Where a person may add to a limit for nothing, a run can go round for ever: the check would say so."""
    world = SmallWorld({"limits": {"tokens": 0}}, (final(),), verdicts=("top_up",))
    with pytest.raises(AssertionError, match="a circle"):
        walk(RULED, world)


def test_a_small_world_is_not_too_small() -> None:
    found = walked("ruled", "two steps, everything")
    assert found.places > 200
    assert found.longest > 30
    assert found.abouts == {"human_approval"}
