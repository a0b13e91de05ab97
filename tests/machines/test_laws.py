"""The laws of docs/invariants.md, "The laws of the kernel", for every machine, in random worlds.

`--hypothesis-profile=ci` plays WORLDS of them; without it a tenth.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runs.engine.machine import Machine
from runs.machines import CATALOGUE
from tests.machines.laws import LAWS, MOST_GIFTS, Law, world_of
from tests.machines.plays import play_of

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
    each = max(5, WORLDS // (len(LAWS) * len(CATALOGUE)))
    quietly = settings(max_examples=each, deadline=None, suppress_health_check=list(HealthCheck))
    return lambda law: tapes(quietly(law))


def test_every_machine_is_played() -> None:
    assert all(play_of(machine) for machine in CATALOGUE.values())


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@every_machine
@worlds()
def test_the_law_holds(law: Law, machine: Machine, data: bytes, stubborn: int, gifts: int) -> None:
    law(machine, data, stubborn, gifts)


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
