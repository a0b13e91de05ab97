"""Moves: a run's next actions. Each becomes one committed step."""

from __future__ import annotations

from dataclasses import dataclass

from runs.engine.effects import Effect
from runs.engine.facts import Fact


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the world, after `delay_s` seconds without a worker; `attempt` counts from 1."""

    effect: Effect
    facts: tuple[Fact, ...] = ()
    delay_s: float = 0.0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Go:
    """Take a declared edge."""

    edge: str
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """End the run in place: no edge, no exit node."""

    reason: str
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewind:
    """Restore the state after the live transition step `to`."""

    to: int
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Compact:
    """Put a summary in place of older blocks; the node stays, and the waiting model call comes next."""

    facts: tuple[Fact, ...] = ()


Move = Ask | Go | Stop | Rewind | Compact
