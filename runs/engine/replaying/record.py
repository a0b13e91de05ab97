"""A recorded run, for a replay."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from runs.engine import context, old_rows
from runs.engine.machine import Machine, Terms
from runs.engine.settings import Settings
from runs.engine.snapshot import Price
from runs.engine.tools import ToolSpec
from runs.engine.values import Value


class RecordedRow(Value):
    """A recorded step, with its request and its answer."""

    seq: int
    kind: str
    node: str
    edge: str | None = None
    to: str | None = None
    facts: tuple[dict[str, Any], ...] = ()
    state: dict[str, Any] | None = None
    """None if it equals that of the step before."""
    effect: dict[str, Any] | None = None
    attempt: int = 1
    answer: dict[str, Any] | None = None
    prompt_chars: int = 0
    input_tokens: int = 0
    """Of a sent prompt: its length, and the provider's count."""

    @field_validator("effect")
    @classmethod
    def _as_now(cls, effect: dict[str, Any] | None) -> dict[str, Any] | None:
        """Fill in the figures of a question: an exported test may hold a record of an earlier version."""
        return effect and old_rows.question_as_now(effect)


class Opening(Value):
    """The start of the replay: the machine's own, or after the steps given to a fork."""

    seq: int = 0
    node: str
    state: dict[str, Any] | None = None
    """None: the machine's opening state."""
    targets: dict[int, tuple[str, dict[str, Any] | None]] = {}
    """Earlier steps that a rollback can reach: node and state."""
    totals: dict[str, float] = {}
    calls: tuple[tuple[int, str], ...] = ()
    """Calls reached before: step and fingerprint."""
    facts: tuple[tuple[int, tuple[dict[str, Any], ...]], ...] = ()
    """Facts of live steps before it."""
    tokens_per_character: float = 1 / context.CHARACTERS_PER_TOKEN
    restored: int = 0
    """Its last step with a restore."""


class Record(Value):
    """A run to replay."""

    run: str
    machine: str
    goal: str
    settings: dict[str, Any]
    """Its settings, with the site's rules before its own, as of launch."""
    site_rules: int = 0
    """How many of the rules are the site's."""
    tools: dict[str, ToolSpec]
    skills: dict[str, str] = {}
    guided: bool = False
    opening: Opening
    rows: tuple[RecordedRow, ...]
    reads_prompt: bool = False
    """True if the model was sent prompts: a script is not."""
    context_tokens: int | None = None
    """Tokens that the model could read at once, unless a setting says so."""
    price: Price | None = None
    """Largest usage of one model call; None if unknown."""

    def terms(self, machine: Machine) -> Terms:
        checked: Settings = machine.settings.model_validate(self.settings)
        return Terms(
            goal=self.goal,
            settings=checked,
            site_rules=self.site_rules,
            tools=self.tools,
            skills=self.skills,
            guided=self.guided,
        )
