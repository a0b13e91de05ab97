"""The only writer of steps and exchanges: loads a run, commits moves, claims and lets go, takes people's moves.

Everything a run is stands in its rows; the head on `Run` is kept beside them in the same transaction. One seat: a
write that continues a run carries the epoch it was claimed with, and one that finds another epoch does nothing.
Source: spec/runtime.md, "One log".
"""

from runs.store.appending import facts_text
from runs.store.birth import NewRun, create_run, folder_of, unsaved
from runs.store.endings import ended, for_parent
from runs.store.errors import BadDecision, Conflict, Fenced, NotPossible
from runs.store.going_back import prompt_chain, rewind_batch
from runs.store.leases import MOST_LOST, RENEW_S, Lease, claim, let_go, lost_in_a_row, postpone, renew
from runs.store.loading import (
    Loaded,
    attempts_of,
    load,
    load_blocks,
    reached_calls,
    state_at,
    terms_of,
)
from runs.store.log import Asked, Batch, Row, chain, charge, commit, save_answer, start
from runs.store.people import (
    Said,
    abort,
    decide,
    given_answer,
    note,
    pause,
    resume,
    rewind,
    stop_children,
    unanswered,
)
from runs.store.verifying import Misfit, verify

__all__ = [
    "MOST_LOST",
    "RENEW_S",
    "Asked",
    "BadDecision",
    "Batch",
    "Conflict",
    "Fenced",
    "Lease",
    "Loaded",
    "Misfit",
    "NewRun",
    "NotPossible",
    "Row",
    "Said",
    "abort",
    "attempts_of",
    "chain",
    "charge",
    "claim",
    "commit",
    "create_run",
    "decide",
    "ended",
    "facts_text",
    "folder_of",
    "for_parent",
    "given_answer",
    "let_go",
    "load",
    "load_blocks",
    "lost_in_a_row",
    "note",
    "pause",
    "postpone",
    "prompt_chain",
    "reached_calls",
    "renew",
    "resume",
    "rewind",
    "rewind_batch",
    "save_answer",
    "start",
    "state_at",
    "stop_children",
    "terms_of",
    "unanswered",
    "unsaved",
    "verify",
]
