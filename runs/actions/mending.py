"""People's changes to a model's context: correct and revert summaries, pin steps, compact now."""

from __future__ import annotations

from runs.actions.common import NotAllowed, name_of, tell
from runs.engine.values import clean_text
from runs.models import Run
from runs.rights import Person, may_mend
from runs.store import mending
from runs.store.errors import NotPossible


def edit_summary(run: Run, *, seq: int, version: int, text: str, reason: str, by: Person) -> int:
    """Correct the summary of the compaction in step `seq`, seen at `version`; return the new version."""
    _check_mending(by, run)
    reason = _reason(reason, "Enter a reason; it is kept with the version.")
    after = mending.edit_summary(run.pk, seq, version, clean_text(text.strip()), name_of(by), reason)
    tell(run.pk)
    return after


def undo_summary(run: Run, *, seq: int, reason: str, by: Person, version: int | None = None) -> None:
    """Revert the summary of step `seq`: the model reads the steps themselves again, as far as they fit its window.

    `version` is the one that the person saw; None if unknown.
    """
    _check_mending(by, run)
    mending.undo_summary(run.pk, seq, version, name_of(by), _reason(reason, "Enter a reason."))
    tell(run.pk)


def pin(run: Run, *, path: str, by: Person, reason: str = "") -> None:
    """Keep compactions from a step's blocks (`st:<seq>`) or a summary (`su:<seq>`)."""
    _check_mending(by, run)
    mending.pin(run.pk, path, name_of(by), _reason(reason))
    tell(run.pk)


def unpin(run: Run, *, path: str, by: Person, reason: str = "") -> None:
    """Remove a pin."""
    _check_mending(by, run)
    mending.unpin(run.pk, path, name_of(by), _reason(reason))
    tell(run.pk)


def compact_now(run: Run, *, by: Person, reason: str = "") -> None:
    """Request a compaction before the run's next model call."""
    _check_mending(by, run)
    mending.want_compaction(run.pk, name_of(by), _reason(reason))
    tell(run.pk)


def _check_mending(person: Person, run: Run) -> None:
    if not may_mend(person, run):
        raise NotAllowed(f"You may not change what the model of run {run.pk} reads. A reviewer can.")


MAX_REASON = 1_000
"""Characters of a reason."""


def _reason(given: str, why: str = "") -> str:
    """Return the reason as it is stored; raises with `why` if a needed one is missing."""
    reason = clean_text(given.strip())
    if not reason and why:
        raise NotPossible(why)
    if len(given) > MAX_REASON:
        raise NotPossible(f"A reason has at most {MAX_REASON} characters; this one has {len(given)}.")
    return reason
