"""The blocks that a run's model reads, how many of them fit, and the summary of the rest."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from runs.driver.ports import Ports
from runs.driver.position import Position
from runs.engine import context
from runs.engine.effects import Answer, Compaction, ModelCall, ModelReplied
from runs.engine.facts import RangeSummarised
from runs.engine.machine import Block
from runs.engine.ports import Message, ModelRequest, Watch
from runs.engine.snapshot import Window
from runs.engine.timeline import Piece, folded, messages, pieces
from runs.machines.prompts import summary
from runs.models import Run
from runs.signals import on_after_compaction, on_before_compaction
from runs.store import loading

log = logging.getLogger(__name__)

ANY = ModelCall(role="decision", reply="text")


class Reader:
    """The prompts of a run's model, and the window that they have to fit. `told` returns its blocks."""

    def __init__(self, at: Position, ports: Ports, told: Callable[[], list[Block]]) -> None:
        self.at = at
        self.run = at.run
        self.machine = at.machine
        self.terms = at.snapshot.state.terms
        self.ports = ports
        self.told = told
        self.settings = self.terms.settings.context
        self.limit = self.settings.limit_tokens or ports.context_tokens
        self.per_character = self._counted() if self.limit else 1 / context.CHARACTERS_PER_TOKEN
        self.wanted = loading.compaction_wanted(at.run)

    def _counted(self) -> float:
        """Return the tokens per character of the provider's last count for this run."""
        if not self.ports.reads_prompt:
            return 1 / context.CHARACTERS_PER_TOKEN
        counted = self.run.exchanges.filter(prompt_chars__gt=0, input_tokens__gt=0).order_by("-seq")
        found = counted.values_list("input_tokens", "prompt_chars").first()
        return context.ratio(*found) if found else 1 / context.CHARACTERS_PER_TOKEN

    def counted(self, input_tokens: int, characters: int) -> None:
        """Note that the provider has counted a prompt."""
        if self.ports.reads_prompt and input_tokens:
            self.per_character = context.ratio(input_tokens, characters)

    def pieces(self, call: ModelCall) -> list[Piece]:
        """Return the prompt of `call` in its parts."""
        return pieces(self.machine, self.terms, self.told(), call)

    def window(self) -> Window | None:
        """Return the kernel's window, so prompts fit; None if nothing bounds them and no compaction is requested."""
        if self.limit is None and not self.wanted:
            return None
        return context.window_of(self.told(), self.settings, self.limit, self.per_character, self.ports.price)

    def price(self) -> float:
        """Return the next model call's largest cost, for the current prompt, in USD."""
        characters = sum(len(message.text) for message in messages(self.pieces(ANY)))
        return self.ports.model.price(context.tokens(characters, self.per_character))

    # --- summaries ------------------------------------------------------------------------------------------------

    def summarise(self, compaction: Compaction, nth: int, watch: Watch) -> Answer:
        """Write the summary with the model. `nth` counts the run's attempts at it."""
        about = {
            "first": compaction.first,
            "last": compaction.last,
            "tokens_before": compaction.tokens_before,
        }
        self._tell(on_before_compaction, **about)
        request = ModelRequest(
            role="summary",
            nth=nth,
            messages=self.summary_messages(compaction) if self.ports.reads_prompt else (),
            reply_schema=summary.reply_schema() if self.ports.reads_prompt else None,
            reply_name="summary",
            reply_tokens=compaction.holds.reply_tokens,
        )
        answer = self.ports.model.ask(request, watch)
        if isinstance(answer, ModelReplied):
            carried_on = folded(self.told()).summaries.get(compaction.updates)
            return summary.read(answer, carried_on.text if carried_on else "")
        self._tell(on_after_compaction, **about, error=answer.message)
        return answer

    def summary_messages(self, compaction: Compaction) -> tuple[Message, ...]:
        """Return the prompt for the summary."""
        blocks = context.originals(self.told(), compaction)
        return summary.messages(self.terms.goal, blocks, compaction.room if self.limit else context.NO_LIMIT)

    def compacted(self, seq: int, made: RangeSummarised) -> None:
        """Drop the blocks replaced by the summary of step `seq` from memory."""
        self.wanted = False
        self._tell(
            on_after_compaction, seq=seq, **made.model_dump(exclude={"kind", "updates", "kept", "sources"})
        )

    def not_used(self, compaction: Compaction) -> None:
        """Note that a summary was not used."""
        about = compaction.model_dump(include={"first", "last", "tokens_before"})
        self._tell(on_after_compaction, **about, error="The summary was empty or out of date.")

    def _tell(self, signal: Signal, **about: Any) -> None:
        for receiver, outcome in signal.send_robust(sender=Run, run_id=self.run.pk, **about):
            if isinstance(outcome, Exception):
                log.error("a receiver of a compaction signal failed: %r", receiver, exc_info=outcome)
