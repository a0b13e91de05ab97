"""The kernel's view of a run at one moment.

What each move copies is a named tuple: a dataclass takes four times as long to copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runs.engine.effects import (
    Answer,
    ChildFinished,
    Effect,
    Failed,
    ModelCall,
    ModelReplied,
    Role,
    Summarised,
    ToolReturned,
)
from runs.engine.facts import Fact, Recovered
from runs.engine.machine import Block, State
from runs.engine.rules import NamedRule, at_launch
from runs.engine.settings import LimitName
from runs.engine.values import add_cost


class Totals(NamedTuple):
    """A run's usage; never less than before, even after a rollback."""

    model_calls: int = 0
    cached_model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    active_seconds: float = 0.0

    def used(self, name: LimitName) -> float:
        """Return the amount that counts against the limit of that name."""
        match name:
            case "cost_usd":
                return self.cost_usd
            case "tokens":
                return self.input_tokens + self.output_tokens
            case "active_seconds":
                return self.active_seconds

    def after(self, answer: Answer | None) -> Totals:
        """Return the totals with the cost of `answer`. Do not pass a failed tool call that is retried.

        A cut-off reply is paid, but is no model call; the same holds for the usage of a failed attempt.
        """
        match answer:
            case ModelReplied(usage=usage, cached=cached, ended=ended):
                return self._replace(
                    model_calls=self.model_calls + (ended == "stop"),
                    cached_model_calls=self.cached_model_calls + cached,
                    input_tokens=self.input_tokens + usage.input_tokens,
                    output_tokens=self.output_tokens + usage.output_tokens,
                    cost_usd=add_cost(self.cost_usd, usage.cost_usd),
                )
            case Summarised(usage=usage, ended=ended):
                return self.after(ModelReplied(text="", usage=usage, ended=ended))
            case Failed(usage=usage):
                return self._replace(
                    input_tokens=self.input_tokens + usage.input_tokens,
                    output_tokens=self.output_tokens + usage.output_tokens,
                    cost_usd=add_cost(self.cost_usd, usage.cost_usd),
                )
            case ToolReturned(ran=True, cached_from=0):
                return self._replace(tool_calls=self.tool_calls + 1)
            case ChildFinished(cost_usd=cost):
                return self._replace(tool_calls=self.tool_calls + 1, cost_usd=add_cost(self.cost_usd, cost))
        return self

    def after_losses(self, facts: Iterable[Fact]) -> Totals:
        """Return the totals with the cut-off model calls in `facts`: possibly billed, at an unknown amount."""
        totals = self
        for fact in facts:
            if isinstance(fact, Recovered):
                totals = totals._replace(
                    cost_usd=add_cost(totals.cost_usd, fact.cost_usd),
                    output_tokens=totals.output_tokens + fact.tokens,
                )
        return totals

    def after_call_failed(self, answer: Failed) -> Totals:
        """Return the totals with a tool call that ran and failed for good."""
        return self._replace(tool_calls=self.tool_calls + 1) if answer.ran else self


@dataclass(frozen=True, slots=True)
class Pending:
    """An open ask: its effect, its step's seq, its attempt."""

    effect: Effect
    seq: int
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Held:
    """A model call waiting for a compaction, and the gates that it had passed."""

    call: ModelCall
    passed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A limit on the sum of a run and all its forks and children."""

    limit: float
    elsewhere: float
    """Usage and reservations of the others."""
    root: int
    """The owning run."""
    aside: float = 0.0
    """The part of `elsewhere` that is only reserved, for calls in flight."""


@dataclass(frozen=True, slots=True)
class Price:
    """The largest usage of one call of the run's model."""

    reply_tokens: int
    input_usd: float = 0.0
    output_usd: float = 0.0
    """USD for one token; 0 if unknown."""
    call_usd: float = 0.0
    """USD of each call beside its tokens."""

    def cost(self, input_tokens: int, reply_tokens: int) -> float:
        """Return the USD for a call with so many tokens."""
        return input_tokens * self.input_usd + reply_tokens * self.output_usd + self.call_usd


@dataclass(frozen=True, slots=True)
class Worst:
    """The largest usage of one model call."""

    cost_usd: float | None
    """None if unknown beforehand."""
    tokens: int

    def of(self, name: LimitName) -> float:
        """Return the amount that counts against the limit of that name, if known."""
        return (self.cost_usd or 0.0) if name == "cost_usd" else self.tokens

    def fits(self, name: LimitName, left: float) -> bool:
        """Return True if the rest of the limit is enough; a sum of costs may have been rounded."""
        return self.of(name) <= left + 1e-9


@dataclass(frozen=True, slots=True)
class Window:
    """The blocks shown to the model so far, and how much it may read at once; a run without a limit has none."""

    blocks: Sequence[Block]
    limit: int
    """Tokens of one prompt."""
    compact_at: float
    keep_recent: float
    tokens_per_character: float = 0.25
    """A quarter at first, then from the provider's own counts for this run."""
    price: Price | None = None
    """None if the worst case of a call is unknown (a script charges its own figures)."""


class Snapshot(NamedTuple):
    """A run between two moves. `limits` are those in force: the settings', with people's raises."""

    node: str
    state: State
    head: int = 0
    pending: Pending | None = None
    held: Held | None = None
    """After a compaction: the call behind it."""
    totals: Totals = Totals()
    limits: Mapping[LimitName, float] = {}
    next_cost_usd: float = 0.0
    """The next model call's largest cost."""
    calls: Mapping[str, int] = {}
    """How often each call (by fingerprint) was reached; filled if a rule looks at it."""
    window: Window | None = None
    shared: Mapping[LimitName, SharedLimit] = {}
    next_use: Mapping[Role, Worst] = {}
    """Usage of the next model call of each role, if known beforehand and other runs share a limit: a script."""
    rules_now: tuple[NamedRule, ...] | None = None
    """The rules, if the site's have changed since launch; else None."""

    restored: int = 0
    """The last step with a restore of the run; 0 if there is none."""

    @property
    def rules(self) -> tuple[NamedRule, ...]:
        """Return the rules in force, the site's first."""
        return at_launch(self.state.terms) if self.rules_now is None else self.rules_now
