"""A run as it was kept, for one that makes it again."""

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

    @field_validator("effect")
    @classmethod
    def _as_now(cls, effect: dict[str, Any] | None) -> dict[str, Any] | None:
        """Fill in the figures of a question: an exported test may hold a record of an earlier version."""
        return effect and old_rows.question_as_now(effect)


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
    restored: int = 0
    """The last row of them that tells of a restore."""


class Record(Value):
    """A run as it is replayed."""

    run: str
    machine: str
    goal: str
    settings: dict[str, Any]
    """With the site's rules before its own, as they stood at launch."""
    site_rules: int = 0
    """How many of the rules those are."""
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
            goal=self.goal,
            settings=checked,
            site_rules=self.site_rules,
            tools=self.tools,
            skills=self.skills,
            guided=self.guided,
        )
