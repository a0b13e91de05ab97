"""A reply as far as it has come, without the key: its text, its reasoning, its tool calls."""

from __future__ import annotations

import json
from typing import Any

from runs.adapters.models.counts import Used
from runs.adapters.scrubbing import Flow, Scrubber

PARTS = ("text", "thinking", "tool-call")
"""The kinds of parts in a reply; a piece of one is named after it."""


class Heard:
    """A reply in pieces, as the providers' library tells them."""

    def __init__(self, scrubber: Scrubber, *, by_tool: bool) -> None:
        self._scrubber = scrubber
        self._by_tool = by_tool
        self._said, self._thought = Flow(scrubber), Flow(scrubber)
        self._calls: dict[int, Flow] = {}
        """The arguments of each call, by its place."""
        self.used = Used()
        """The call's usage, by its server's last count so far."""
        self.sent = 0
        """Bytes of the request, once it is sent."""

    @property
    def text(self) -> str:
        """Return the reply: its text or, with a tool call or without text, the calls' arguments."""
        calls = [call.read() for call in self._calls.values() if not call.blank]
        return "\n".join(calls) if calls and (self._by_tool or self._said.blank) else self._said.read()

    @property
    def reasoning(self) -> str:
        """Return the model's reasoning; no part of the reply."""
        return self._thought.read()

    def take(self, event: Any) -> bool:
        """Add an event's content; return whether it is a piece of a reply at all."""
        match event.event_kind:
            case "part_start":
                return self._take(event.index, event.part.part_kind, event.part, "content", "args")
            case "part_delta":
                kind = event.delta.part_delta_kind.replace("_", "-")
                return self._take(event.index, kind, event.delta, "content_delta", "args_delta")
        return False

    def _take(self, place: int, kind: str, piece: Any, words: str, arguments: str) -> bool:
        match kind:
            case "text":
                self._said.take(getattr(piece, words))
            case "thinking":
                self._thought.take(getattr(piece, words) or "")
            case "tool-call":
                given = getattr(piece, arguments) or ""
                text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
                self._calls.setdefault(place, Flow(self._scrubber)).take(text)
        return kind in PARTS

    def end(self) -> None:
        """End the reply."""
        for flow in (self._said, self._thought, *self._calls.values()):
            flow.end()
