"""Moves by people: each is one conditional change and one more step. The caller queues the run after it.

A person's step raises the epoch: a busy worker finds its lease gone at its next commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from runs.engine.effects import BY_HAND, LET_PASS, HumanSaid, Verdict
from runs.engine.facts import (
    TRIED_NOW,
    AnswersKept,
    Decided,
    Exited,
    Fact,
    KeptAnswer,
    LimitRaised,
    Notice,
    Paused,
    Resumed,
)
from runs.engine.gates import after_restore
from runs.engine.kernel import rewind as rewind_move
from runs.engine.machine import END
from runs.engine.old_rows import as_now
from runs.engine.settings import LIMIT_NAMES, WHOLE_LIMITS, GivenAnswer
from runs.engine.settling import cost_of
from runs.engine.tools import ToolSpec, check_arguments
from runs.engine.values import canonical, clean, clean_text
from runs.machines import CATALOGUE, NoMachine
from runs.models import Budget, Decision, Exchange, Interrupt, Run, RunStatus, Step
from runs.store.appending import append, batch_on, facts_text, tell_lost
from runs.store.db import again, for_people, now
from runs.store.endings import ended, for_parent
from runs.store.errors import BadDecision, Busy, Conflict, NotPossible
from runs.store.going_back import rewind_batch
from runs.store.held_back import tell_of_halts
from runs.store.loading import Loaded, load, restored_in, terms_of
from runs.store.log import Batch, Row, commit, lock
from runs.store.shared_limits import has_room, left_of, raise_shared
from runs.store.switching import check_another, model_asked_about, switch

MAX_MESSAGE = 4_000
"""Characters of a decision's message."""

MAX_RESPONSE = 65_536
"""Characters of a person's response: it stands for a result, and may be as long as a tool's."""

UNFIT = "An answer given at launch does not fit: "

LEAST_RAISE = {"cost_usd": 1e-6, "tokens": 1.0, "active_seconds": 0.1}
"""The least part of a limit that counts, in its own unit."""

TAKE_ARGS = ("edit", "top_up")
"""Verdicts with arguments."""


@dataclass(frozen=True, slots=True)
class Said:
    """A decision as it came in, with the version that the person saw."""

    verdict: str
    by_name: str
    channel: str
    by_id: int | None = None
    args: dict[str, Any] | None = None
    message: str = ""
    to_step: int | None = None
    allow_host: bool = False
    """With an approval of a call: its host may be contacted for the rest of the run."""
    revision: int | None = None
    fingerprint: str | None = None


def seated(run_id: int) -> Run:
    """Return the unfinished run with its epoch raised: its worker is fenced from here on.

    If a halt holds it back, or has, its log says so before the person's move.
    """
    run = Run.objects.select_for_update(no_key=True).get(pk=run_id)
    run.epoch += 1
    Run.objects.filter(pk=run_id).update(epoch=run.epoch)
    return _unfinished(run)


def _unfinished(run: Run) -> Run:
    """Return the locked run with its epoch raised; raises `NotPossible` if it can't be changed."""
    if run.finished:
        raise NotPossible(f"Run {run.pk} has ended already ({run.status}: {run.exit_reason}).")
    if run.machine not in CATALOGUE:
        raise NotPossible(NoMachine(run.machine).sentence)
    if run.status == RunStatus.QUEUED:
        tell_of_halts(run, run.due_at)
    return run


def _loaded(run: Run) -> Loaded:
    return load(run, terms_of(run, {}))


@for_people
def abort(run_id: int, by: str, message: str = "") -> Run:
    """End the run now, its unfinished children too. A call in flight can't be undone; its answer is kept."""
    with transaction.atomic():
        _lock_parent(run_id)
        run = seated(run_id)
        for child in Run.objects.filter(parent_id=run_id, ended_at__isnull=True):
            abort(child.pk, by, f"The parent, run {run_id}, was cancelled.")
        if run.reserved_usd or run.reserved_tokens:
            tell_lost(run, "The run was cancelled during a model call.")
        loaded = _loaded(run)
        said = f"{message} ({by})" if message else f"Cancelled by {by}."
        facts: tuple[Fact, ...] = (*cost_of(loaded.answer), Exited(reason="aborted", message=said))
        state = loaded.machine.fold(loaded.snapshot.state, facts)
        told, after = facts_text(facts), state.model_dump_json()
        row = Row(run.head + 1, "stop", run.node, facts_json=told, state_json=after)
        if loaded.answer is not None and loaded.exchange is not None:
            row.cover("answer", loaded.exchange.seq, loaded.exchange)
        changes = ended(loaded.machine, state)
        batch = batch_on(run, row, **changes)
        batch.node = END
        batch.totals = loaded.snapshot.totals.after(loaded.answer)
        batch.parent = for_parent(
            run, loaded.machine, state, changes, batch.totals.cost_usd, [row.facts_json]
        )
        commit(batch)
    run.refresh_from_db()
    return run


def _lock_parent(run_id: int) -> None:
    """Lock the parent's row: a run's end is told to its parent, and parents are locked before children."""
    parent = Run.objects.filter(pk=run_id).values_list("parent_id", flat=True).first()
    if parent is not None:
        lock(parent)


@for_people
def pause(run_id: int, by: str, message: str = "") -> Run:
    """Keep workers from the run until it is resumed."""
    with transaction.atomic():
        run = seated(run_id)
        if run.status == RunStatus.PAUSED:
            raise NotPossible(f"Run {run_id} is paused already.")
        append(run, "pause", (Paused(by=by, message=message),), status=RunStatus.PAUSED)
    return run


@for_people
def note(run_id: int, code: str, message: str, fault: str = "") -> None:
    """Add a step with a notice."""
    with transaction.atomic():
        append(seated(run_id), "note", (Notice(code=code, message=message, fault=fault),))


@for_people
def resume(run_id: int, by: str) -> Run:
    """Resume a paused run; one that waits for a person or a child keeps waiting."""
    with transaction.atomic():
        run = seated(run_id)
        if run.status != RunStatus.PAUSED:
            raise NotPossible(f"Run {run_id} is not paused ({run.status}).")
        exchange = _loaded(run).exchange
        parked = exchange is not None and exchange.kind in ("human_call", "child_run")
        waits = parked and exchange is not None and exchange.answer_json is None
        status = RunStatus.WAITING if waits else RunStatus.QUEUED
        append(run, "pause", (Resumed(by=by),), status=status, due_at=now())
    return run


@for_people
def try_now(run_id: int, by: str) -> Run:
    """Make a run due now that waits for a retry; nothing is noted where its time has come by itself."""
    with transaction.atomic():
        run = seated(run_id)
        is_due = run.due_at <= now()
        retries = run.exchanges.filter(attempt__gt=1).exclude(status=Exchange.Status.ANSWERED)
        if run.status != RunStatus.QUEUED or (is_due and not retries.exists()):
            raise NotPossible(f"Run {run_id} is not waiting for a retry ({run.status}).")
        if is_due:
            return run
        told = Notice(code=TRIED_NOW, message=f"{by} requested the retry now.")
        append(run, "note", (told,), due_at=now())
    return run


@for_people
def rewind(
    run_id: int,
    to: int,
    by: str,
    message: str = "",
    kept: tuple[KeptAnswer, ...] = (),
    check: Callable[[Run], None] | None = None,
) -> Run:
    """Roll back to the state after the live transition step `to`; the later steps stay visible.

    `kept` are answers to repeat if their questions come again. `check` raises if the run, which no other transaction
    can change meanwhile, must not be rolled back.
    """
    with transaction.atomic():
        run = seated(run_id)
        check_target(run, to)
        if check is not None:
            check(run)
        stop_children(run_id, to)
        loaded = _loaded(run)
        move = rewind_move(loaded.machine, loaded.snapshot, to, by, message)
        told: tuple[Fact, ...] = (AnswersKept(answers=kept, by=by),) if kept else ()
        batch, _ = rewind_batch(loaded, replace(move, facts=(*move.facts, *told, *cost_of(loaded.answer))))
        batch.totals = loaded.snapshot.totals.after(loaded.answer)
        status = RunStatus.PAUSED if run.status == RunStatus.PAUSED else RunStatus.QUEUED
        batch.changes |= {"status": status, "due_at": now()}
        commit(batch)
    run.refresh_from_db()
    return run


def stop_children(run_id: int, after: int) -> None:
    """Stop the unfinished children whose ask is no longer live."""
    for child in Run.objects.filter(parent_id=run_id, parent_seq__gt=after, ended_at__isnull=True):
        abort(child.pk, "the parent's rollback", f"The parent, run {run_id}, was rolled back.")


def check_target(run: Run, to: int) -> None:
    """Raise `NotPossible` if the run can't be rolled back to step `to`."""
    if not run.steps.filter(seq=to, live=True, kind=Step.Kind.TRANSITION).exists():
        raise NotPossible(f"Run {run.pk} can't be rolled back to step {to}: it is not a live transition.")


# --- decisions --------------------------------------------------------------------------------------------------


class _NotOpen(Exception):
    """The question is no longer pending, or its deadline is over: the transaction has changed nothing."""

    def __init__(self, interrupt: Interrupt) -> None:
        self.interrupt = interrupt


@for_people
def decide(interrupt_id: Any, said: Said, check: Callable[[Run], None] | None = None) -> Decision:
    """Decide a pending interrupt, once. The same decision again returns the first one's outcome.

    `check` raises if the run, which no other transaction can change meanwhile, must not be decided about.
    """
    try:
        return _decide(interrupt_id, said, check, late="refused")
    except _NotOpen as found:
        if found.interrupt.status != Interrupt.Status.PENDING:
            return _decided_before(found.interrupt, said)
        late = found.interrupt
    _expire(late)
    try:
        return _decide(interrupt_id, said, check, late="taken")
    except _NotOpen as found:
        return _decided_before(found.interrupt, said)


def _decide(
    interrupt_id: Any, said: Said, check: Callable[[Run], None] | None, late: Literal["refused", "taken"]
) -> Decision:
    """Decide in one transaction. Raises `_NotOpen` if the question is not pending, or is late and `late`
    refuses that."""
    with transaction.atomic():
        # The first statement waits for the run's row and fences its worker; later reads can't change.
        Run.objects.filter(interrupts=interrupt_id).update(epoch=F("epoch") + 1)
        interrupt = Interrupt.objects.select_related("run").annotate(now=Now()).get(pk=interrupt_id)
        if check is not None:
            check(interrupt.run)
        _check_parts(interrupt, said)
        over = interrupt.deadline is not None and interrupt.deadline <= interrupt.now
        if interrupt.status != Interrupt.Status.PENDING or (
            over and late == "refused" and said.channel != "deadline"
        ):
            raise _NotOpen(interrupt)
        _check_seen(interrupt, said)
        verdict = _check_verdict(interrupt, said)
        args = _check_args(interrupt, said)
        Interrupt.objects.filter(pk=interrupt.pk).update(status=_outcome(said), decided_at=timezone.now())
        decision = _record(interrupt, said, args)
        _apply(interrupt, decision, verdict, args, interrupt.now)
    return decision


@again
def commit_answered(batch: Batch, said: Said) -> tuple[str, BadDecision | None]:
    """Write a question together with its prepared answer, so it is never open.

    Return the new head hash, and the fault of an unfit answer: then the question waits for a person.
    """
    assert batch.interrupt is not None
    with transaction.atomic():
        head_hash = commit(batch)
        try:
            decide(batch.interrupt.pk, said)
        except Conflict:
            pass  # its deadline was over at once, and decided
        except BadDecision as fault:
            Run.objects.filter(pk=batch.run_id).update(status=RunStatus.WAITING)
            note(batch.run_id, "answer_unfit", f"{UNFIT}{fault.sentence}", fault.sentence)
            return head_hash, fault
    return head_hash, None


def unfit_answer(question: Interrupt) -> str:
    """Return the fault of the question's prepared answer; empty if there is none."""
    note = Step.objects.filter(run=question.run_id, seq=question.seq + 1, kind=Step.Kind.NOTE).first()
    for fact in json.loads(note.facts_json) if note is not None else ():
        if fact.get("code") == "answer_unfit":
            return str(as_now(fact)["fault"])
    return ""


def _expire(interrupt: Interrupt) -> None:
    """Let the deadline decide a question that is answered after it, if no sweep has done so yet."""
    try:
        decide(interrupt.pk, unanswered(interrupt))
    except Busy:
        raise
    except (Conflict, NotPossible):
        return


def unanswered(interrupt: Interrupt) -> Said:
    """Return the deadline's decision: by the rule, else denial; abort if the kind can't be denied."""
    wanted = {"deny": ("reject",), "approve": ("approve", "resume"), "abort": ("abort",)}[
        interrupt.on_timeout
    ]
    verdict = next((verdict for verdict in wanted if verdict in interrupt.verdicts), "abort")
    return Said(
        verdict=verdict, by_name="the deadline", channel="deadline", message="Expired: no answer in time."
    )


def _outcome(said: Said) -> str:
    return Interrupt.Status.EXPIRED if said.channel == "deadline" else Interrupt.Status.DECIDED


def _decided_before(interrupt: Interrupt, said: Said) -> Decision:
    decision = Decision.objects.filter(interrupt=interrupt).first()
    if decision is None:
        raise Conflict(None, "This question is no longer open: its run was rolled back or has ended.")
    takes_args = said.args is not None and said.verdict in (*TAKE_ARGS, "resume")
    args = canonical(clean(said.args)) if takes_args else None
    same = (
        decision.verdict,
        decision.args_json,
        decision.message,
        decision.to_step,
        decision.allow_host,
    ) == (said.verdict, args, clean_text(said.message), said.to_step, said.allow_host)
    if same:
        return decision
    when = decision.at.strftime("%Y-%m-%d %H:%M UTC")
    raise Conflict(decision, f"{decision.by_name} already decided at {when}: {decision.verdict}.")


def _check_seen(interrupt: Interrupt, said: Said) -> None:
    if said.revision is not None and said.revision != interrupt.revision:
        raise Conflict(None, "The question has changed since you saw it. Read it again before you decide.")
    if said.fingerprint is not None and said.fingerprint != interrupt.fingerprint:
        raise Conflict(None, "The call has changed since you saw it. Read it again before you decide.")


def check_answer(interrupt: Interrupt, said: Said) -> dict[str, Any] | None:
    """Return the arguments of a decision; raises `BadDecision` if the question can't take it."""
    _check_parts(interrupt, said)
    _check_verdict(interrupt, said)
    return _check_args(interrupt, said)


def _check_parts(interrupt: Interrupt, said: Said) -> None:
    """Check that the verdict takes every part of the decision: nothing is dropped silently.

    An approval may name its very arguments.
    """
    takes_args = said.verdict in TAKE_ARGS or (said.verdict == "resume" and model_asked_about(interrupt))
    if said.args is not None and not takes_args and not _as_shown(interrupt, said):
        raise BadDecision(f"Only {' and '.join(TAKE_ARGS)} take arguments; nothing was decided.", "args")
    if said.to_step is not None and said.verdict != "rollback":
        raise BadDecision("Only rollback takes a step; nothing was decided.", "to_step")
    if said.allow_host and (not interrupt.host or said.verdict not in LET_PASS):
        what = (
            "This question is not about a host" if not interrupt.host else "Only an approval can allow a host"
        )
        raise BadDecision(f"{what}; nothing was decided.", "allow_host")
    length, most = len(clean_text(said.message)), MAX_RESPONSE if said.verdict == "respond" else MAX_MESSAGE
    if length > most:
        why = f"A message has at most {most} characters; this one has {length}; nothing was decided."
        raise BadDecision(why, "message")


def _as_shown(interrupt: Interrupt, said: Said) -> bool:
    return said.verdict == "approve" and canonical(clean(said.args)) == canonical(interrupt.args)


def _check_verdict(interrupt: Interrupt, said: Said) -> Verdict:
    for verdict in interrupt.verdicts:
        if verdict == said.verdict:
            break
    else:
        possible = ", ".join(interrupt.verdicts)
        given = f"{said.verdict} is not an answer" if said.verdict else "Name an answer"
        raise BadDecision(f"{given} to this question ({interrupt.kind}). Possible: {possible}.")
    if verdict == "rollback":
        if said.to_step is None:
            raise BadDecision("Name the step to roll back to.", "to_step")
        try:
            check_target(interrupt.run, said.to_step)
        except NotPossible as fault:
            raise BadDecision(fault.sentence, "to_step") from None
    if verdict == "respond" and not said.message.strip():
        raise BadDecision("Write the answer.", "message")
    return verdict  # type: ignore[return-value]


def _check_args(interrupt: Interrupt, said: Said) -> dict[str, Any] | None:
    match said.verdict:
        case "edit":
            return _edited(interrupt, said)
        case "top_up":
            return _added(interrupt, said)
        case "resume" if said.args is not None:
            return check_another(interrupt, said.args)
    return None


def _edited(interrupt: Interrupt, said: Said) -> dict[str, Any]:
    if not isinstance(said.args, dict):
        raise BadDecision("The new arguments must be a JSON object.", "args")
    name = interrupt.tool or ("the decision" if interrupt.kind == "plan" else "the call")
    spec = ToolSpec(name=name, parameters=interrupt.schema, effects="execute")
    checked = check_arguments(spec, clean(said.args))
    for fault in checked.faults:
        raise BadDecision(fault.message, f"args.{fault.param}")
    plan = CATALOGUE[interrupt.run.machine].plan if interrupt.kind == "plan" else None
    if plan is not None and isinstance(wrong := plan.changed(checked.args), str):
        raise BadDecision(wrong, "args.plan")
    return checked.args


def _added(interrupt: Interrupt, said: Said) -> dict[str, Any] | None:
    given = said.args or {}
    if not isinstance(given, dict):
        raise BadDecision("The amounts must be a JSON object: the limit's name and how much to add.", "args")
    if not given:
        if said.args is None and has_room(interrupt):
            return None  # it only goes on: the amount it waits for was added elsewhere
        raise BadDecision(f"Say how much to add, e.g. {interrupt.limit}.", f"args.{interrupt.limit}")
    for name, amount in given.items():
        if name not in LIMIT_NAMES:
            raise BadDecision(f"There is no limit {name}. Limits: {', '.join(LIMIT_NAMES)}.", "args")
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not number or not 0 < amount < 1e12:
            raise BadDecision(f"{name}: add a number above 0.", f"args.{name}")
        if name in WHOLE_LIMITS and amount != int(amount):
            raise BadDecision(f"{name}: add a whole number.", f"args.{name}")
        if amount < (least := _least_raise(interrupt, name)) - 1e-9:
            why = f"{name}: add at least {f'{least:.10f}'.rstrip('0').rstrip('.')}; less leaves the limit reached."
            raise BadDecision(why, f"args.{name}")
    return given


def _least_raise(interrupt: Interrupt, name: str) -> float:
    """Return the least raise that leaves something of the limit in question; of another, the least that counts."""
    left = left_of(interrupt) if name == interrupt.limit else None
    return LEAST_RAISE[name] - min(0.0, left or 0.0)


def _record(interrupt: Interrupt, said: Said, args: dict[str, Any] | None) -> Decision:
    return Decision.objects.create(
        interrupt=interrupt,
        verdict=said.verdict,
        args_json=canonical(args) if args is not None else None,
        message=clean_text(said.message),
        to_step=said.to_step,
        allow_host=said.allow_host,
        by_id=said.by_id,
        by_name=said.by_name,
        channel=said.channel,
        revision_seen=said.revision,
        fingerprint_seen=said.fingerprint or "",
    )


def _apply(
    interrupt: Interrupt, decision: Decision, verdict: Verdict, args: dict[str, Any] | None, now: datetime
) -> None:
    """Write the decision's row and the answer to the ask, and queue the run; a paused one stays paused."""
    run = _unfinished(interrupt.run)
    status = run.status if run.status == RunStatus.PAUSED else RunStatus.QUEUED
    decided = Decided(
        interrupt=str(interrupt.pk),
        about=interrupt.kind,
        verdict=verdict,
        by=decision.by_name,
        channel=decision.channel,
        message=decision.message,
        args=args,
        to_step=decision.to_step,
        allow_host=decision.allow_host,
    )
    append(run, "decision", (decided,), decision=decision, status=status, due_at=now)
    if verdict == "top_up":
        for name, amount in (args or {}).items():
            _raise_limit(run, name, amount, decision.by_name)
    if verdict == "resume" and args is not None:
        switch(run, args["model"], decision.by_name)
    said = HumanSaid(
        verdict=verdict,
        args=args,
        message=decision.message,
        to_step=decision.to_step,
        allow_host=decision.allow_host,
        by=decision.by_name,
        gates=after_restore(restored_in(run)) if decision.channel in BY_HAND else (),
    )
    Exchange.objects.filter(run=run, seq=interrupt.seq).update(
        status=Exchange.Status.ANSWERED, answer_json=said.model_dump_json(), answered_at=Now()
    )


def _raise_limit(run: Run, name: str, amount: float, by: str) -> None:
    """Raise the run's own limit, and the one shared with the run that it came from."""
    shared = raise_shared(run, name, amount)
    line = Budget.objects.filter(run=run, scope="limits", name=name).first()
    if line is not None:
        line.limit = round(line.limit + amount, 10)
        line.save(update_fields=["limit"])
    limit = line.limit if line is not None else shared
    if limit is None:
        raise BadDecision(f"The run has no limit {name} to add to.", f"args.{name}")
    append(run, "limit", (LimitRaised(name=name, added=amount, limit=limit, by=by),))


def given_answer(run_id: int, answers: tuple[GivenAnswer, ...]) -> GivenAnswer | None:
    """Return the next of the launch's answers, if one is left."""
    if not answers:
        return None
    used = given_answers(run_id).count()
    return answers[used] if used < len(answers) else None


def given_answers(run_id: int) -> QuerySet[Decision]:
    """Return the decisions that used answers of the launch; in rolled-back steps too."""
    return Decision.objects.filter(interrupt__run_id=run_id, channel="settings")
