"""An interrupt as the card that a person decides on: what, why, arguments, context, time left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import QuerySet
from django.utils import timezone

from runs.models import Budget, Decision, Interrupt, Run, Step
from runs.reading import unseen, words
from runs.reading.again import Again
from runs.reading.arguments import ArgumentField, fields_of
from runs.reading.lines import line_of
from runs.reading.phrases import Line, call_text
from runs.reading.restored import doubts_of
from runs.rights import decides

Person = User | AnonymousUser

CONTEXT_ROWS = 12
TARGETS = 40


@dataclass(frozen=True)
class Target:
    """A step that the run can go back to."""

    seq: int
    text: str


@dataclass(frozen=True)
class LimitLine:
    """A limit of the run, as it stands. `suggested` is what the form offers to add."""

    name: str
    label: str
    used: str
    limit: str
    suggested: str
    unit: str
    reached: bool


@dataclass(frozen=True)
class Card:
    """Everything that the card shows. `typed` keeps what a person wrote when it could not be taken."""

    interrupt: Interrupt
    run: Run
    kind: words.Word
    effects: words.Word | None
    risk: words.Word | None
    fields: tuple[ArgumentField, ...]
    call: str
    """The call that is held, as code."""
    thought: str
    context: tuple[Line, ...]
    limits: tuple[LimitLine, ...]
    title: str
    """What is asked, where it is no call."""
    targets: tuple[Target, ...]
    may_decide: bool
    doubt: str = ""
    """Why it may have been answered already, and done; empty where nothing speaks for it."""
    began: datetime | None = None
    """When the call began that may have happened."""
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
        if self.decision.verdict == "top_up":
            given = {words.LIMIT[name]: words.amount(name, more) for name, more in given.items()}
            return fields_of({"properties": {name: {"type": "string"} for name in given}}, given)
        return fields_of(self.interrupt.schema, given)

    @property
    def kept(self) -> list[tuple[str, str]]:
        """What a person wrote for a question that is closed: name and text."""
        names = {"reason": "Reason", "answer": "Answer", "note": "Message"}
        written = [(label, self.typed.get(name, "")) for name, label in names.items()]
        written += [(one.name, self.typed.get(one.field, "")) for one in self.fields if one.changed]
        return [(name, text) for name, text in written if text.strip()]

    @property
    def channel(self) -> str:
        """From where it was decided, in words."""
        return words.CHANNEL.get(self.decision.channel, "") if self.decision else ""

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
    def high_risk(self) -> bool:
        """Whether approving asks for a second look: a call that does much, or that can't be seen whole."""
        return is_risky(self.interrupt) or self.hides or any(field.hidden for field in self.fields)

    @property
    def second_look(self) -> bool:
        """Whether approving asks for a tick."""
        return bool(self.doubt) or self.high_risk

    @property
    def uncertain(self) -> bool:
        """Whether it asks about a call that may have happened, and does not hold one back."""
        return self.interrupt.kind == "may_have_happened"

    @property
    def hides(self) -> bool:
        """Whether the call that is held has characters that nobody sees."""
        return unseen.holds_unseen(self.interrupt.args)


def is_risky(interrupt: Interrupt) -> bool:
    """Whether the call that is held does much."""
    return interrupt.risk == "high" or interrupt.effects == "execute"


def headline(interrupt: Interrupt, used: float | None = None, limit: float | None = None) -> str:
    """What is asked, in one line: the call, or how far a limit is used (where that is known)."""
    if interrupt.tool and interrupt.kind == "tool_call":
        return f"Run {call_text(interrupt.tool, interrupt.args)}?"
    if interrupt.kind == "limit" and interrupt.limit in words.LIMIT:
        said = f"{words.LIMIT[interrupt.limit]} limit reached"
        if used is None or limit is None:
            return said
        name = interrupt.limit
        return f"{said}: {words.amount(name, used)} of {words.amount(name, limit)}"
    return unseen.escaped(interrupt.title)


def headlines(interrupts: list[Interrupt]) -> dict[Any, str]:
    """The line of each, by its key; the limits of all runs are read at once."""
    runs = {found.run_id for found in interrupts if found.kind == "limit"}
    lines = Budget.objects.filter(run__in=runs, scope="limits") if runs else ()
    limits = {(line.run_id, line.name): line.limit for line in lines}
    return {
        found.pk: headline(
            found, used_of(found.run).get(found.limit), limits.get((found.run_id, found.limit))
        )
        for found in interrupts
    }


def used_of(run: Run) -> dict[str, float]:
    """What the run has used of each limit."""
    return {
        "cost_usd": run.cost_usd,
        "tokens": float(run.input_tokens + run.output_tokens),
        "active_seconds": run.active_seconds,
    }


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
    limits = _limits(run, interrupt) if interrupt.kind == "limit" else ()
    return Card(
        interrupt=interrupt,
        run=run,
        kind=words.INTERRUPT[interrupt.kind],
        effects=words.EFFECTS.get(interrupt.effects),
        risk=words.RISK.get(interrupt.risk) if interrupt.tool else None,
        fields=fields_of(interrupt.schema, interrupt.args)
        if interrupt.kind == "tool_call" and interrupt.tool
        else (),
        call=call_text(interrupt.tool, interrupt.args) if interrupt.tool else "",
        thought=thought,
        context=context,
        limits=limits,
        title=_title(interrupt, limits) if pending else headline(interrupt),
        targets=targets_of(run, interrupt.seq) if pending else (),
        may_decide=decides(person),
        doubt=doubts_of([interrupt]).get(interrupt.pk, ""),
        began=_began(run, interrupt) if interrupt.kind == "may_have_happened" else None,
        decision=getattr(interrupt, "decision", None),
    )


def _began(run: Run, interrupt: Interrupt) -> datetime | None:
    """When the last call before the question began."""
    calls = run.exchanges.filter(kind="tool_call", seq__lt=interrupt.seq).order_by("-seq")
    return calls.values_list("started_at", flat=True).first()


def _context(run: Run, seq: int) -> tuple[str, tuple[Line, ...]]:
    """The thought that led here, and the last two results before it."""
    kinds = (Step.Kind.TRANSITION, Step.Kind.ASK)
    found = Step.objects.filter(run=run, live=True, seq__lte=seq, kind__in=kinds).exclude(facts_json="[]")
    thought = ""
    results: list[Line] = []
    for step in found.order_by("-seq")[:CONTEXT_ROWS]:
        facts = json.loads(step.facts_json)
        if not thought:
            thought = next(filter(None, map(_thought, facts)), "")
        if len(results) < 2 and any(fact["kind"] == "react.tool.result" for fact in facts):
            results.append(line_of(step.kind, step.node, step.edge, facts, None))
    return thought, tuple(reversed(results))


def _thought(fact: dict[str, Any]) -> str:
    """What a model said for its decision: each machine has its own name for it."""
    if fact["kind"] not in ("react.decision", "planned.row.taken"):
        return ""
    return str(fact.get("thought") or fact.get("notes") or "")


def _title(interrupt: Interrupt, limits: tuple[LimitLine, ...]) -> str:
    reached = next((line for line in limits if line.reached), None)
    said = headline(interrupt)
    return f"{said}: {reached.used} of {reached.limit}" if reached else said


def _limits(run: Run, interrupt: Interrupt) -> tuple[LimitLine, ...]:
    used = used_of(run)
    lines = []
    for budget in Budget.objects.filter(run=run, scope="limits"):
        amount = float(used.get(budget.name, 0.0))
        reached = budget.name == interrupt.limit
        lines.append(
            LimitLine(
                name=budget.name,
                label=words.LIMIT.get(budget.name, budget.name),
                used=words.amount(budget.name, amount),
                limit=words.amount(budget.name, budget.limit),
                suggested=f"{budget.limit or amount or 1:g}" if reached else "",
                unit={"cost_usd": "USD", "tokens": "tokens", "active_seconds": "seconds"}.get(
                    budget.name, ""
                ),
                reached=reached,
            )
        )
    return tuple(lines)


def targets_of(run: Run, before: int | None = None) -> tuple[Target, ...]:
    """The newest steps that the run can go back to, newest first."""
    found = Step.objects.filter(run=run, live=True, kind=Step.Kind.TRANSITION)
    if before is not None:
        found = found.filter(seq__lt=before)
    return tuple(
        Target(
            step.seq, line_of(step.kind, step.node, step.edge, json.loads(step.facts_json), None).plain[:90]
        )
        for step in found.order_by("-seq")[:TARGETS]
    )
