"""A recorded run made again: every answer comes from the record, nothing is called, every row must come out the same.

What the machine and the kernel conclude is made again and compared. What came from outside is taken from the record as
it stands: answers, decisions, pauses, a rollback or a stop by a person, a worker that was lost, the clock.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from runs.engine import context, kernel
from runs.engine.effects import (
    ANSWER,
    EFFECT,
    Answer,
    ChildRun,
    Effect,
    HumanCall,
    HumanSaid,
    ToolCall,
)
from runs.engine.facts import Decided, Exited, Fact, LimitRaised, Notice, Rewound
from runs.engine.machine import END, Block, Machine, State, Terms
from runs.engine.moves import Ask, Compact, Go, Move, Rewind, Stop
from runs.engine.settings import LIMIT_REASONS, LimitName, Settings
from runs.engine.snapshot import Pending, Price, SharedLimit, Snapshot, Totals, Window
from runs.engine.timeline import blocks_of, folded
from runs.engine.tools import ToolSpec
from runs.engine.values import Value, fingerprint

GIVEN = ("decision", "limit", "pause", "note", "recovered")
"""Kinds of rows that people and the runtime add: taken from the record."""

FROM_OUTSIDE = ("aborted", "fatal_error", "model_error")
"""Reasons with which somebody may stop a run whatever the machine was about to do."""

MADE_ANEW = "not_happened"
"""The notice on a call that is made anew, since the far side says that it did not happen."""

_USED = re.compile(r"active_seconds ([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?) of ")
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
_LIMIT = re.compile(rf"Limit reached: (\w+) {_NUMBER} of {_NUMBER}")
_ROOT = re.compile(r"The limit \w+ of run ([0-9]+) is ")
_PRICE = re.compile(r"may cost \$([0-9]+(?:\.[0-9]+)?)")
_ROUNDED = 4e-5
"""What the price in a question may have lost when it was written with four digits."""


class RecordedRow(Value):
    """A row as it was kept, with what it asked and what was answered."""

    seq: int
    kind: str
    node: str
    edge: str | None = None
    to: str | None = None
    facts: tuple[dict[str, Any], ...] = ()
    state: dict[str, Any] | None = None
    """None where it is that of the row before."""
    effect: dict[str, Any] | None = None
    attempt: int = 1
    answer: dict[str, Any] | None = None
    prompt_chars: int = 0
    input_tokens: int = 0
    """Of a prompt that was sent: its length, and what the provider counted."""


class Opening(Value):
    """Where the replay begins: at the start of the machine, or after the rows that a fork was given."""

    seq: int = 0
    node: str
    state: dict[str, Any] | None = None
    """None: as the machine opens."""
    targets: dict[int, tuple[str, dict[str, Any] | None]] = {}
    """The rows before it that one can go back to: node and state."""
    totals: dict[str, float] = {}
    calls: tuple[tuple[int, str], ...] = ()
    """The calls that were reached before: row and fingerprint."""
    facts: tuple[tuple[int, tuple[dict[str, Any], ...]], ...] = ()
    """What live rows before it said."""
    tokens_per_character: float = 1 / context.CHARACTERS_PER_TOKEN


class Record(Value):
    """A run as it is replayed."""

    run: str
    machine: str
    goal: str
    settings: dict[str, Any]
    """With the site's rules before its own."""
    tools: dict[str, ToolSpec]
    skills: dict[str, str] = {}
    guided: bool = False
    opening: Opening
    rows: tuple[RecordedRow, ...]
    reads_prompt: bool = False
    """Whether the model was sent prompts: a script is not."""
    context_tokens: int | None = None
    """What the model could read at once, where nothing else is set."""
    price: Price | None = None
    """What a call of the model may use at most; None where that is not known."""

    def terms(self, machine: Machine) -> Terms:
        """What the run was agreed on."""
        checked: Settings = machine.settings.model_validate(self.settings)
        return Terms(
            goal=self.goal, settings=checked, tools=self.tools, skills=self.skills, guided=self.guided
        )


class Difference(Value):
    """The first thing that came out otherwise than the record has it."""

    run: str
    seq: int
    what: str
    """The part of the row."""
    recorded: str
    made: str

    def __str__(self) -> str:
        return (
            f"Run {self.run}, row {self.seq}: {self.what} is {self.made}, and the record has {self.recorded}."
        )


@dataclass(frozen=True, slots=True)
class Made:
    """A row as it came out."""

    seq: int
    kind: str
    node: str
    edge: str | None
    to: str | None
    facts: tuple[Fact, ...]
    state: State
    effect: Effect | None = None
    attempt: int = 1


@dataclass(slots=True)
class Replay:
    """A record while it is made again. `difference` is None for as long as everything comes out the same."""

    machine: Machine
    record: Record
    difference: Difference | None = None
    rows: list[Made] = field(default_factory=list)
    """Those that came out the same."""
    terms: Terms = field(init=False)
    snapshot: Snapshot = field(init=False)
    targets: dict[int, tuple[str, State]] = field(init=False)
    said: HumanSaid | None = None
    """The decision on the question that is open."""
    asked: RecordedRow | None = None
    """The row of the ask that waits."""
    calls: list[tuple[int, str]] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    before: dict[str, Any] = field(init=False)
    """The recorded state at the row before."""
    tokens_per_character: float = field(init=False)

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
        self.snapshot = Snapshot(opening.node, state, head=opening.seq, totals=totals, limits=limits)
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
        """Make the rows again, to row `seq` or all, as far as they come out the same."""
        for row in self.record.rows:
            if self.difference is not None or (seq is not None and row.seq > seq):
                break
            self.difference = self._row(row)
        return self

    def _row(self, row: RecordedRow) -> Difference | None:
        try:
            facts = self.machine.facts.validate_python(row.facts)
            move, totals = self._move(row, facts)
            made, after = self._advanced(row, move, totals)
        except Exception as fault:  # whatever a changed record or machine brings about is what is looked for
            return self._other(row, "what follows", "this row", f"nothing ({type(fault).__name__}: {fault})")
        difference = self._compared(row, facts, made)
        if difference is None:
            self._take(row, made, after)
        return difference

    # --- what comes next ----------------------------------------------------------------------------------

    def _move(self, row: RecordedRow, facts: tuple[Fact, ...]) -> tuple[Move | tuple[Fact, ...], Totals]:
        """The move that the kernel makes; the facts alone where the row was added from outside."""
        snapshot = self._seen(row)
        answer = self._answer()
        if row.kind in GIVEN:
            return facts, snapshot.totals.after_losses(facts)
        if snapshot.pending is not None and answer is None:
            return self._unanswered(row, facts, snapshot.pending), snapshot.totals
        move, totals = kernel.decide(self.machine, snapshot, answer)
        outside = self._from_outside(row, facts, move)
        return (outside, snapshot.totals.after(answer)) if outside is not None else (move, totals)

    def _answer(self) -> Answer | None:
        pending = self.snapshot.pending
        if pending is None or self.asked is None:
            return None
        if isinstance(pending.effect, HumanCall):
            return self.said
        return ANSWER.validate_python(self.asked.answer) if self.asked.answer is not None else None

    def _unanswered(self, row: RecordedRow, facts: tuple[Fact, ...], pending: Pending) -> Move:
        """Nothing was answered to what was asked: only somebody from outside can have gone on."""
        asks = EFFECT.validate_python(row.effect) if row.effect else None
        if isinstance(asks, HumanCall) and asks.about == "may_have_happened":
            return kernel.uncertain(pending)
        if asks is not None and any(isinstance(fact, Notice) and fact.code == MADE_ANEW for fact in facts):
            return Ask(pending.effect, facts)
        outside = self._from_outside(row, facts, None)
        if outside is None:
            raise LookupError("what was asked in the row before has no answer in the record")
        return outside

    def _from_outside(
        self, row: RecordedRow, facts: tuple[Fact, ...], move: Move | None
    ) -> Stop | Rewind | None:
        """A stop or a rollback by a person, or by the runtime."""
        if move is not None and move.facts == facts:
            return None
        match row.kind:
            case "stop":
                last = facts[-1] if facts else None
                if isinstance(last, Exited) and last.reason in FROM_OUTSIDE:
                    return Stop(last.reason, facts)
            case "rewind":
                if facts and isinstance(facts[0], Rewound):
                    return Rewind(facts[0].to_seq, facts)
        return None

    def _seen(self, row: RecordedRow) -> Snapshot:
        """The run as the kernel sees it, with what the record tells of clock and prices."""
        totals = replace(self.snapshot.totals, active_seconds=self._clock(row))
        snapshot = replace(self.snapshot, totals=totals, next_cost_usd=self._price(row))
        if any(rule.when.same_call for rule in self.terms.settings.rules):
            snapshot = replace(snapshot, calls=Counter(call for _, call in self.calls))
        return replace(snapshot, window=self._window(), shared=self._shared(row))

    def _shared(self, row: RecordedRow) -> dict[LimitName, SharedLimit]:
        """What other runs had used of a limit that this one shares, where the row says that it was reached."""
        asked = row.effect or {}
        found = _LIMIT.match(str(asked.get("title", ""))) if asked.get("about") == "limit" else None
        root = _ROOT.search(str(asked.get("why", ""))) if found else None
        for name in ("cost_usd", "tokens"):
            own = self.snapshot.totals.used(name)
            if found and root and found[1] == name:
                used, limit = float(found[2]), float(found[3])
                return {name: SharedLimit(limit, used - own, int(root[1]))}
            if own < self.snapshot.limits.get(name, math.inf) and self._says_reached(row, name):
                return {name: SharedLimit(0.0, 0.0, 0)}
        return {}

    def _says_reached(self, row: RecordedRow, name: LimitName) -> bool:
        """Whether the row ends the run at a limit (a rule that does so says which), or a call was refused for it."""
        told = f"The limit {name} is reached."
        return any(
            (row.kind == "stop" and fact.get("reason") == LIMIT_REASONS[name] and not fact.get("message"))
            or told in str(fact.get("message", ""))
            for fact in row.facts
        )

    def _window(self) -> Window | None:
        """What prompts had to fit, as the driver reckons it."""
        own = self.terms.settings.context
        limit = own.limit_tokens or self.record.context_tokens
        if limit is None and folded(self.blocks).wanted is None:
            return None
        return context.window_of(self.blocks, own, limit, self.tokens_per_character, self.record.price)

    def _clock(self, row: RecordedRow) -> float:
        """Seconds of work so far: where a question, a stop, or an answer that nobody gave says that they are up."""
        limit = self.snapshot.limits.get("active_seconds")
        if limit is None:
            return 0.0
        unasked = any(fact.get("source") == "fallback" for fact in row.facts)
        if unasked or any(fact.get("reason") == "time_limit" for fact in row.facts):
            return limit
        found = _USED.search(str((row.effect or {}).get("title", "")))
        return float(found[1]) if found else 0.0

    def _price(self, row: RecordedRow) -> float:
        """What the next model call may cost: what a question about it says."""
        found = _PRICE.search(str((row.effect or {}).get("title", "")))
        denied = any(fact.get("reason") == "cost_limit" and fact.get("message") for fact in row.facts)
        rules = [
            rule.when.next_cost_usd
            for rule in self.terms.settings.rules
            if rule.when.next_cost_usd is not None
        ]
        noted = any(fact.get("code") == "rule_notified" for fact in row.facts)
        if rules and (denied or noted):
            return max(rules) + 1
        return float(found[1]) + _ROUNDED if found else 0.0

    # --- what the row becomes -----------------------------------------------------------------------------

    def _advanced(
        self, row: RecordedRow, move: Move | tuple[Fact, ...], totals: Totals
    ) -> tuple[Made, Snapshot]:
        before, seq = self.snapshot, self.snapshot.head + 1
        match move:
            case tuple():
                state = self.machine.fold(before.state, move)
                after = replace(before, state=state, head=seq, totals=totals)
                return Made(seq, row.kind, before.node, None, None, move, state), after
            case Rewind(to=to, facts=facts):
                node, kept = self.targets[to]
                after = replace(kernel.rewound(self.machine, before, move, node, kept), totals=totals)
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
                return self._other(row, what, _shown(recorded, came), _shown(came, recorded))
        return None

    def _parts(self, row: RecordedRow, facts: tuple[Fact, ...], made: Made) -> Iterator[tuple[str, Any, Any]]:
        yield "its number", row.seq, made.seq
        yield "the kind of row", row.kind, made.kind
        yield "the node", row.node, made.node
        yield "the edge", row.edge, made.edge
        yield "the next node", row.to, made.to
        yield "what it concluded", _dumped(facts), _dumped(made.facts)
        recorded = EFFECT.validate_python(row.effect) if row.effect else None
        yield "what it asked", _asked(recorded), _asked(made.effect)
        yield "the attempt", row.attempt, made.attempt
        state = self.before if row.state is None else self._state(row.state).model_dump(mode="json")
        yield "the state", state, made.state.model_dump(mode="json")

    def _other(self, row: RecordedRow, what: str, recorded: str, made: str) -> Difference:
        return Difference(run=self.record.run, seq=row.seq, what=what, recorded=recorded, made=made)

    def _take(self, row: RecordedRow, made: Made, after: Snapshot) -> None:
        """The row is as it was: the run goes on from it."""
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
        if self.record.reads_prompt and row.prompt_chars and row.input_tokens:
            self.tokens_per_character = context.ratio(row.input_tokens, row.prompt_chars)
        if made.effect is not None:
            self.said, self.asked = None, row
            if (call := _call(made.effect)) and made.attempt == 1:
                self.calls.append((made.seq, call))
        for fact in made.facts:
            match fact:
                case Decided() if after.pending is not None:
                    self.said = _said(fact)
                case LimitRaised(name=name, limit=limit) if name in self.snapshot.limits:
                    self.snapshot = replace(self.snapshot, limits=_with(self.snapshot.limits, name, limit))

    @property
    def ended(self) -> bool:
        """Whether what was made again has come to its end."""
        return self.snapshot.node == END


def _with(limits: Mapping[LimitName, float], name: str, limit: float) -> dict[LimitName, float]:
    return {**limits, name: limit}  # type: ignore[dict-item]


def _rewound_to(facts: tuple[Fact, ...]) -> int:
    return next(fact.to_seq for fact in facts if isinstance(fact, Rewound))


def _said(fact: Decided) -> HumanSaid:
    return HumanSaid(
        verdict=fact.verdict,
        args=fact.args,
        message=fact.message,
        to_step=fact.to_step,
        by=fact.by,
    )


def _call(effect: Effect) -> str:
    match effect:
        case ToolCall(tool=tool, args=args):
            return fingerprint(tool, args)
        case ChildRun(name=name, goal=goal):
            return fingerprint(f"agent.{name}", {"goal": goal})
    return ""


RECKONED = ("input_tokens", "reply_tokens")
"""Parts of a request to a model that follow from the price list, which may be another one by now."""


def _asked(effect: Effect | None) -> dict[str, Any] | None:
    """A request, as far as it follows from the log."""
    return None if effect is None else _without_prices(effect.model_dump(mode="json"))


def _without_prices(told: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in told.items() if name not in RECKONED}
    if isinstance(kept.get("holds"), dict):
        kept["holds"] = _without_prices(kept["holds"])
    return kept


def _dumped(facts: tuple[Fact, ...]) -> list[dict[str, Any]]:
    return [fact.model_dump(mode="json") for fact in facts]


SHOWN = 160
"""Characters of a value that a difference shows."""


def _shown(value: Any, other: Any) -> str:
    """The value; of large ones the first part that differs from `other`, with its place."""
    place = ""
    while True:
        if isinstance(value, dict) and isinstance(other, dict):
            names = [name for name in {**value, **other} if value.get(name) != other.get(name)]
            step: Any = names[0]
            value, other = value.get(step), other.get(step)
        elif isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            step = next(at for at, pair in enumerate(zip(value, other, strict=True)) if pair[0] != pair[1])
            value, other = value[step], other[step]
        else:
            break
        place = f"{place}.{step}" if place else str(step)
    text = repr(value)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return f"{place} = {text}" if place else text


__all__ = [
    "Difference",
    "Made",
    "Opening",
    "Record",
    "RecordedRow",
    "Replay",
]
