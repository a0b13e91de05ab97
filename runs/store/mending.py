"""People's changes to the context of a run: pin, revert, correct, compact now. Each is a `note` step with its fact.

As with every move by a person, the step raises the epoch: a worker in a model call finds its lease gone, and the call
is retried with the changed context.
"""

from __future__ import annotations

import unicodedata
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from runs.engine.context import CHARACTERS_PER_TOKEN, SUMMARY_TOKENS, rounds_of
from runs.engine.fact_kinds import CONTEXT_CHANGES
from runs.engine.facts import CompactionWanted, Fact, Pinned, SummaryEdited, SummaryUndone, Unpinned
from runs.engine.timeline import Context, Summary, blocks_of, folded
from runs.machines import CATALOGUE
from runs.models import Run, RunStatus, Step, tells
from runs.store.appending import append
from runs.store.db import for_people, now
from runs.store.decisions import seated
from runs.store.errors import NotPossible
from runs.store.loading import compaction_wanted, context_blocks, load, load_blocks, terms_of

MOST_A_MINUTE = 20
"""Changes to one run's context a minute."""

MOST_CHARACTERS = SUMMARY_TOKENS * CHARACTERS_PER_TOKEN
"""Characters of a summary by a person; as many as one by a model may have."""


@for_people
def edit_summary(run_id: int, seq: int, version: int, text: str, by: str, reason: str) -> int:
    """Replace the summary's text; `version` is the one that the person saw. Return the new version's number."""
    with transaction.atomic():
        run = seated(run_id)
        summary = _summary(run, seq)
        _check_version(summary, version)
        if not _says_something(text):
            raise NotPossible("A summary can't be empty. Revert it to show the model the original steps.")
        if len(text) > MOST_CHARACTERS:
            raise NotPossible(
                f"A summary has at most {MOST_CHARACTERS} characters; this one has {len(text)}."
            )
        if text == summary.text:
            raise NotPossible("The text is the same; nothing was changed.")
        _add(run, SummaryEdited(summary=seq, version=version + 1, text=text, by=by, reason=reason))
    return version + 1


@for_people
def undo_summary(run_id: int, seq: int, version: int | None, by: str, reason: str) -> None:
    """Revert the summary: the model reads the blocks themselves from the next prompt on, as far as they fit.

    `version` is the one that the person saw; None if unknown.
    """
    with transaction.atomic():
        run = seated(run_id)
        _check_version(_summary(run, seq), version)
        _add(run, SummaryUndone(summary=seq, by=by, reason=reason))


@for_people
def pin(run_id: int, path: str, by: str, reason: str) -> None:
    """Keep a step's blocks (`st:<seq>`), or a summary (`su:<seq>`), as they are from now on."""
    with transaction.atomic():
        run = seated(run_id)
        if path in _context(run).pins:
            raise NotPossible(f"{path} is pinned already.")
        _check_path(run, path)
        _add(run, Pinned(path=path, rows=_round_of(run, path), by=by, reason=reason))


@for_people
def unpin(run_id: int, path: str, by: str, reason: str) -> None:
    """Remove a pin."""
    with transaction.atomic():
        run = seated(run_id)
        if path not in _context(run).pins:
            raise NotPossible(f"{path} is not pinned.")
        _add(run, Unpinned(path=path, by=by, reason=reason))


@for_people
def want_compaction(run_id: int, by: str, reason: str) -> None:
    """Request a compaction before the next model call; blocks of reverted summaries count like others."""
    with transaction.atomic():
        run = seated(run_id)
        if compaction_wanted(run) and not _context(run).leaves_alone():
            raise NotPossible("A compaction is already requested; it runs before the next model call.")
        _add(run, CompactionWanted(by=by, reason=reason))


def _context(run: Run) -> Context:
    return folded(context_blocks(run))


def _summary(run: Run, seq: int) -> Summary:
    """Return the summary from step `seq`, if it is still active."""
    context = _context(run)
    summary = context.summaries.get(seq)
    if summary is None:
        raise NotPossible(f"Step {seq} of run {run.pk} is not a compaction, or was rolled back.")
    if summary.undone:
        raise NotPossible(f"The summary of step {seq} was reverted already.")
    if (later := context.carried_on_by(seq)) is not None:
        raise NotPossible(f"Step {later} continues the summary of step {seq}; change that one.")
    return summary


def _check_version(summary: Summary, version: int | None) -> None:
    if version is not None and summary.version != version:
        raise NotPossible(
            f"You saw version {version} of the summary; it now has version {summary.version}. "
            "Read it again before you change it."
        )


def _says_something(text: str) -> bool:
    """Return True if it has a visible letter, digit or sign."""
    return any(unicodedata.category(char)[0] not in "ZC" for char in text)


def _round_of(run: Run, path: str) -> tuple[int, ...]:
    """Return the steps of a step's turn: the agent's decision with its results."""
    kind, _, number = path.partition(":")
    if kind != "st":
        return ()
    told = [block for block in load_blocks(run, CATALOGUE[run.machine], run.head) if block.act is None]
    rounds = ({block.seq for block in blocks} for blocks in rounds_of(told))
    return tuple(sorted(next((rows for rows in rounds if int(number) in rows), ())))


def _check_path(run: Run, path: str) -> None:
    kind, _, number = path.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise NotPossible(f"{path[:80]!r} is not a path. Give st:NUMBER for a step, su:NUMBER for a summary.")
    match kind:
        case "su":
            _summary(run, int(number))
        case "st" if not _told(run, int(number)):
            raise NotPossible(f"The model was told nothing in step {number}, or it was rolled back.")
        case "st":
            pass
        case _:
            raise NotPossible(
                f"{path!r} can't be pinned. Give st:NUMBER for a step, su:NUMBER for a summary."
            )


def _told(run: Run, seq: int) -> bool:
    """Return True if a live step told the model something."""
    step = Step.objects.filter(run=run, seq=seq, live=True).first()
    if step is None:
        return False
    machine = CATALOGUE[run.machine]
    blocks = blocks_of(machine, machine.facts.validate_json(step.facts_json), seq)
    return any(block.act is None for block in blocks)


def _add(run: Run, fact: Fact) -> None:
    """Write the step; a run under lease is due again at once, and its model call is retried."""
    lately = timezone.now() - timedelta(seconds=60)
    changes_lately = run.steps.filter(tells(*CONTEXT_CHANGES), kind=Step.Kind.NOTE, at__gte=lately)
    if changes_lately.count() >= MOST_A_MINUTE:
        raise NotPossible(
            f"The context was changed {MOST_A_MINUTE} times within a minute. Each change repeats the run's "
            "model call. Wait a minute, then try again."
        )
    due = run.status == RunStatus.RUNNING
    changes: dict[str, Any] = {"status": RunStatus.QUEUED, "due_at": now()} if due else {}
    kept = _summary_kept(run, fact)
    append(run, "note", (fact, *kept), state=_state_with(run, kept) if kept else None, **changes)


def _summary_kept(run: Run, fact: Fact) -> tuple[Fact, ...]:
    """Return the fact that updates the newest summary in the state, if `fact` changes which one it is, or its text."""
    if not isinstance(fact, SummaryEdited | SummaryUndone):
        return ()
    machine = CATALOGUE[run.machine]
    context = folded([*context_blocks(run), *blocks_of(machine, (fact,), run.head + 1)])
    newest = max(context.standing(), key=lambda one: one.seq, default=None)
    return machine.summary_kept(newest.text if newest else "")


def _state_with(run: Run, facts: tuple[Fact, ...]) -> str:
    loaded = load(run, terms_of(run, {}))
    return loaded.machine.fold(loaded.snapshot.state, facts).model_dump_json()
