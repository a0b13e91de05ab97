"""A run that begins as a copy of another run's steps: a fork, a rerun, a replay.

A copy is the log from its first step to step k, rolled-back ones included. Every step keeps its `seq`, so paths,
rollbacks and summaries still name the same ones. One transaction writes it, with its files; the source is only read.
See docs/runtime.md, "Going back".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from django.db import transaction
from django.db.models import Max, Q, QuerySet

from runs.adapters.folder import RunFolder
from runs.engine.effects import (
    ANSWER,
    EFFECT,
    ChildRun,
    Failed,
    HumanCall,
    HumanSaid,
    ToolCall,
    question_of,
)
from runs.engine.facts import (
    RECOVERED,
    AnswersKept,
    DataRead,
    EarlierRun,
    Exited,
    Fact,
    Forked,
    KeptAnswer,
    LimitRaised,
)
from runs.engine.gates import asks_after_restore
from runs.engine.machine import END, State, Terms
from runs.engine.outages import ATTEMPTS
from runs.engine.presentation import BudgetRow
from runs.engine.replaying import Replay
from runs.engine.settings import LIMIT_NAMES, GivenAnswer
from runs.engine.snapshot import Totals
from runs.engine.timeline import blocks_of
from runs.failpoints import failpoint
from runs.machines import CATALOGUE
from runs.models import Artifact, Budget, Decision, Exchange, Interrupt, Run, RunStatus, Step, tells, tells_of
from runs.store.appending import facts_text
from runs.store.creating import NewRun, clear_folder, folder_of, terms_hash, unsaved
from runs.store.db import first, for_people
from runs.store.decisions import Said, given_answer
from runs.store.deeds import may_answer, may_keep
from runs.store.endings import ended
from runs.store.errors import NotPossible
from runs.store.going_back import prompt_chain
from runs.store.leases import IS_MADE_ANEW
from runs.store.loading import gone_over, state_at
from runs.store.log import HASHED, Row, lock
from runs.store.switching import CHANGES, changed_by

Origin = Literal["fork", "replay", "rerun"]

AT_ONCE = 500
"""Rows inserted by one statement."""

Copied = TypeVar("Copied", Exchange, Artifact)

NOT_ANSWERS = ("abort", "rollback")
"""Verdicts that end a run or roll it back: never repeated for a person."""

DEADLINE = "deadline"
SETTINGS = "settings"
KEPT = "kept"
IN_FORK = "fork"
"""Channels of decisions."""


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of a fork against its source."""

    by: str
    message: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    """The changed settings, by name; None for a removed one."""
    state: dict[str, Any] = field(default_factory=dict)
    answers: tuple[KeptAnswer, ...] = ()


# --- the source -----------------------------------------------------------------------------------------------------


def check_row(run: Run, seq: int) -> tuple[str, bool, str | None]:
    """Return a step's kind, liveness and target; raises `NotPossible` if the run has no such step."""
    found: tuple[str, bool, str | None] | None = first(
        'SELECT kind, live, "to" FROM runs_step WHERE run_id = %s AND seq = %s', run.pk, seq
    )
    if found is not None:
        return found
    last = run.steps.aggregate(last=Max("seq"))["last"]
    known = f"its steps are 1 to {last}" if last else "it has none yet"
    raise NotPossible(f"Run {run.pk} has no step {seq}; {known}.")


def check_fork(run: Run, at: int) -> str:
    """Return the first node of a fork at step `at`; raises `NotPossible` if it can't begin there. 0 is the
    beginning."""
    if at == 0:
        return CATALOGUE[run.machine].start
    kind, live, to = check_row(run, at)
    if kind != Step.Kind.TRANSITION or not live:
        why = "was rolled back" if not live else f"is a step of kind {kind}"
        raise NotPossible(f"Step {at} of run {run.pk} {why}: name a live transition, or 0 for the beginning.")
    if to == END:
        raise NotPossible(
            f"Step {at} ends run {run.pk}: a copy could not continue there. Name an earlier step."
        )
    return str(to)


def limits_at(run: Run, at: int) -> dict[str, float]:
    """Return the limits in force at step `at`: the given ones, with people's raises by then.

    A fork was given its source's raises: only those after its own first step are added.
    """
    machine = CATALOGUE[run.machine]
    checked = machine.settings.model_validate_json(run.settings_json)
    limits: dict[str, float] = {}
    for name in LIMIT_NAMES:
        if (limit := checked.limits.of(name)) is not None:
            limits[name] = limit
    if not limits:
        return {}
    forked = run.steps.filter(tells("run.forked"), kind=Step.Kind.NOTE)
    given = forked.aggregate(seq=Max("seq"))["seq"] or 0
    raises = run.steps.filter(kind=Step.Kind.LIMIT, seq__gt=given, seq__lte=at).order_by("seq")
    for text in raises.values_list("facts_json", flat=True):
        for fact in machine.facts.validate_json(text):
            if isinstance(fact, LimitRaised) and fact.name in limits:
                limits[fact.name] = fact.limit
    return limits


def totals_at(run: Run, at: int) -> Totals:
    """Return the usage of the steps up to `at`, rolled-back ones included."""
    made_anew = set(run.steps.filter(IS_MADE_ANEW, seq__lte=at).values_list("seq", flat=True))
    totals = before_the_call = Totals()
    heard, in_doubt = False, False
    for exchange in run.exchanges.filter(seq__lte=at).order_by("seq").iterator():
        once_more = exchange.kind == "tool_call" and (in_doubt or exchange.seq in made_anew)
        in_doubt = exchange.kind == "human_call" and exchange.name == "may_have_happened"
        if not once_more and not in_doubt:
            before_the_call, heard = totals, False
        # The attempts of a call count as one, whichever answers; a person's answer beside a late one of its own counts
        # as none.
        if exchange.answer_json is not None and not (in_doubt and heard):
            totals = _charged(before_the_call if once_more else totals, exchange)
            heard = heard or exchange.kind == "tool_call"
    for text in run.steps.filter(seq__lte=at, kind=Step.Kind.RECOVERED).values_list("facts_json", flat=True):
        totals = totals.after_losses(RECOVERED.validate_json(text))
    took = run.steps.filter(seq__lte=at).values_list("ms", flat=True)
    return totals._replace(active_seconds=round(sum(took) / 1000, 6))


def _charged(totals: Totals, exchange: Exchange) -> Totals:
    """Return the totals with one exchange, as the kernel counts it."""
    effect, answer = (
        EFFECT.validate_json(exchange.request_json),
        ANSWER.validate_json(exchange.answer_json or ""),
    )
    match effect, answer:
        case HumanCall(about="may_have_happened"), HumanSaid(verdict="respond" | "reject"):
            return totals._replace(tool_calls=totals.tool_calls + 1)
        case ToolCall() | ChildRun(), Failed() as failed:
            again = failed.blame == "transient" and exchange.attempt < ATTEMPTS
            return totals if again else totals.after_call_failed(failed)
    return totals.after(answer)


def answers_after(run: Run, at: int, channels: Iterable[str]) -> tuple[KeptAnswer, ...]:
    """Return the answers after step `at` on the live path, in order, from these channels only."""
    questions = _questions_after(run, at)
    decided = Decision.objects.filter(interrupt__in=questions, channel__in=tuple(channels))
    found = list(
        decided.exclude(verdict__in=NOT_ANSWERS).select_related("interrupt").order_by("interrupt__seq")
    )
    asked = run.exchanges.filter(seq__in=questions.values("seq")).values_list("seq", "request_json")
    requests = dict(asked)
    return tuple(
        kept_as(EFFECT.validate_json(requests[decision.interrupt.seq]), decision) for decision in found
    )


def first_question(run: Run, at: int) -> tuple[Interrupt, HumanCall] | None:
    """Return the first question after step `at` on the live path."""
    interrupt = _questions_after(run, at).order_by("seq").first()
    if interrupt is None:
        return None
    asked = EFFECT.validate_json(run.exchanges.get(seq=interrupt.seq).request_json)
    return (interrupt, asked) if isinstance(asked, HumanCall) else None


def _questions_after(run: Run, at: int) -> QuerySet[Interrupt]:
    """Return the questions after step `at` on the live path, except those about the outcome of a call, which don't
    recur."""
    live = run.steps.filter(live=True, kind=Step.Kind.ASK, seq__gt=at).values("seq")
    return Interrupt.objects.filter(run=run, seq__in=live).exclude(kind="may_have_happened")


def kept_as(asked: Any, decision: Decision) -> KeptAnswer:
    """Return a decision in the form in which it is kept for the same question."""
    assert isinstance(asked, HumanCall)
    return KeptAnswer(
        about=asked.about,
        question=question_of(asked),
        verdict=decision.verdict,
        args=None if decision.args_json is None else json.loads(decision.args_json),
        message=decision.message,
        allow_host=decision.allow_host,
    )


PEOPLE = ("web", "admin", "api", "command", KEPT, IN_FORK)
"""Channels through which people answer."""


# --- answers given in advance ---------------------------------------------------------------------------------------


def prepared_answer(run: Run, call: HumanCall, answers: tuple[GivenAnswer, ...], rule: str) -> Said | None:
    """Return the prepared answer to an opening question: the one kept for it, else the next of the launch's answers.

    `rule` names the asking rule. Only a person can say whether a call has happened already.
    """
    if call.about == "may_have_happened" or asks_after_restore(call):
        return None
    kept = _kept_answer(run, call)
    if kept is not None:
        return kept
    given = given_answer(run.pk, answers)
    if given is None or not may_answer(run, call, rule):
        return None
    return Said(channel=SETTINGS, by_name="the launch settings", **given.model_dump())


def _kept_answer(run: Run, call: HumanCall) -> Said | None:
    """Return the next answer kept for this very question, if one is left.

    Each fork or rollback may keep answers: only the last one counts.
    """
    found = _kept_for(run)
    if found is None or not may_keep(run, found[1].by):
        return None
    after, kept = found
    question = question_of(call)
    fitting = [one for one in kept.answers if (one.about, one.question) == (call.about, question)]
    used = _times_answered(run, after, call.about, question) if fitting else 0
    if used >= len(fitting):
        return None
    answer = fitting[used]
    return Said(
        verdict=answer.verdict,
        by_name=kept.by,
        channel=answer.channel,
        args=answer.args,
        message=answer.message,
        allow_host=answer.allow_host,
    )


def _kept_for(run: Run) -> tuple[int, AnswersKept] | None:
    """Return the answers kept by the last fork or rollback, and its step."""
    began = Q(kind=Step.Kind.REWIND) | Q(seq=(run.copied_upto or 0) + 1)
    row = run.steps.filter(began, live=True).order_by("-seq").first()
    facts = CATALOGUE[run.machine].facts.validate_json(row.facts_json) if row is not None else ()
    kept = next((fact for fact in facts if isinstance(fact, AnswersKept)), None)
    return (row.seq, kept) if row is not None and kept is not None else None


def _times_answered(run: Run, after: int, about: str, question: str) -> int:
    kept = Decision.objects.filter(interrupt__run=run, channel__in=(KEPT, IN_FORK))
    decided = kept.filter(interrupt__seq__gt=after)
    seqs = decided.filter(interrupt__kind=about).values("interrupt__seq")
    requests = run.exchanges.filter(seq__in=seqs).values_list("request_json", flat=True)
    return sum(_asks(EFFECT.validate_json(text), question) for text in requests)


def _asks(effect: Any, question: str) -> bool:
    return isinstance(effect, HumanCall) and question_of(effect) == question


# --- the copy -------------------------------------------------------------------------------------------------------


@for_people
def fork_run(
    source: Run,
    at: int,
    new: NewRun,
    terms: Terms,
    change: Change,
    origin: Origin,
    check: Callable[[Run], None],
) -> Run:
    """Return a new run that goes on from step `at` of `source`. `terms` are those of the new one.

    `check` raises if the source, which no other transaction can change meanwhile, must not be copied.
    """
    machine = CATALOGUE[source.machine]
    with transaction.atomic():
        lock(source.pk)
        node = check_fork(source, at)
        check(source)
        before = terms.model_copy(
            update={"settings": machine.settings.model_validate_json(source.settings_json)}
        )
        forked = Forked(
            run=source.pk,
            seq=at,
            by=change.by,
            message=change.message,
            settings_before=source.settings,
            model_before=source.model,
            changed=change.settings,
            state=change.state,
        )
        facts: tuple[Fact, ...] = (forked, *_inherited_facts(source, at))
        if change.answers:
            facts += (AnswersKept(answers=change.answers, by=change.by),)
        state = state_at(source, machine, before, at).model_copy(update={"terms": terms})
        after = machine.fold(state, facts)
        row = Row(at + 1, "note", node, facts_json=facts_text(facts))
        row.state_json = after.model_dump_json() if after != state else None
        run = unsaved(new)
        run.node, run.status = node, RunStatus.QUEUED
        copy = _Copy(source, run, at, origin, totals_at(source, at))
        copy.write([*copy.rows(), (row, True)], after)
    run.refresh_from_db()
    return run


def _inherited_facts(source: Run, at: int) -> tuple[Fact, ...]:
    """Return the facts kept by a fork from the beginning: the runs before its goal, and their data."""
    first = None if at else source.steps.filter(seq=1, kind=Step.Kind.NOTE).first()
    facts = CATALOGUE[source.machine].facts.validate_json(first.facts_json) if first else ()
    return tuple(fact for fact in facts if isinstance(fact, DataRead | EarlierRun))


def write_replay(source: Run, replay: Replay, new: NewRun, parent: tuple[Run, int, str] | None = None) -> Run:
    """Write a new run from the replayed steps. It has ended, whatever the record's state: no worker goes on with it."""
    with transaction.atomic():
        lock(source.pk)  # a late answer is in both its exchange and the totals, or in neither
        run = unsaved(new)
        run.site_skills = source.site_skills
        run.head_hash = terms_hash(run)
        if parent is not None:
            run.parent, run.parent_seq, run.child_name = parent
        last = replay.rows[-1].seq if replay.rows else replay.record.opening.seq
        copy = _Copy(source, run, last, "replay", totals_at(source, last))
        rows = copy.rows()
        state = replay.snapshot.state
        if not replay.ended:
            exit_ = _why_it_ends(source, replay, last)
            state = replay.machine.fold(state, (exit_,))
            row = Row(last + 1, "stop", replay.snapshot.node, facts_json=facts_text((exit_,)))
            row.state_json = state.model_dump_json()
            rows.append((row, True))
        run.node = END
        for name, value in ended(replay.machine, state).items():
            setattr(run, name, value)
        copy.write(rows, state)
    run.refresh_from_db()
    return run


def _why_it_ends(source: Run, replay: Replay, last: int) -> Exited:
    if replay.difference is not None:
        return Exited(reason="fatal_error", message=f"The replay differs. {replay.difference}")
    why = f"Replayed up to step {last} of run {source.pk}, as requested."
    return Exited(reason="aborted", message=why)


class _Copy:
    """One run's steps and their rows in other tables, written as another run's."""

    def __init__(self, source: Run, run: Run, upto: int, origin: Origin, totals: Totals) -> None:
        self.source = source
        self.run = run
        self.upto = upto
        self.totals = totals
        run.origin, run.copied_from, run.copied_upto = origin, source, upto
        run.restored_at = source.restored_at
        if origin != "replay":
            run.root_id = source.root_id or source.pk

    def rows(self) -> list[tuple[Row, bool]]:
        """Return the copied steps, each with whether it is live."""
        steps = self.source.steps.filter(seq__lte=self.upto).order_by("seq")
        gone = gone_over(steps)
        return [(_row(step), not any(step.seq in over for over in gone)) for step in steps]

    def write(self, rows: Sequence[tuple[Row, bool]], state: State) -> None:
        """Write everything, within the caller's transaction."""
        run, machine = self.run, CATALOGUE[self.run.machine]
        interrupts = self._interrupts()
        ids = {str(old): str(copy.pk) for old, copy in interrupts.items()}
        steps = []
        for row, live in rows:
            if row.kind == Step.Kind.DECISION:
                row.facts_json = _renamed(row.facts_json, ids)
            run.head_hash = row.hashed(run.head_hash)
            steps.append(_step(run, row, run.head_hash, live))
            if any(kind in row.facts_json for kind in CHANGES):
                run.switched_to = changed_by(machine.facts.validate_json(row.facts_json), run.switched_to)
            if live:
                blocks = blocks_of(machine, machine.facts.validate_json(row.facts_json), row.seq)
                run.prompt_hash = prompt_chain(run.prompt_hash, blocks)
        run.head = rows[-1][0].seq if rows else 0
        for name, used in self.totals._asdict().items():
            setattr(run, name, used)
        run.copied_usd = self.totals.cost_usd
        run.copied_tokens = self.totals.input_tokens + self.totals.output_tokens
        run.save(force_insert=True)
        Step.objects.bulk_create(steps, batch_size=AT_ONCE)
        failpoint("inside_fork")
        self._copy_rest(interrupts)
        self._open_budgets(machine.budget(state))
        self._copy_files()
        failpoint("after_fork_files")

    def _copy_rest(self, interrupts: Mapping[Any, Interrupt]) -> None:
        run = self.run
        exchanges = [_as_new(found, run) for found in self.source.exchanges.filter(seq__lte=self.upto)]
        Exchange.objects.bulk_create(exchanges, batch_size=AT_ONCE)
        Interrupt.objects.bulk_create(interrupts.values(), batch_size=AT_ONCE)
        decisions = Decision.objects.filter(interrupt__run=self.source, interrupt__seq__lte=self.upto)
        copies = []
        for decision in decisions:
            decision.interrupt = interrupts[decision.interrupt_id]
            decision.pk, decision._state.adding = None, True
            copies.append(decision)
        Decision.objects.bulk_create(copies, batch_size=AT_ONCE)
        made = [_as_new(found, run) for found in self.source.artifacts.filter(seq__lte=self.upto)]
        Artifact.objects.bulk_create(made, batch_size=AT_ONCE)

    def _interrupts(self) -> dict[Any, Interrupt]:
        """Return the steps' questions, as history: none of them can be decided."""
        copies = {}
        for found in Interrupt.objects.filter(run=self.source, seq__lte=self.upto).order_by("seq"):
            old = found.pk
            found.pk = Interrupt._meta.pk.get_default()
            found.run, found._state.adding = self.run, True
            if found.status == Interrupt.Status.PENDING:
                found.status = Interrupt.Status.SUPERSEDED
            copies[old] = found
        return copies

    def _open_budgets(self, lines: Iterable[BudgetRow]) -> None:
        machine = CATALOGUE[self.run.machine]
        checked = machine.settings.model_validate_json(self.run.settings_json)
        limits = {name: limit for name in LIMIT_NAMES if (limit := checked.limits.of(name)) is not None}
        if self.run.origin == "replay":
            limits = limits_at(self.source, self.upto)  # type: ignore[assignment]
        budgets = [Budget(run=self.run, **line._asdict()) for line in lines]
        for name in LIMIT_NAMES:
            if name in limits:
                used = round(self.totals.used(name), 10)
                budgets.append(Budget(run=self.run, scope="limits", name=name, used=used, limit=limits[name]))
        Budget.objects.bulk_create(budgets)

    def _copy_files(self) -> None:
        """Copy the run's directory, with the files as of the last copied step."""
        clear_folder(self.run.pk)
        try:
            RunFolder(folder_of(self.run.pk)).begin_as(RunFolder(folder_of(self.source.pk)), self._files())
        except BaseException:
            clear_folder(self.run.pk)
            raise

    def _files(self) -> list[tuple[str, str]]:
        """Return name and SHA-256 of every copied version, in order; of older runs the names only."""
        files = self.source.artifacts.filter(seq__lte=self.upto, kind__in=("file", "display")).order_by("seq")
        told = self.source.steps.filter(tells_of("react.tool.result", files=True), seq__lte=self.upto)
        names: dict[str, None] = {}
        for text in told.order_by("seq").values_list("facts_json", flat=True):
            for fact in json.loads(text):
                names |= dict.fromkeys(fact.get("files") or ())
        # A contract's artifact may have a name without a file; its bytes are those of a copied file.
        versions = [(name, digest) for name, digest in files.values_list("name", "sha256") if name in names]
        known = {name for name, _ in versions}
        return [(name, "") for name in names if name not in known] + versions


def _row(step: Step) -> Row:
    return Row(**{name: getattr(step, name) for name in HASHED})


def _step(run: Run, row: Row, hash_: str, live: bool) -> Step:  # noqa: FBT001 (a column's own value)
    columns = {name: getattr(row, name) for name in HASHED}
    return Step(run=run, live=live, hash=hash_, **columns)


def _as_new(found: Copied, run: Run) -> Copied:
    found.pk, found.run, found._state.adding = None, run, True
    return found


def _renamed(text: str, ids: Mapping[str, str]) -> str:
    """Return the facts of a decision with the new id of its question."""
    for old, new in ids.items():
        text = text.replace(old, new)
    return text
