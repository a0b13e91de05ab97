"""The settings of every run; a machine adds its own. Unknown keys are errors.

See docs/machines.md, "Settings of every run".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, field_validator, model_serializer, model_validator

from runs.engine.effects import EffectClass, Verdict
from runs.engine.hosts import MOST_HOSTS, pattern_of
from runs.engine.values import Value

LimitName = Literal["cost_usd", "tokens", "active_seconds"]
LIMIT_NAMES: tuple[LimitName, ...] = ("cost_usd", "tokens", "active_seconds")
"""In the order of their checks."""

WHOLE_LIMITS: tuple[LimitName, ...] = ("tokens",)
"""Whole-number limits."""

PAID_LIMITS: tuple[LimitName, ...] = ("cost_usd", "tokens")
"""Limits on costs; a run shares them with its forks and children. Time is each run's own."""

MOST = 1e12
"""The largest limit: of USD, tokens and seconds alike."""

MOST_ROUNDS = 1_000_000
"""The largest number of steps, turns, retries."""

MOST_ENTRIES = 500
"""The largest number of entries in one setting: rules, answers, slots."""

MOST_PLAN_STEPS = 200
"""The largest number of steps in a plan: it is part of every prompt, and of the page."""

MOST_STEP_TEXT = 2_000
"""Most characters in one step of a plan."""

YEAR_S = 366 * 86_400.0
"""The longest deadline: seconds of a year."""

LIMIT_REASONS: dict[LimitName, str] = {
    "cost_usd": "cost_limit",
    "tokens": "token_limit",
    "active_seconds": "time_limit",
}


def sentence_of(flaw: str) -> str:
    """Return a flaw as a sentence of its own."""
    return f"{flaw[0].upper()}{flaw[1:]}."


def plan_flaw(steps: Sequence[str]) -> str:
    """Return how a plan of these texts is too long, in words without a full stop; empty if it is not."""
    if len(steps) > MOST_PLAN_STEPS:
        return f"the plan has {len(steps):,} steps; it may have {MOST_PLAN_STEPS} at most"
    for number, text in enumerate(steps, 1):
        if len(text) > MOST_STEP_TEXT:
            return f"step {number} of the plan has {len(text):,} characters; it may have {MOST_STEP_TEXT:,} at most"
    return ""


class Limits(Value):
    """Limits beside the machine's own budget: USD, tokens (input + output), seconds (waiting for a person excepted)."""

    cost_usd: float | None = Field(default=None, ge=0, le=MOST)
    tokens: int | None = Field(default=None, ge=0, le=MOST)
    active_seconds: float | None = Field(default=None, ge=0, le=MOST)

    def of(self, name: LimitName) -> float | None:
        """Return the limit of that name, or None if it is not set."""
        limit: float | None = getattr(self, name)
        return limit


class ArgumentTest(Value):
    """One comparison on an argument; every given one must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    equals: Any = None
    in_: list[Any] | None = Field(default=None, alias="in")
    like: str | None = None
    not_like: str | None = None
    lt: float | None = None
    gt: float | None = None

    @model_serializer
    def _as_given(self) -> dict[str, Any]:
        """Return only the given comparisons: `equals: null` is a test, an absent `equals` is none."""
        given = [name for name in type(self).model_fields if name in self.model_fields_set]
        return {name.rstrip("_"): getattr(self, name) for name in given}

    @model_validator(mode="after")
    def _says_something(self) -> ArgumentTest:
        if not self.model_fields_set:
            raise ValueError("name one of equals, in, like, not_like, lt, gt")
        return self


class When(Value):
    """The conditions of a rule; all given keys must hold."""

    tool: str | None = None
    effects: list[EffectClass] | None = None
    args: dict[str, ArgumentTest] | None = None
    every_n_steps: int | None = Field(default=None, ge=1, le=MOST_ROUNDS)
    first_step: bool | None = None
    same_call: int | None = Field(default=None, ge=1, le=MOST_ROUNDS)
    next_cost_usd: float | None = Field(default=None, ge=0, le=MOST)

    @model_validator(mode="after")
    def _one_moment(self) -> When:
        moments = [
            self.every_n_steps is not None or self.first_step is not None,
            self.next_cost_usd is not None,
            self.tool is not None
            or self.effects is not None
            or self.args is not None
            or self.same_call is not None,
        ]
        if sum(moments) > 1:
            raise ValueError(
                "can never hold: it mixes keys of a tool call (tool, effects, args, same_call), of a model call "
                "(next_cost_usd) and of a step (every_n_steps, first_step); make a rule of each"
            )
        return self

    @property
    def about_calls(self) -> bool:
        """Return True if the rule looks at tool calls."""
        return self.every_n_steps is None and self.first_step is None and self.next_cost_usd is None


class InterruptRule(Value):
    """A rule: when something is about to happen, allow, ask, deny or notify. The first match wins."""

    when: When = When()
    do: Literal["allow", "ask", "deny", "notify"]
    deadline_s: float | None = Field(default=None, gt=0, le=YEAR_S)
    on_timeout: Literal["deny", "approve", "abort"] = "deny"
    name: str = ""

    def words(self) -> str:
        """Return the rule in words for people."""
        if self.name:
            return self.name
        when = self.when
        parts = []
        if when.tool is not None:
            parts.append(f"tool {when.tool}")
        if when.effects is not None:
            parts.append(f"effects {' or '.join(when.effects)}")
        for path, test in (when.args or {}).items():
            tests = test.model_dump(exclude_unset=True, by_alias=True)
            parts.append(
                " and ".join(f"{path} {word.replace('_', ' ')} {value}" for word, value in tests.items())
            )
        if when.every_n_steps is not None:
            parts.append(f"every {when.every_n_steps} steps")
        if when.first_step:
            parts.append("before the first step")
        if when.same_call is not None:
            parts.append(f"the same call {when.same_call} times")
        if when.next_cost_usd is not None:
            parts.append(f"next cost above ${when.next_cost_usd:g}")
        return f"{self.do} when {', '.join(parts) or 'any tool is called'}"


class GivenAnswer(Value):
    """A decision given in advance, applied to interrupts as they open."""

    verdict: Verdict
    args: dict[str, Any] | None = None
    message: str = ""
    to_step: int | None = None
    allow_host: bool = False


class ContextSettings(Value):
    """How much the model may read, in tokens (docs/context.md, "Window and estimate")."""

    limit_tokens: int | None = Field(default=None, ge=256, le=MOST)
    compact_at: float = Field(default=0.9, gt=0, le=1)
    keep_recent: float = Field(default=0.5, gt=0, le=1)


class Subgraph(Value):
    """A named child: its machine and that machine's settings (checked at launch)."""

    machine: str
    settings: dict[str, Any] = {}
    at: Literal["", "thought"] = ""
    """Empty: a tool for the model. `thought`: a fixed node, after the first passed thought."""


SubgraphName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


def patterns_of(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts as patterns, once each; raises ValueError with a sentence if one is none."""
    if len(hosts) > MOST_HOSTS:
        raise ValueError(f"{len(hosts):,} hosts are named; {MOST_HOSTS} may be at most")
    return tuple(dict.fromkeys(map(pattern_of, hosts)))


class Settings(Value):
    """The settings of every machine's run."""

    model: str = ""
    tools: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Hosts that calls may contact, whatever the run has read; `*` is any."""
    limits: Limits = Limits()
    on_limit: Literal["ask", "stop"] = "ask"
    on_clarify: Literal["ask", "exit"] = "ask"
    interrupt_every: int | None = Field(default=None, ge=1, le=MOST_ROUNDS)
    rules: tuple[InterruptRule, ...] = ()
    context: ContextSettings = ContextSettings()
    cache_reads: bool = False
    """Answer a repeated call of a tool that only reads from the run's own record, until something changes."""
    subgraphs: dict[SubgraphName, Subgraph] = {}
    answers: tuple[GivenAnswer, ...] = ()

    places: ClassVar[tuple[str, ...]] = ()
    """Places in the machine's graph for a subgraph as a fixed node."""

    @field_validator("subgraphs")
    @classmethod
    def _at_a_place(cls, subgraphs: dict[str, Subgraph]) -> dict[str, Subgraph]:
        for name, child in subgraphs.items():
            if child.at and child.at not in cls.places:
                raise ValueError(f"{name}: this machine has no such place for a subgraph; leave out at")
        return subgraphs

    @field_validator("tools")
    @classmethod
    def _once_each(cls, tools: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(tools))

    @field_validator("hosts")
    @classmethod
    def _in_one_spelling(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return patterns_of(hosts)
