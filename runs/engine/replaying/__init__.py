"""A recorded run replayed: every answer comes from the record, nothing is called, every step must come out the same.

The conclusions of machine and kernel are computed again and compared. Everything from outside is taken from the record:
answers, decisions, pauses, a rollback or a stop by a person, a lost worker, the clock.
"""

from runs.engine.replaying.differing import Difference, Made
from runs.engine.replaying.record import Opening, Record, RecordedRow
from runs.engine.replaying.replay import Replay

__all__ = [
    "Difference",
    "Made",
    "Opening",
    "Record",
    "RecordedRow",
    "Replay",
]
