"""How long a worker keeps a run, and what it raises where an answer given at launch is wrong."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slice:
    """At most so many moves, and, where another run waits for a worker, seconds."""

    moves: int = sys.maxsize
    seconds: float = 1.0


WHOLE = Slice(seconds=float("inf"))
"""Where no other run waits for this process."""


class BadAnswer(Exception):
    """One of the answers given at launch does not fit the question that opened."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)
