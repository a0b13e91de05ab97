"""The replay itself: step after step, the kernel's move, and its consequences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runs.engine import context, kernel, worker_questions
from runs.engine.effects import ANSWER, BY_HAND, Answer, HumanCall, HumanSaid, fingerprint_of
from runs.engine.facts import (
    ApprovalLapsed,
    Decided,
    Fact,
    LimitRaised,
    Restored,
    Rewound,
    SiteRulesChanged,
)
from runs.engine.gates import after_restore, answered_by
from runs.engine.machine import END, Block, Machine, State, Terms
from runs.engine.moves import Ask, Compact, Go, Move, Rewind, Stop
from runs.engine.replaying.differing import Difference, Made, parts, shown, worded
from runs.engine.replaying.outside import (
    GIVEN,
    asks_whether_it_happened,
    clock,
    counted,
    is_newer,
    lost_before,
    next_use,
    price,
    shared_limits,
    stop_or_rewind,
    unanswered,
    was_lost,
    without,
)
from runs.engine.replaying.record import Record, RecordedRow
from runs.engine.rules import named
from runs.engine.settings import InterruptRule, LimitName
from runs.engine.snapshot import Pending, Snapshot, Totals, Window
from runs.engine.timeline import blocks_of, folded


@dataclass(slots=True)
class Replay:
    """A record in replay. `difference` is None as long as everything comes out the same."""

    machine: Machine
    record: Record
    difference: Difference | None = None
    rows: list[Made] = field(default_factory=list)
    """Steps that came out the same."""
    terms: Terms = field(init=False)
    snapshot: Snapshot = field(init=False)
    targets: dict[int, tuple[str, State]] = field(init=False)
    said: HumanSaid | None = None
    """The decision on the open question."""
    asked: RecordedRow | None = None
    """The step of the ask that waits."""
    passed: tuple[str, ...] = ()
    """The gates answered for it."""
    calls: list[tuple[int, str]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    before: dict[str, Any] = field(init=False)
    """The recorded state at the step before."""
    tokens_per_character: float = field(init=False)
    guessed: Totals = field(default_factory=Totals)
    """The part of the totals that guesses lost calls' usage, as far as it may have been corrected since."""

    def __post_init__(self) -> None:
        record, opening = self.record, self.record.opening
        self.terms = record.terms(self.machine)
        limits: dict[LimitName, float] = {}
        for name in ("cost_usd", "tokens", "active_seconds"):
            limit = self.terms.settings.limits.of(name)
            if limit is not None:
                limits[name] = limit
        state = self._state(opening.state)
        whole = {name: int(used) for name, used in opening.totals.items() if float(used).is_integer()}
        totals = Totals(**(opening.totals | whole))  # type: ignore[arg-type]
        self.snapshot = Snapshot(
            opening.node, state, opening.seq, totals=totals, limits=limits, restored=opening.restored
        )
        self.targets = {seq: (node, self._state(kept)) for seq, (node, kept) in opening.targets.items()}
        self.calls = list(opening.calls)
        self.before = state.model_dump(mode="json")
        self.tokens_per_character = opening.tokens_per_character
        for seq, facts in opening.facts:
            self.blocks += blocks_of(self.machine, self.machine.facts.validate_python(facts), seq)

    def _state(self, stored: dict[str, Any] | None) -> State:
        if stored is None:
            return self.machine.open(self.terms)
        return self.machine.state.model_validate({**stored, "terms": self.terms})

    def upto(self, seq: int | None = None) -> Replay:
        """Replay the steps, to step `seq` or all, as far as they come out the same."""
        for row in self.record.rows:
            if self.difference is not None or (seq is not None and row.seq > seq):
                break
            self.difference = self._row(row)
        return self

    def _row(self, row: RecordedRow) -> Difference | None:
        """Replay a step. No step records a corrected guess at a lost call's usage: it is tried without."""
        difference = self._made(row)
        if difference is None or self.guessed == Totals():
            return difference
        guessed, self.guessed = self.guessed, Totals()
        snapshot = self.snapshot
        self.snapshot = snapshot._replace(totals=without(guessed, snapshot.totals))
        if self._made(row) is None:
            return None
        self.snapshot, self.guessed = snapshot, guessed
        return difference

    def _made(self, row: RecordedRow) -> Difference | None:
        try:
            facts = self.machine.facts.validate_python(row.facts)
            move, totals = self._move(row, facts)
            made, after = self._advanced(row, move, totals)
        except Exception as fault:  # any fault of a changed record or machine is a finding
            return self._other(row, "the next step", "this one", f"nothing ({type(fault).__name__}: {fault})")
        difference = self._compared(row, facts, made)
        if difference is None:
            self._take(row, made, after)
        return difference

    # --- what comes next ----------------------------------------------------------------------------------

    def _move(self, row: RecordedRow, facts: tuple[Fact, ...]) -> tuple[Move | tuple[Fact, ...], Totals]:
        """Return the kernel's move; the facts alone if the step was added from outside."""
        answer = self._answer()
        snapshot = self._seen(row, answer)
        if row.kind in GIVEN:
            return facts, snapshot.totals.after_losses(facts)
        lapsed = next((fact for fact in facts if isinstance(fact, ApprovalLapsed)), None)
        if lapsed is not None and (answer is not None or not asks_whether_it_happened(row)):
            question = self._question(lapsed.question)
            return worker_questions.opened_anew(snapshot, question, lapsed), snapshot.totals
        times, faults = lost_before(row)
        if times and answer is None:
            return worker_questions.lost_too_often(snapshot, times, faults), snapshot.totals
        if snapshot.pending is not None and (answer is None or was_lost(row, facts)):
            return unanswered(self.machine, snapshot, row, facts, self.passed), snapshot.totals
        move, totals = kernel.decide(self.machine, snapshot, answer)
        made = tuple(fact for fact in move.facts if fact in facts or not is_newer(fact))
        move = replace(move, facts=worded(made, facts))
        outside = stop_or_rewind(row, facts, move)
        return (outside, snapshot.totals.after(answer)) if outside is not None else (move, totals)

    def _question(self, seq: int) -> HumanCall:
        """Return the question of the recorded step `seq`."""
        asked = next(row.effect for row in self.record.rows if row.seq == seq)
        question: HumanCall = HumanCall.model_validate(asked)
        return question

    def _answer(self) -> Answer | None:
        pending = self.snapshot.pending
        if pending is None or self.asked is None:
            return None
        if isinstance(pending.effect, HumanCall):
            return self.said
        return ANSWER.validate_python(self.asked.answer) if self.asked.answer is not None else None

    def _seen(self, row: RecordedRow, answer: Answer | None) -> Snapshot:
        """Return the run as the kernel sees it, with clock and prices from the record."""
        rules = self.snapshot.rules
        seconds = clock(row, self.snapshot.limits.get("active_seconds"))
        totals = counted(row, self.snapshot, answer, self.guessed)._replace(active_seconds=seconds)
        snapshot = self.snapshot._replace(totals=totals, next_cost_usd=price(row, rules))
        if any(rule.when.same_call for _, rule in rules):
            snapshot = snapshot._replace(calls=Counter(call for _, call in self.calls))
        if self.record.price is None:
            snapshot = snapshot._replace(next_use=next_use(row))
        return snapshot._replace(window=self._window(), shared=shared_limits(row, snapshot, answer))

    def _window(self) -> Window | None:
        """Return the window that prompts had to fit, as the driver counts it."""
        own = self.terms.settings.context
        limit = own.limit_tokens or self.record.context_tokens
        if limit is None and folded(self.blocks).wanted is None:
            return None
        return context.window_of(self.blocks, own, limit, self.tokens_per_character, self.record.price)

    # --- what the row becomes -----------------------------------------------------------------------------

    def _advanced(
        self, row: RecordedRow, move: Move | tuple[Fact, ...], totals: Totals
    ) -> tuple[Made, Snapshot]:
        before, seq = self.snapshot, self.snapshot.head + 1
        match move:
            case tuple():
                state = self.machine.fold(before.state, move)
                after = before._replace(state=state, head=seq, totals=totals)
                return Made(seq, row.kind, before.node, None, None, move, state), after
            case Rewind(to=to, facts=facts):
                node, kept = self.targets[to]
                after = kernel.rewound(self.machine, before, move, node, kept)._replace(totals=totals)
                return Made(seq, "rewind", before.node, None, node, facts, after.state), after
        after = kernel.advance(self.machine, before, move, totals)
        match move:
            case Ask(effect=effect, attempt=attempt):
                return Made(
                    seq, "ask", before.node, None, None, move.facts, after.state, effect, attempt
                ), after
            case Compact():
                return Made(seq, "compaction", before.node, None, None, move.facts, after.state), after
            case Go(edge=edge):
                return Made(seq, "transition", before.node, edge, after.node, move.facts, after.state), after
            case Stop():
                return Made(seq, "stop", before.node, None, None, move.facts, after.state), after

    def _compared(self, row: RecordedRow, facts: tuple[Fact, ...], made: Made) -> Difference | None:
        for what, recorded, came in self._parts(row, facts, made):
            if recorded != came:
                return self._other(row, what, shown(recorded, came), shown(came, recorded))
        return None

    def _parts(self, row: RecordedRow, facts: tuple[Fact, ...], made: Made) -> Iterator[tuple[str, Any, Any]]:
        yield from parts(row, facts, made)
        state = self.before if row.state is None else self._state(row.state).model_dump(mode="json")
        yield "the state", state, made.state.model_dump(mode="json")

    def _other(self, row: RecordedRow, what: str, recorded: str, made: str) -> Difference:
        return Difference(run=self.record.run, seq=row.seq, what=what, recorded=recorded, made=made)

    def _take(self, row: RecordedRow, made: Made, after: Snapshot) -> None:
        """Accept the step: the run goes on from it."""
        before = self.snapshot.pending
        self.rows.append(made)
        self.snapshot = after
        self.before = made.state.model_dump(mode="json")
        if made.kind == "transition" and made.to is not None:
            self.targets[made.seq] = (made.to, made.state)
        if made.kind == "rewind":
            to = _rewound_to(made.facts)
            self.targets = {seq: kept for seq, kept in self.targets.items() if seq <= to}
            self.calls = [call for call in self.calls if call[0] <= to]
            self.blocks = [block for block in self.blocks if block.seq <= to]
        self.blocks += blocks_of(self.machine, made.facts, made.seq)
        self.guessed = self.guessed.after_losses(made.facts)
        if self.record.reads_prompt and row.prompt_chars and row.input_tokens:
            self.tokens_per_character = context.ratio(row.input_tokens, row.prompt_chars)
        if made.effect is not None:
            if made.attempt == 1:
                self.passed = self._answered_gates(before)
            self.said, self.asked = None, row
            if (call := fingerprint_of(made.effect)) and made.attempt == 1:
                self.calls.append((made.seq, call))
        for fact in made.facts:
            match fact:
                case Decided() if after.pending is not None:
                    self.said = _said(fact, after.restored)
                case Restored():
                    self.snapshot = self.snapshot._replace(restored=made.seq)
                case SiteRulesChanged(rules=rules):
                    site = [InterruptRule.model_validate(rule) for rule in rules]
                    self.snapshot = self.snapshot._replace(rules_now=named(self.terms, site))
                case LimitRaised(name=name, limit=limit) if name in self.snapshot.limits:
                    self.snapshot = self.snapshot._replace(limits=_with(self.snapshot.limits, name, limit))

    def _answered_gates(self, before: Pending | None) -> tuple[str, ...]:
        """Return the gates answered for the current ask, if `before` was the question about it."""
        if before is None or not isinstance(before.effect, HumanCall) or self.said is None:
            return ()
        return answered_by(before.effect, self.said)

    @property
    def ended(self) -> bool:
        """Return True if the replay has reached the end of the run."""
        return self.snapshot.node == END


def _with(limits: Mapping[LimitName, float], name: str, limit: float) -> dict[LimitName, float]:
    return {**limits, name: limit}  # type: ignore[dict-item]


def _rewound_to(facts: tuple[Fact, ...]) -> int:
    return next(fact.to_seq for fact in facts if isinstance(fact, Rewound))


def _said(fact: Decided, restored: int) -> HumanSaid:
    return HumanSaid(
        verdict=fact.verdict,
        args=fact.args,
        message=fact.message,
        to_step=fact.to_step,
        allow_host=fact.allow_host,
        by=fact.by,
        gates=after_restore(restored) if fact.channel in BY_HAND else (),
    )
