"""An interrupt as the card that a person decides on: what, why, arguments, context, time left."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from django.utils import timezone

from runs.engine.effects import Draft, HumanCall, ModelCall
from runs.engine.gates import rule_that_asks
from runs.engine.rules import is_of_site, is_rule
from runs.models import Budget, Decision, Interrupt, Run, Step
from runs.reading import hidden_text, words
from runs.reading.arguments import ArgumentField, fields_of
from runs.reading.in_flight import late_end_of, unsure_of
from runs.reading.limits import (
    LimitAsked,
    Standing,
    also_short,
    as_asked,
    limit_asked,
    plain,
    standings,
    standings_of,
    wishes_of,
)
from runs.reading.lines import line_of
from runs.reading.looking import hides, is_risky, lets_act
from runs.reading.phrases import Line, call_text
from runs.reading.questions import answer_field, asked_of, questions_of, reason_of, title_of
from runs.reading.restored import doubt_of
from runs.reading.rollback import Again
from runs.reading.speaking import reads_of
from runs.rights import OPERATOR, decides
from runs.store.switching import others_than

Person = User | AnonymousUser

UNITS = {"cost_usd": "USD", "tokens": "tokens", "active_seconds": "seconds"}
"""In what amounts are added to a limit."""

CONTEXT_ROWS = 12
TARGETS = 40


@dataclass(frozen=True)
class Target:
    """A step that the run can go back to."""

    seq: int
    text: str


@dataclass(frozen=True)
class LimitLine:
    """A limit that can be raised, its lines as they stand. `suggested` is what the form offers to add."""

    name: str
    label: str
    lines: tuple[Standing, ...]
    """The run's own, and the one that it shares: what is added counts for both."""
    suggested: str
    """Also for another limit than the one that is asked about, where that would soon be reached too."""
    unit: str


@dataclass(frozen=True)
class Card:
    """Everything that the card shows. `typed` keeps what a person wrote when it could not be taken."""

    interrupt: Interrupt
    run: Run
    kind: words.Word
    effects: words.Word | None
    risk: words.Word | None
    fields: tuple[ArgumentField, ...]
    """The arguments of the call, whole."""
    call: str
    """The call that runs next, as code; of a request to a model, for what."""
    draft: Draft | None
    """The draft that an approval accepts."""
    thought: str
    context: tuple[Line, ...]
    limits: tuple[LimitLine, ...]
    title: str
    """What is asked, where it is no call."""
    questions: tuple[str, ...]
    """What is asked one by one, where it is more than one thing; the title has all of them too."""
    why: str
    """Why it is asked now; empty where the title says it."""
    whose_rule: str
    """Whose rule asks, in words: a rule's name is its author's, and may claim anything. Empty where no rule asks."""
    targets: tuple[Target, ...]
    may_decide: bool
    models: tuple[str, ...] | None = None
    """The models that may take the place of one that can't be called; None where something else is asked."""
    doubt: str = ""
    """Why it may have been answered already, and done; empty where nothing speaks for it."""
    began: datetime | None = None
    """When the call began that may have happened."""
    late_end: str = ""
    """How that call ended, where its worker was thought lost and has come back since."""
    decision: Decision | None = None
    typed: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    staying: Again | None = None
    """What a rollback that was asked for would leave done, where that has still to be confirmed."""

    @property
    def pending(self) -> bool:
        """Whether it can still be decided."""
        return self.interrupt.status == Interrupt.Status.PENDING

    @property
    def verdicts(self) -> dict[str, bool]:
        """What may be answered, for templates to look up."""
        return dict.fromkeys(self.interrupt.verdicts, True)

    @property
    def outcome(self) -> words.Word:
        """What was decided, or how it stands."""
        if self.decision is not None:
            return words.VERDICT_DONE[self.decision.verdict]
        return words.INTERRUPT_STATUS[self.interrupt.status]

    @property
    def decided_fields(self) -> tuple[ArgumentField, ...]:
        """What whoever decided gave: the whole new arguments, or the amounts that were added."""
        if self.decision is None or self.decision.args_json is None:
            return ()
        given = json.loads(self.decision.args_json)
        if self.decision.verdict == "resume":
            return fields_of({"properties": {"model": {"type": "string"}}}, given)
        if self.decision.verdict == "top_up":
            given = {words.LIMIT[name]: words.amount(name, more) for name, more in given.items()}
            return fields_of({"properties": {name: {"type": "string"} for name in given}}, given)
        return fields_of(self.interrupt.schema, given)

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What a person wrote for a question that is closed: name and text."""
        names = {"reason": "Reason", "answer": "Answer", "note": "Message", "to_step": "Roll back to step"}
        names |= {name: f"Answer to “{question}”" for name, question, _ in self.answers}
        if self.typed.get("verdict") == "top_up":  # the form offers amounts to whoever answers otherwise too
            names |= {f"amount.{name}": f"Amount in {unit}" for name, unit in UNITS.items()}
        written = [(label, self.typed.get(name, "")) for name, label in names.items()]
        written += [(one.name, self.typed.get(one.field, "")) for one in self.fields if one.changed]
        return [(name, text) for name, text in written if text.strip()]

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """Of several questions each with its field's name, and what was typed there."""
        fields = ((answer_field(number), question) for number, question in enumerate(self.questions, 1))
        return [(name, question, self.typed.get(name, "")) for name, question in fields]

    @property
    def channel(self) -> str:
        """From where it was decided, in words."""
        return words.channel(self.decision.channel, self.decision.by_name) if self.decision else ""

    @property
    def default(self) -> str:
        """What happens at the deadline, in words."""
        return words.TIMEOUT.get(self.interrupt.on_timeout, "denied")

    @property
    def deadline(self) -> datetime | None:
        """When that happens."""
        return self.interrupt.deadline

    @property
    def time_left(self) -> str:
        """How long until then."""
        if self.interrupt.deadline is None:
            return ""
        left = (self.interrupt.deadline - timezone.now()).total_seconds()
        return words.seconds(left) if left > 0 else "no time left"

    @property
    def waiting(self) -> str:
        """How long it has been waiting."""
        return words.seconds(max(0.0, (timezone.now() - self.interrupt.created_at).total_seconds()))

    @property
    def editable(self) -> bool:
        """Whether the arguments can be changed."""
        return "edit" in self.interrupt.verdicts

    @property
    def long(self) -> bool:
        """Whether not all of an argument is seen at once."""
        return any(field.long for field in self.fields)

    @property
    def high_risk(self) -> bool:
        """Whether approving asks for a second look: a call that does much, or hides something."""
        return is_risky(self.interrupt) or self.hides

    @property
    def second_look(self) -> bool:
        """Whether approving asks for a tick; it did where it says so, whatever was written as an escape."""
        return bool(self.doubt) or self.high_risk or self.long or "sure" in self.errors

    @property
    def wants_a_tick(self) -> bool:
        """Whether there is a box to tick: for an approval, and for room that lets such a call go."""
        if self.verdicts.get("approve"):
            return self.second_look
        raised = bool(self.verdicts.get("top_up")) and lets_act(self.interrupt, "top_up")
        return raised and bool(self.doubt or self.hides or self.long)

    @property
    def uncertain(self) -> bool:
        """Whether it asks about a call that may have happened, and does not hold one back."""
        return self.interrupt.kind == "may_have_happened"

    @property
    def hides(self) -> bool:
        """Whether something hides in the call."""
        return hides(self.interrupt, self.fields)


def headlines(interrupts: Collection[Interrupt]) -> dict[Any, str]:
    """What each asks, by its key, in one line: the call, or how far a limit is used; as it was when it was asked."""
    questions = questions_of(interrupts)
    return {found.pk: _headline(found, questions[found.pk]) for found in interrupts}


def _headline(interrupt: Interrupt, questions: tuple[str, ...] = ()) -> str:
    if interrupt.tool and interrupt.kind == "tool_call":
        return f"Run {call_text(interrupt.tool, interrupt.args)}?"
    if interrupt.kind == "limit":
        return as_asked(interrupt.title, interrupt.figures)
    return hidden_text.escaped(title_of(interrupt, questions))


class Asked(NamedTuple):
    """An open question in short."""

    headline: str
    why: str


def asked_now(interrupts: list[Interrupt]) -> dict[Any, Asked]:
    """What each that is open asks, by its key; limits as they stand now, read at once for all."""
    about = [found for found in interrupts if found.kind == "limit"]
    others = [found for found in interrupts if found.kind != "limit"]
    questions = questions_of(others)
    asked = {one.pk: Asked(_headline(one, own := questions[one.pk]), reason_of(one, own)) for one in others}
    return asked | _limits_asked_now(about) if about else asked


def _limits_asked_now(interrupts: list[Interrupt]) -> dict[Any, Asked]:
    runs = {found.run_id: found.run for found in interrupts}
    budgets: dict[int, list[Budget]] = {}
    for line in Budget.objects.filter(run__in=runs, scope="limits"):
        budgets.setdefault(line.run_id, []).append(line)
    limits, wishes = standings_of(runs.values(), budgets), wishes_of(interrupts)
    asked = {}
    for found in interrupts:
        about = limit_asked(found, found.run, limits[found.run_id], wishes[found.pk])
        asked[found.pk] = Asked(about.headline, about.why) if about else Asked(_headline(found), "")
    return asked


def headline_now(interrupt: Interrupt) -> str:
    """The line of a question that is open."""
    return asked_now([interrupt])[interrupt.pk].headline


def pending_for(person: Any) -> QuerySet[Interrupt]:
    """The interrupts that wait for `person`: those of the runs they may see, where they may decide."""
    if not decides(person):
        return Interrupt.objects.none()
    visible = Run.objects.for_user(person)
    pending = Interrupt.objects.filter(status=Interrupt.Status.PENDING)
    return pending if person.has_perm("runs.view_run") else pending.filter(run__in=visible)


def pending_count(person: Any) -> int:
    """How many interrupts wait for `person`."""
    return pending_for(person).count()


def card_of(interrupt: Interrupt, person: Any, run: Run | None = None) -> Card:
    """The card of an interrupt for `person`."""
    run = run or interrupt.run
    thought, context = _context(run, interrupt.seq)
    pending = interrupt.status == Interrupt.Status.PENDING
    limits = _limits_of(run, interrupt)
    about = limit_asked(interrupt, run, limits, wishes_of([interrupt])[interrupt.pk]) if limits else None
    questions = questions_of([interrupt])[interrupt.pk]
    asked = asked_of(interrupt)
    unsure = unsure_of(interrupt) if interrupt.kind == "may_have_happened" else None
    return Card(
        interrupt=interrupt,
        run=run,
        kind=words.INTERRUPT[interrupt.kind],
        effects=words.EFFECTS.get(interrupt.effects),
        risk=words.RISK.get(interrupt.risk) if interrupt.tool else None,
        fields=fields_of(interrupt.schema, interrupt.args),
        call=_call(interrupt, asked),
        draft=asked.draft if asked else None,
        thought=thought,
        context=context,
        limits=_limit_lines(limits, about, run),
        title=about.headline if about else _headline(interrupt, questions),
        questions=questions if len(questions) > 1 else (),
        why=about.why if about else _why(interrupt, questions),
        whose_rule=_whose_rule(run, asked) if asked else "",
        targets=targets_of(run, interrupt.seq) if pending else (),
        may_decide=decides(person),
        models=tuple(others_than(asked.model)) if asked and asked.model else None,
        doubt=doubt_of(interrupt),
        began=unsure.started_at if unsure else None,
        late_end=late_end_of(run, unsure),
        decision=getattr(interrupt, "decision", None),
    )


def _call(interrupt: Interrupt, asked: HumanCall | None) -> str:
    if interrupt.tool:
        return call_text(interrupt.tool, interrupt.args)
    held = asked.holds if asked else None
    return f"model call ({held.role})" if isinstance(held, ModelCall) else ""


def _context(run: Run, seq: int) -> tuple[str, tuple[Line, ...]]:
    """The thought that led here, and the last two results before it."""
    kinds = (Step.Kind.TRANSITION, Step.Kind.ASK)
    found = Step.objects.filter(run=run, live=True, seq__lte=seq, kind__in=kinds).exclude(facts_json="[]")
    thought = ""
    results: list[Line] = []
    for step in found.order_by("-seq")[:CONTEXT_ROWS]:
        facts = json.loads(step.facts_json)
        if not thought:
            thought = next(filter(None, (_thought(run.machine, fact) for fact in facts)), "")
        if len(results) < 2 and any(fact["kind"] == "react.tool.result" for fact in facts):
            results.append(line_of(step.kind, step.node, step.edge, facts, None, machine=run.machine))
    return thought, tuple(reversed(results))


def _thought(machine: str, fact: dict[str, Any]) -> str:
    """What a model said for its decision: each machine has its own name for it."""
    reads = reads_of(machine).get(fact["kind"])
    return str(fact.get(reads.said) or "") if reads and reads.said else ""


def _why(interrupt: Interrupt, questions: tuple[str, ...]) -> str:
    """Why it is asked, where that is in words for people and not the title once more."""
    if interrupt.kind == "limit" or interrupt.why == interrupt.title:
        return ""
    return reason_of(interrupt, questions)


def _whose_rule(run: Run, asked: HumanCall) -> str:
    name = rule_that_asks(asked, ())
    if is_of_site(name, len(json.loads(run.site_rules_json))):
        return "the site"
    if not is_rule(name):
        return ""
    return f"this run, launched by {run.owner.get_username() if run.owner else OPERATOR}"


def _limits_of(run: Run, interrupt: Interrupt) -> list[Standing]:
    """The limits that hold for the run, where one of them is what is asked about and can still be raised."""
    if interrupt.kind != "limit" or interrupt.status != Interrupt.Status.PENDING:
        return []
    return standings(run, Budget.objects.filter(run=run, scope="limits"))


def _limit_lines(limits: list[Standing], about: LimitAsked | None, run: Run) -> tuple[LimitLine, ...]:
    found = []
    for name in dict.fromkeys(line.name for line in limits):
        lines = [line for line in limits if line.name == name]
        add = about.add if about and about.standing.name == name else also_short(lines, run)
        found.append(LimitLine(name, words.LIMIT[name], tuple(lines), plain(add) if add else "", UNITS[name]))
    return tuple(found)


def _said(run: Run, step: Step) -> str:
    facts = json.loads(step.facts_json)
    return line_of(step.kind, step.node, step.edge, facts, None, machine=run.machine).plain


def targets_of(run: Run, before: int | None = None) -> tuple[Target, ...]:
    """The newest steps that the run can go back to, newest first."""
    found = Step.objects.filter(run=run, live=True, kind=Step.Kind.TRANSITION)
    if before is not None:
        found = found.filter(seq__lt=before)
    return tuple(Target(step.seq, _said(run, step)[:90]) for step in found.order_by("-seq")[:TARGETS])
