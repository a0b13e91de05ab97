"""How a poll is played in random worlds."""

from typing import Any

from tests.machines.tapes import CALLS, Play, Tape
from tests.worlds import Run

ASKS, COMPACTION, CALL_ROWS = 6, 6, 3


def _settings(tape: Tape) -> dict[str, Any]:
    return {"votes": 1 + tape.below(4), "lookups": tape.below(4), "tie": tape.one_of(("first", "nobody"))}


def _rows(run: Run) -> int:
    settings: Any = run.terms.settings
    rounds = settings.votes + settings.lookups
    return int(rounds) * (ASKS + COMPACTION + CALL_ROWS + 3) + 2


PLAY = Play(
    settings=_settings,
    replies={
        "decision": (
            {"answer": "no", "because": "It has factors."},
            {"answer": "yes"},
            *({"answer": "no", "tool": tool, "args": args} for tool, args in CALLS),
            {"answer": 5},
            {"because": "x"},
            {"answer": "no", "tool": "search", "args": "q"},
        ),
        "fallback": ("all I know", ""),
    },
    rows=_rows,
)
