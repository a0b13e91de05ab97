"""The prompt of a model call, rendered again from the steps read by the model.

A prompt is not stored: it is a rendering of the log. Its other inputs are in the request (`longest`, `sanitize`,
`room`) and in the exchange (`prompt_upto`), so it can be rendered as it was sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from runs.driver.ports import prompt_tokens, tool_specs
from runs.engine import context
from runs.engine.context import NO_LIMIT
from runs.engine.effects import EFFECT, Compaction, ModelCall
from runs.engine.machine import Block, Terms
from runs.engine.ports import Message
from runs.engine.timeline import Piece, messages, pieces
from runs.machines import CATALOGUE
from runs.machines.prompts import summary
from runs.models import Exchange, ModelProfile, Run, Step
from runs.store import loading

ASKS = ("model_call", "compaction")
"""Kinds of exchanges that ask a model."""

ORIGINALS = "originals"
"""The blocks shown to a summariser."""


@dataclass(frozen=True)
class Sent:
    """A prompt as it was sent, in its parts. Tokens are estimates."""

    seq: int
    """The ask."""
    kind: str
    role: str
    parts: tuple[Piece, ...]
    per_character: float
    """Tokens per character, from the provider's counts for the run by then."""
    characters_sent: int
    """The count when it was sent; 0 without one (a script reads no prompt, the cache asks no model)."""
    tokens_counted: int
    """The provider's own count; 0 if there is none."""
    sent: bool
    """True if a model was asked at all: a reply from the cache needs no prompt, and one may still be waiting."""

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        return messages(self.parts)

    @property
    def characters(self) -> int:
        """Return the characters of the messages."""
        return sum(len(message.text) for message in self.messages)

    @property
    def tokens(self) -> int:
        """Return the estimate of the whole."""
        return self.tokens_of(self.parts)

    @property
    def differs(self) -> bool:
        """Return True if an input outside of the log has changed since: a tool, a skill, the profile."""
        return bool(self.characters_sent) and self.characters_sent != self.characters

    def tokens_of(self, parts: Iterable[Piece]) -> int:
        """Return the estimate of some parts."""
        return context.tokens(sum(len(part.text) for part in parts), self.per_character)


def prompt_of(run: Run, seq: int) -> tuple[Message, ...] | None:
    """Return the messages sent by the ask at `seq`; None if it asked no model."""
    found = sent_at(run, seq)
    return found.messages if found else None


def sent_at(run: Run, seq: int) -> Sent | None:
    """Return the prompt of the ask at `seq`; None if it asked no model."""
    exchange = Exchange.objects.filter(run=run, seq=seq, kind__in=ASKS).first()
    return _sent(run, exchange, full_terms(run), _told_to(run, exchange)) if exchange else None


def sent_with_the_one_before(run: Run, seq: int) -> tuple[Sent, Sent | None] | None:
    """Return the prompt of the ask at `seq`, and the one sent before it to the same role."""
    exchange = Exchange.objects.filter(run=run, seq=seq, kind__in=ASKS).first()
    if exchange is None:
        return None
    terms, blocks = full_terms(run), _told_to(run, exchange)
    now = _sent(run, exchange, terms, blocks)
    asked = Exchange.objects.filter(run=run, kind=exchange.kind, name=exchange.name, seq__lt=seq)
    before = asked.exclude(status=Exchange.Status.ANSWERED, nth=0).order_by("-seq").first()
    if before is None:
        return now, None
    return now, _sent(run, before, terms, _told_before(run, before, exchange, blocks))


def _told_to(run: Run, exchange: Exchange) -> list[Block]:
    """Return the blocks that the model had when it was asked."""
    return loading.window_at(run, CATALOGUE[run.machine], _upto(exchange))


def _told_before(run: Run, before: Exchange, now: Exchange, blocks: list[Block]) -> list[Block]:
    """Return the same for an earlier ask; those of `blocks` from then, if steps have only been added since."""
    since = run.steps.filter(seq__gt=_upto(before), seq__lte=_upto(now))
    if since.filter(kind__in=(Step.Kind.REWIND, Step.Kind.COMPACTION, Step.Kind.NOTE)).exists():
        return _told_to(run, before)
    return [block for block in blocks if block.seq <= _upto(before)]


def _upto(exchange: Exchange) -> int:
    return exchange.prompt_upto or exchange.seq


def _sent(run: Run, exchange: Exchange, terms: Terms, blocks: list[Block]) -> Sent:
    effect = EFFECT.validate_json(exchange.request_json)
    assert isinstance(effect, ModelCall | Compaction)
    return Sent(
        seq=exchange.seq,
        kind=exchange.kind,
        role=exchange.name,
        parts=tuple(_parts(run, effect, blocks, terms)),
        per_character=ratio_before(run, exchange.seq),
        characters_sent=exchange.prompt_chars,
        tokens_counted=exchange.input_tokens if exchange.prompt_chars else 0,
        sent=exchange.nth > 0,
    )


def _parts(run: Run, effect: ModelCall | Compaction, blocks: list[Block], terms: Terms) -> list[Piece]:
    if isinstance(effect, ModelCall):
        return pieces(CATALOGUE[run.machine], terms, blocks, effect)
    room = effect.room if limit_of(run, terms) else NO_LIMIT
    system, told = summary.messages(terms.goal, context.originals(blocks, effect), room)
    return [Piece("system", "system", system.text), Piece(ORIGINALS, "user", told.text)]


def blocks_at(run: Run, seq: int) -> list[Block]:
    """Return all blocks that the model had when `seq` was the newest step, summarised or not."""
    return loading.blocks_at(run, CATALOGUE[run.machine], seq)


def full_terms(run: Run) -> Terms:
    """Return the run's terms, with its current tools."""
    guided = ModelProfile.objects.filter(name=run.model_name, guided=True).exists()
    return loading.terms_of(run, tool_specs(run), guided=guided)


def limit_of(run: Run, terms: Terms) -> int | None:
    """Return the most tokens of a prompt; None for no bound."""
    if terms.settings.context.limit_tokens or run.script_json:
        return terms.settings.context.limit_tokens
    profile = ModelProfile.objects.filter(name=run.model_name).first()
    return prompt_tokens(profile) if profile else None


def ratio_before(run: Run, seq: int) -> float:
    """Return the tokens per character of the last prompt before `seq` that the provider counted."""
    counted = Exchange.objects.filter(run=run, seq__lt=seq, prompt_chars__gt=0, input_tokens__gt=0)
    found = counted.order_by("-seq").values_list("input_tokens", "prompt_chars").first()
    return context.ratio(*found) if found else 1 / context.CHARACTERS_PER_TOKEN
