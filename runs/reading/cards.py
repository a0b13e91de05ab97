"""An interrupt as a card for decisions: what, why, arguments, context, time left."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from django.utils import timezone

from runs.engine.effects import Draft, HumanCall, ModelCall, call_in
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
from runs.store.scripts import script_at
from runs.store.switching import others_than

Person = User | AnonymousUser

UNITS = {"cost_usd": "USD", "tokens": "tokens", "active_seconds": "seconds"}
"""The unit of raises of a limit."""

CONTEXT_ROWS = 12
TARGETS = 40


@dataclass(frozen=True)
class Target:
    """A step that the run can be rolled back to."""

    seq: int
    text: str


@dataclass(frozen=True)
class LimitLine:
    """A raisable limit, with its current lines. `suggested` is the raise offered by the form."""

    name: str
    label: str
    lines: tuple[Standing, ...]
    """The run's own, and the shared one: a raise counts for both."""
    suggested: str
    """Also for another limit than the one in question, if it would soon be reached too."""
    unit: str


@dataclass(frozen=True)
class Card:
    """The data of the card. `typed` keeps a person's input that could not be accepted."""

    interrupt: Interrupt
    run: Run
    kind: words.Word
    effects: words.Word | None
    risk: words.Word | None
    fields: tuple[ArgumentField, ...]
    """The arguments of the call, whole."""
    call: str
    """The next call, as code; of a request to a model, its purpose."""
    draft: Draft | None
    """The draft to approve."""
    thought: str
    script: str
    """The script that makes the call; empty if the model does."""
    context: tuple[Line, ...]
    limits: tuple[LimitLine, ...]
    title: str
    """The question, if it is about no call."""
    questions: tuple[str, ...]
    """The single questions, if there are several; the title has all of them too."""
    why: str
    """Why it is asked now; empty if the title says it."""
    whose_rule: str
    """The owner of the asking rule, in words: a rule's name is its author's, and may claim anything. Empty without a
    rule."""
    targets: tuple[Target, ...]
    may_decide: bool
    models: tuple[str, ...] | None = None
    """The models that may replace an unavailable one; None for other questions."""
    doubt: str = ""
    """Why the call may have been approved and made already; empty if nothing speaks for it."""
    began: datetime | None = None
    """Start of the call with the unknown outcome."""
    late_end: str = ""
    """How that call ended, if its worker was thought lost and has come back since."""
    decision: Decision | None = None
    typed: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    staying: Again | None = None
    """The side effects and changes that a requested rollback would keep or undo, if it has still to be confirmed."""

    @property
    def pending(self) -> bool:
        """Return True if it can still be decided."""
        return self.interrupt.status == Interrupt.Status.PENDING

    @property
    def verdicts(self) -> dict[str, bool]:
        """Return the possible verdicts, for templates to look up."""
        return dict.fromkeys(self.interrupt.verdicts, True)

    @property
    def outcome(self) -> words.Word:
        """Return the decision, or the state without one."""
        if self.decision is not None:
            return words.VERDICT_DONE[self.decision.verdict]
        return words.INTERRUPT_STATUS[self.interrupt.status]

    @property
    def did(self) -> str:
        """Return what the decision did, as the rest of a sentence; empty without one."""
        return words.VERDICT_DID[self.decision.verdict] if self.decision else ""

    @property
    def decided_fields(self) -> tuple[ArgumentField, ...]:
        """Return the new arguments of the decision, or its raises."""
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
        """Return a person's input for a closed question: name and text."""
        names = {"reason": "Reason", "answer": "Answer", "note": "Message", "to_step": "Roll back to step"}
        names |= {name: f"Answer to “{question}”" for name, question, _ in self.answers}
        if self.typed.get("verdict") == "top_up":  # the form offers amounts for other verdicts too
            names |= {f"amount.{name}": f"Amount in {unit}" for name, unit in UNITS.items()}
        written = [(label, self.typed.get(name, "")) for name, label in names.items()]
        written += [(one.name, self.typed.get(one.field, "")) for one in self.fields if one.changed]
        return [(name, text) for name, text in written if text.strip()]

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """Return several questions, each with its field's name and typed answer."""
        fields = ((answer_field(number), question) for number, question in enumerate(self.questions, 1))
        return [(name, question, self.typed.get(name, "")) for name, question in fields]

    @property
    def channel(self) -> str:
        """Return the channel of the decision, in words."""
        return words.channel(self.decision.channel, self.decision.by_name) if self.decision else ""

    @property
    def default(self) -> str:
        """Return the outcome at the deadline, in words."""
        return words.TIMEOUT.get(self.interrupt.on_timeout, "denied")

    @property
    def deadline(self) -> datetime | None:
        """Return the deadline."""
        return self.interrupt.deadline

    @property
    def time_left(self) -> str:
        """Return the time until the deadline."""
        if self.interrupt.deadline is None:
            return ""
        left = (self.interrupt.deadline - timezone.now()).total_seconds()
        return words.seconds(left) if left > 0 else "no time left"

    @property
    def waiting(self) -> str:
        """Return the waiting time so far."""
        return words.seconds(max(0.0, (timezone.now() - self.interrupt.created_at).total_seconds()))

    @property
    def editable(self) -> bool:
        """Return True if the arguments can be changed."""
        return "edit" in self.interrupt.verdicts

    @property
    def long(self) -> bool:
        """Return True if an argument is too long to be seen at once."""
        return any(field.long for field in self.fields)

    @property
    def high_risk(self) -> bool:
        """Return True if approving asks for a second look: a risky call, or one that hides something."""
        return is_risky(self.interrupt) or self.hides

    @property
    def second_look(self) -> bool:
        """Return True if approving asks for a tick; it did if an error says so, whatever was written as an escape."""
        return bool(self.doubt) or self.high_risk or self.long or "sure" in self.errors

    @property
    def wants_a_tick(self) -> bool:
        """Return True if there is a box to tick: for an approval, and for a raise that releases such a call."""
        if self.verdicts.get("approve"):
            return self.second_look
        raised = bool(self.verdicts.get("top_up")) and lets_act(self.interrupt, "top_up")
        return raised and bool(self.doubt or self.hides or self.long)

    @property
    def uncertain(self) -> bool:
        """Return True if it asks about a call that may have happened, and does not hold one back."""
        return self.interrupt.kind == "may_have_happened"

    @property
    def hides(self) -> bool:
        """Return True if something hides in the call."""
        return hides(self.interrupt, self.fields)


def headlines(interrupts: Collection[Interrupt]) -> dict[Any, str]:
    """Return each question, by its key, in one line: the call, or the use of a limit; as of its opening."""
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
    """Return each open question, by its key; with current limits, read at once for all."""
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
    """Return the line of an open question."""
    return asked_now([interrupt])[interrupt.pk].headline


def pending_for(person: Any) -> QuerySet[Interrupt]:
    """Return the interrupts that wait for `person`: of visible runs, with the right to decide."""
    if not decides(person):
        return Interrupt.objects.none()
    visible = Run.objects.for_user(person)
    pending = Interrupt.objects.filter(status=Interrupt.Status.PENDING)
    return pending if person.has_perm("runs.view_run") else pending.filter(run__in=visible)


def pending_count(person: Any) -> int:
    """Return how many interrupts wait for `person`."""
    return pending_for(person).count()


def card_of(interrupt: Interrupt, person: Any, run: Run | None = None) -> Card:
    """Return the card of an interrupt for `person`."""
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
        script=_script(run, asked),
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


def _script(run: Run, asked: HumanCall | None) -> str:
    """Return the script that makes the held call; empty if the model does."""
    held = call_in(asked.holds) if asked else None
    return str(script_at(run, held.script).args["code"]) if held and held.script else ""


def _context(run: Run, seq: int) -> tuple[str, tuple[Line, ...]]:
    """Return the thought that led here, and the last two results before it."""
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
    """Return the model's thought for its decision: each machine has its own name for it."""
    reads = reads_of(machine).get(fact["kind"])
    return str(fact.get(reads.said) or "") if reads and reads.said else ""


def _why(interrupt: Interrupt, questions: tuple[str, ...]) -> str:
    """Return why it is asked, if that is in words for people and does not repeat the title."""
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
    """Return the run's limits, if the question is about one of them and it can still be raised."""
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
    """Return the newest steps that the run can be rolled back to, newest first."""
    found = Step.objects.filter(run=run, live=True, kind=Step.Kind.TRANSITION)
    if before is not None:
        found = found.filter(seq__lt=before)
    return tuple(Target(step.seq, _said(run, step)[:90]) for step in found.order_by("-seq")[:TARGETS])
