"""How long a worker keeps a run; and the error for a wrong answer from the launch."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slice:
    """Most moves, and, if another run waits for a worker, most seconds."""

    moves: int = sys.maxsize
    seconds: float = 1.0


WHOLE = Slice(seconds=float("inf"))
"""For a process without other waiting runs."""


class BadAnswer(Exception):
    """One of the answers given at launch does not fit the question that opened."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence
        super().__init__(sentence)
