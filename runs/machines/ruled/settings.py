"""The settings of `ruled`."""

from __future__ import annotations

from typing import ClassVar, Literal

import regex
from pydantic import Field, model_validator

from runs.engine.settings import MOST_ROUNDS, Settings
from runs.engine.values import Value

RETRIES = 3
"""Rejected drafts in a row before a person is asked."""


GUESSES = ("I guess", "probably", "I'm not sure", "might be", "could be")


class RulesetRule(Value):
    """One rule on thoughts. The meaning of `value` depends on the type; None is the default."""

    type: Literal["max_depth", "cost_limit", "forbid_guessing", "require_tool_use", "forbid_pattern"]
    value: int | float | str | tuple[str, ...] | None = None
    enabled: bool = True
    severity: Literal["terminal", "retryable"] | None = None

    @model_validator(mode="after")
    def _value_fits(self) -> RulesetRule:
        match self.type:
            case "max_depth" | "cost_limit":
                if self.value is not None and not isinstance(self.value, int | float):
                    raise ValueError(f"{self.type} needs a number as its value")
            case "forbid_guessing":
                if isinstance(self.value, int | float):
                    raise ValueError("forbid_guessing takes a phrase or a list of phrases as its value")
            case "forbid_pattern":
                if not isinstance(self.value, str) or not self.value:
                    raise ValueError("forbid_pattern needs a regular expression as its value")
                try:
                    regex.compile(self.value)
                except regex.error as fault:
                    raise ValueError(
                        f"forbid_pattern: {self.value!r} is no regular expression ({fault})"
                    ) from None
        return self

    @property
    def terminal(self) -> bool:
        """Return True if breaking it ends the run."""
        default = "terminal" if self.type in ("max_depth", "cost_limit") else "retryable"
        return (self.severity or default) == "terminal"

    def most(self, default: float) -> float:
        """Return the value up to which `max_depth` (steps) or `cost_limit` (USD) passes."""
        return self.value if isinstance(self.value, int | float) else default

    @property
    def phrases(self) -> tuple[str, ...]:
        """Return the phrases that `forbid_guessing` looks for."""
        own = (self.value,) if isinstance(self.value, str) else self.value
        return GUESSES + (own if isinstance(own, tuple) else ())


MOST_USD = 0.50
"""Cost limit of a run in USD if its `cost_limit` rule has no value."""


DEFAULT_RULES = tuple(
    RulesetRule(type=name) for name in ("max_depth", "cost_limit", "forbid_guessing", "require_tool_use")
)


class RuledSettings(Settings):
    ruleset: tuple[RulesetRule, ...] = DEFAULT_RULES
    max_steps: int = Field(default=20, ge=1, le=MOST_ROUNDS)
    on_retries: Literal["ask", "stop"] = "ask"
    max_rejections: int = Field(default=10, ge=0, le=MOST_ROUNDS)
    cache: bool = True
    places: ClassVar[tuple[str, ...]] = ("thought",)

    def rules_in_order(self) -> list[RulesetRule]:
        """Return the enabled rules, terminal ones first."""
        return sorted((rule for rule in self.ruleset if rule.enabled), key=lambda rule: not rule.terminal)
