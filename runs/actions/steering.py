"""Decide interrupts, and steer a run: abort, pause, resume, roll back; and resume runs paused by a restore."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from runs import driver
from runs.actions.common import NotAllowed, as_told, check_steering, name_of, note_of, tell
from runs.engine.facts import KeptAnswer
from runs.models import Decision, Interrupt, Run
from runs.rights import Person, may_decide
from runs.store import after_row, copying, decisions, restored, shared_limits, switching
from runs.store.errors import BadDecision, Busy, Conflict, NotPossible

log = logging.getLogger(__name__)


def decide(
    interrupt_id: Any,
    *,
    verdict: str,
    by: Person,
    channel: str,
    args: dict[str, Any] | None = None,
    message: str = "",
    to_step: int | None = None,
    allow_host: bool = False,
    revision: int | None = None,
    fingerprint: str | None = None,
) -> Decision:
    """Answer an interrupt, once; the run is queued after the decision is committed."""

    def check(run: Run) -> None:
        if not may_decide(by, run):
            raise NotAllowed("You may not decide this. A reviewer can.")

    said = decisions.Said(
        verdict=verdict,
        by_name=name_of(by),
        by_id=by.pk if by is not None else None,
        channel=channel,
        args=args,
        message=message,
        to_step=to_step,
        allow_host=allow_host,
        revision=revision,
        fingerprint=fingerprint,
    )
    if verdict == "resume" and isinstance(args, dict):
        _check_model(interrupt_id, args.get("model"), check)
    try:
        decision = decisions.decide(interrupt_id, said, check)
    except Conflict:
        tell(Interrupt.objects.get(pk=interrupt_id).run_id)  # the deadline may have decided just now
        raise
    tell(decision.interrupt.run_id)
    if verdict == "top_up":
        _resume_family(decision.interrupt.run, said, by)
    return decision


def _check_model(interrupt_id: Any, named: Any, check: Callable[[Run], None]) -> None:
    """Raise `BadDecision` if the run can't call the named model. `check` refuses people without the right first."""
    run = Run.objects.filter(interrupts=interrupt_id).first()
    if run is None or not isinstance(named, str) or named not in switching.others_than(""):
        return  # refused later with the names of the existing ones
    check(run)
    if why := driver.unfit_for(run, named):
        raise BadDecision(why, "args.model")


def _resume_family(run: Run, said: decisions.Said, by: Person) -> None:
    """Resume the other runs of the family for which a raised shared limit now has room."""
    for question in shared_limits.held_with_room(run):
        if not may_decide(by, question.run):
            continue
        why = f"Added in run {run.pk}; there is room for this one too."
        freed = replace(said, args=None, message=why, revision=question.revision, fingerprint=None)
        try:
            decisions.decide(question.pk, freed)
        except (BadDecision, Busy, Conflict, NotPossible):
            continue  # no room left, already answered, or the run is busy or over: the question stays as it is
        tell(question.run_id)


def abort(run: Run, *, by: Person, message: str = "") -> Run:
    """Cancel the run."""
    check_steering(by, run)
    parent = run.parent_id
    after = decisions.abort(run.pk, name_of(by), note_of(message))
    tell(run.pk)
    if parent is not None:
        tell(parent)
    return after


def pause(run: Run, *, by: Person, message: str = "") -> Run:
    """Pause the run until it is resumed."""
    check_steering(by, run)
    after = decisions.pause(run.pk, name_of(by), note_of(message))
    tell(run.pk)
    return after


def try_now(run: Run, *, by: Person) -> Run:
    """Make the next attempt of a waiting call at once."""
    check_steering(by, run)
    after = decisions.try_now(run.pk, name_of(by))
    tell(run.pk)
    return after


def resume(run: Run, *, by: Person) -> Run:
    check_steering(by, run)
    after = decisions.resume(run.pk, name_of(by))
    tell(run.pk)
    return after


@dataclass(frozen=True, slots=True)
class Resumption:
    """The result of resuming several runs: those resumed, and a sentence for each skipped one."""

    resumed: tuple[Run, ...]
    passed_over: tuple[str, ...]


def resume_restored(run_ids: Iterable[int], *, by: Person) -> Resumption:
    """Resume these runs, paused by a restore. Those that go on already, or are another owner's, are skipped."""
    visible = Run.objects.all() if by is None else Run.objects.for_user(by)
    resumed, passed_over = [], []
    for run_id in dict.fromkeys(run_ids):
        run = visible.filter(pk=run_id).first()
        if run is None:
            passed_over.append(f"There is no run {run_id}.")
            continue
        try:
            check_steering(by, run)
            resumed.append(restored.resume_restored(run_id, name_of(by)))
        except (NotAllowed, NotPossible) as why:
            passed_over.append(why.sentence)
        except Exception:
            log.exception("run %s could not be resumed", run_id)
            passed_over.append(f"Run {run_id} could not be resumed. Try again.")
        else:
            tell(run_id)
    return Resumption(tuple(resumed), tuple(passed_over))


def rewind(
    run: Run,
    *,
    to: int,
    by: Person,
    message: str = "",
    answers: Literal["ask again", "keep"] = "ask again",
    seen: str | None = None,
) -> Run:
    """Roll back to the state after the live transition step `to`; later answers are asked for again, or kept.

    `seen` is the mark of the page's account (`store.rollback_mark`); raises `ToldOtherwise` if it has changed.
    """
    check_steering(by, run)
    kept: tuple[KeptAnswer, ...] = ()
    if answers == "keep":
        if not may_decide(by, run):
            raise NotAllowed("Keeping answers needs the right to decide. Choose “Ask again” instead.")
        kept = copying.answers_after(run, to, (*copying.PEOPLE, copying.SETTINGS))
    check = as_told(seen, after_row.rollback_mark, to)
    after = decisions.rewind(run.pk, to, name_of(by), note_of(message), kept, check)
    tell(run.pk)
    return after
