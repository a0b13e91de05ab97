"""A recorded run made again: every answer comes from the record, nothing is called, every row must come out the same.

What the machine and the kernel conclude is made again and compared. What came from outside is taken from the record as
it stands: answers, decisions, pauses, a rollback or a stop by a person, a worker that was lost, the clock.
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
