"""Play the laws on one machine in random worlds, and say how each went: what `manage.py check_machine` prints.

It needs no package of the tests: a seed makes each world, and a world that breaks a law is cut down by hand.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from traceback import extract_tb
from typing import NamedTuple, TextIO

from runs.engine.machine import Machine
from tests import worlds as fake
from tests.machines import generic, plays
from tests.machines.laws import LAWS, MOST_GIFTS, Law, halt, world_of
from tests.worlds import Run

PATIENCE_S = 5.0
"""Seconds for the search for a smaller world that breaks the same law."""

ROWS_SHOWN = 30


class World(NamedTuple):
    """What a world is made of: the tape, how it goes on, and what people may give."""

    data: bytes
    stubborn: int
    gifts: int


def check(machine: Machine, out: TextIO, *, worlds: int, most_rows: int) -> bool:
    """Print every law with its outcome; return True if all hold in so many worlds each.

    A run of more rows than `most_rows` counts as endless.
    """
    if not plays.has_play(machine):
        plays.PLAYS[machine.name] = generic.PLAY
        out.write(
            "It has no play: models say what fits its schemas. See docs/extending.md, “Check a machine”.\n"
        )
    before, fake.TOO_MANY_ROWS = fake.TOO_MANY_ROWS, most_rows
    try:
        return _check_all(machine, worlds, out)
    finally:
        fake.TOO_MANY_ROWS = before


def _check_all(machine: Machine, worlds: int, out: TextIO) -> bool:
    if not _check(halt, machine, worlds, out):
        others = ", ".join(law.__name__ for law in LAWS if law is not halt)
        out.write(f"Not played: {others}. A run that never ends says nothing about them.\n")
        return False
    holds = [_check(law, machine, worlds, out) for law in LAWS if law is not halt]
    if missing := _never_taken(machine, worlds):
        out.write(f"Not reached in these worlds: {', '.join(missing)}.\n")
    out.write(f"{sum(holds) + 1} of {len(LAWS)} laws hold in {worlds} random worlds each.\n")
    return all(holds)


def _check(law: Law, machine: Machine, worlds: int, out: TextIO) -> bool:
    line = f"{law.__name__:<13} {law.__doc__}\n"
    for seed in range(worlds):
        world = world_from(seed)
        if _fault(law, machine, world) is not None:
            out.write(f"BROKEN  {line}")
            _tell(law, machine, _smallest(law, machine, world), out)
            return False
    out.write(f"holds   {line}")
    return True


def world_from(seed: int) -> World:
    """Return the world of a seed, the same each time; that of 0 always takes the first choice."""
    if seed == 0:
        return World(bytes(1), 0, 0)
    dice = random.Random(seed)
    data, stubborn = dice.randbytes(dice.randrange(60, 300)), dice.randrange(8)
    return World(data, stubborn, dice.randrange(MOST_GIFTS + 1))


def _fault(law: Law, machine: Machine, world: World) -> Exception | None:
    try:
        law(machine, *world)
    except Exception as fault:
        return fault if law is halt or not isinstance(fault, fake.NeverEnds) else None
    return None


def _smallest(law: Law, machine: Machine, world: World) -> World:
    """Return a smaller world that breaks the law in the same place: shorter, calmer, with more zeros."""
    place = _place(_fault(law, machine, world))
    until = time.monotonic() + PATIENCE_S
    smaller = _smaller(world)
    while time.monotonic() < until and (found := next(smaller, None)) is not None:
        if _place(_fault(law, machine, found)) == place:
            world, smaller = found, _smaller(found)
    return world


def _place(fault: Exception | None) -> tuple[str, int | None] | None:
    frame = extract_tb(fault.__traceback__)[-1] if fault is not None else None
    return frame and (frame.filename, frame.lineno)


def _smaller(world: World) -> Iterator[World]:
    data = world.data
    yield from (world._replace(stubborn=0) for _ in range(bool(world.stubborn)))
    yield from (world._replace(gifts=gifts) for gifts in range(world.gifts))
    size = len(data) // 2
    while size:
        for start in range(0, len(data), size):
            if len(data) > size:
                yield world._replace(data=data[:start] + data[start + size :])
            if any(data[start : start + size]):
                zeros = bytes(len(data[start : start + size]))
                yield world._replace(data=data[:start] + zeros + data[start + size :])
        size //= 2


def _tell(law: Law, machine: Machine, world: World, out: TextIO) -> None:
    """Print why the law breaks in this world, and the run until there."""
    fault = _fault(law, machine, world)
    assert fault is not None
    run = _run_in(machine, world)
    out.write(f"  {_why(fault)}\n")
    out.write(
        f"  world: {len(world.data)} bytes {world.data.hex()}, stubborn {world.stubborn}, gifts {world.gifts}\n"
    )
    out.write(
        f"  settings: {json.dumps(run.terms.settings.model_dump(mode='json', exclude_defaults=True))}\n"
    )
    for row in run.rows[:ROWS_SHOWN]:
        told = [str(fact["kind"]) for fact in row.facts]
        asked = [str(row.effect.get("tool") or row.effect["kind"])] if row.effect else []
        edge = f"{row.edge} → {row.to}" if row.edge else ""
        out.write(
            f"  {row.seq:>4} {row.kind:<10} {row.node:<12} {' · '.join(filter(None, (edge, *asked, *told)))}\n"
        )
    if len(run.rows) > ROWS_SHOWN:
        out.write(f"  … {len(run.rows)} rows in all\n")


def _run_in(machine: Machine, world: World) -> Run:
    """Return the run of a world, as far as it goes."""
    played, run = world_of(machine, *world)
    try:
        run.drive(played)
    except Exception:  # the rows until then are what is wanted
        return run
    return run


def _why(fault: Exception) -> str:
    """Return the fault with its place: the machine's own line, else the line of the law."""
    frame = extract_tb(fault.__traceback__)[-1]
    said = " ".join(str(fault).split())
    if isinstance(fault, AssertionError):
        return f"{said or frame.line} ({Path(frame.filename).name}, line {frame.lineno})"
    return f"{type(fault).__name__}: {said} ({frame.filename}, line {frame.lineno})"


def _never_taken(machine: Machine, worlds: int) -> list[str]:
    """Return the edges that no world took: the laws say nothing about them."""
    missing = {(edge.source, edge.name): f"{edge.source} {edge.name}" for edge in machine.edges}
    for seed in range(worlds):
        for row in _run_in(machine, world_from(seed)).rows:
            missing.pop((row.node, str(row.edge)), None)
    return list(missing.values())
