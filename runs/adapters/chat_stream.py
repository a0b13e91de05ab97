"""Reads a chat completion as it comes: server-sent events, or one whole body where a server does not stream.

What comes is a stranger's: it may have any shape, any length, and any end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runs.adapters.wire import Reply

MAX_STREAM = 16_000_000
"""Bytes of one answer, all of its chunks' wrapping included."""


@dataclass
class Heard:
    """A reply as far as it has come."""

    said: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finished: bool = False

    @property
    def text(self) -> str:
        """The arguments of the tool where one was called, else what was said."""
        return "".join(self.arguments or self.said)

    def take(self, chunk: dict[str, Any]) -> None:
        """Add one chunk of a stream, or a whole answer of a server that does not stream."""
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            part = choice.get("delta") or choice.get("message") or {}
            self.finished = self.finished or bool(choice.get("finish_reason"))
            self.said += filter(None, (part.get("content"), part.get("refusal")))
            for call in (part.get("tool_calls") or ())[:1]:
                # A second call has another index; only the first one is the reply.
                if not call.get("index"):
                    self.arguments += filter(None, (call.get("function", {}).get("arguments"),))


class BrokenReply(ConnectionError):
    """A stream that is no stream of JSON chunks."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"Its stream is broken: {why}.")


def chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    """The JSON objects of the answer, as they come: server-sent events, or one whole body."""
    streamed = "event-stream" in reply.headers.get("content-type", "")
    for line in _lines(reply) if streamed else [b"data:" + reply.start(MAX_STREAM)]:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            raise BrokenReply("a chunk is no JSON") from None
        if not _has_the_shape(chunk):
            raise BrokenReply("a chunk has another shape than a chat completion's")
        yield chunk


def _lines(reply: Reply) -> Iterator[bytes]:
    waiting, total = b"", 0
    for piece in reply.pieces():
        total += len(piece)
        if total > MAX_STREAM:
            raise BrokenReply(f"it is longer than {MAX_STREAM} bytes")
        *lines, waiting = (waiting + piece).split(b"\n")
        yield from lines
    yield waiting


def _has_the_shape(chunk: Any) -> bool:
    """Whether `Heard.take` can read it; a stranger's JSON may have any shape."""
    if not isinstance(chunk, dict):
        return False
    choices = chunk.get("choices") or []
    return isinstance(choices, list) and all(map(_is_a_choice, choices))


def _is_a_choice(choice: Any) -> bool:
    if not isinstance(choice, dict):
        return False
    part = choice.get("delta") or choice.get("message") or {}
    if not isinstance(part, dict):
        return False
    calls = part.get("tool_calls") or []
    texts = [part.get("content"), part.get("refusal")]
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return False
    functions = [call.get("function", {}) for call in calls]
    texts += [function.get("arguments") for function in functions if isinstance(function, dict)]
    whole = all(isinstance(function, dict) for function in functions)
    return whole and all(text is None or isinstance(text, str) for text in texts)
