"""Reads a chat completion as it comes: server-sent events, or whole bodies where a server does not stream.

What comes is a stranger's: it may have any shape, any length, and any end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from runs.adapters.scrubbing import Flow, Scrubber

if TYPE_CHECKING:
    from runs.adapters.wire import Reply

MAX_STREAM = 16_000_000
"""Bytes of one answer, all of its chunks' wrapping included."""

MAX_DEPTH = 8
"""Levels of parts inside parts."""

Ended = Literal["stop", "length", "content_filter", "error"]

WORST: tuple[Ended, ...] = ("stop", "length", "content_filter", "error")
"""Where several choices end in several ways, the last of these counts."""

REASONS: dict[str, Ended] = {
    **dict.fromkeys(
        ("stop", "stop_sequence", "end_turn", "eos", "eos_token", "complete", "completed"), "stop"
    ),
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length", "max_length"), "length"),
    "model_context_window_exceeded": "length",
    **dict.fromkeys(("content_filter", "safety", "refusal", "recitation", "blocklist"), "content_filter"),
    **dict.fromkeys(("prohibited_content", "sensitive", "spii"), "content_filter"),
}
"""What servers call the end of a reply. Any other word may name a failure, and is read as an error."""

REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
"""Where servers put what the model thought; one that fills several of them fills them with the same."""

TEXTS = ("text", "thinking", "reasoning", "summary", "content", "value")
"""Where a part has its text."""


class BrokenReply(ConnectionError):
    """A stream that is no stream of JSON chunks."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"Its stream is broken: {why}.")


class Heard:
    """A reply as far as it has come."""

    def __init__(self, scrubber: Scrubber, *, by_tool: bool) -> None:
        self._scrubber = scrubber
        self._by_tool = by_tool
        self._said, self._thought = Flow(scrubber), Flow(scrubber)
        self._calls: list[Flow] = []
        """The arguments of each call."""
        self._calling: dict[str, tuple[str, Flow]] = {}
        """The last call of each index, with its id."""
        self.usage: dict[str, Any] = {}
        self.ended: Ended | None = None
        self.unknown = ""
        """A reason for the end that is on no list."""

    @property
    def text(self) -> str:
        """The reply: what was said or, where a tool was asked for or nothing was said, the calls' arguments."""
        calls = [call.read() for call in self._calls if not call.blank]
        return "\n".join(calls) if calls and (self._by_tool or self._said.blank) else self._said.read()

    @property
    def reasoning(self) -> str:
        """What the model thought; no part of the reply."""
        return self._thought.read()

    def take(self, chunk: dict[str, Any]) -> None:
        """Add one chunk of a stream, or a whole answer of a server that does not stream."""
        if isinstance(chunk.get("usage"), dict):
            self.usage = chunk["usage"]
        for choice in _objects(chunk.get("choices")):
            message = _object(choice.get("delta") or choice.get("message"))
            self._thought.take(next(filter(None, (_any_text(message.get(name)) for name in REASONING)), ""))
            self._take_part(message.get("content"))
            self._take_refusal(message.get("refusal"))
            calls = _objects(message.get("tool_calls"))
            older = [{"function": message["function_call"]}] if message.get("function_call") else []
            for position, call in enumerate(calls or older):
                self._take_call(call, position)
            if reason := choice.get("finish_reason"):
                self._take_end(str(reason))

    def end(self) -> None:
        """Nothing follows."""
        for flow in (self._said, self._thought, *self._calls):
            flow.end()

    def _take_part(self, part: Any, depth: int = 0) -> None:
        """Add what a message holds: texts and parts of type text are the reply, parts of any other type reasoning."""
        if isinstance(part, str):
            self._said.take(part)
        elif isinstance(part, list):
            for inner in part:
                self._take_part(inner, _deeper(depth))
        elif part is not None:
            match _object(part).get("type", "text"):
                case "text" | "output_text":
                    self._take_part(
                        part.get("text") or part.get("value") or part.get("content"), _deeper(depth)
                    )
                case "refusal":
                    self._take_refusal(part.get("refusal"))
                case _:
                    self._thought.take(_any_text(part))

    def _take_refusal(self, refusal: Any) -> None:
        if refusal:
            self._said.take(_text(refusal))
            self._worsen("content_filter")

    def _take_call(self, call: dict[str, Any], position: int) -> None:
        """Add to a call's arguments. Another index begins another call, and so does a name with another id."""
        function, named = _object(call.get("function")), call.get("id") or ""
        index = str(call.get("index", position))
        before, _ = self._calling.get(index, ("", None))
        if index not in self._calling or (function.get("name") and named != before):
            self._calls.append(Flow(self._scrubber))
            self._calling[index] = (str(named), self._calls[-1])
        arguments = function.get("arguments") or ""
        text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else _text(arguments)
        self._calling[index][1].take(text)

    def _take_end(self, reason: str) -> None:
        if (word := reason.strip().lower()) not in REASONS:
            self.unknown = reason
        self._worsen(REASONS.get(word, "error"))

    def _worsen(self, ended: Ended) -> None:
        self.ended = max(self.ended or ended, ended, key=WORST.index)


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise BrokenReply("its content is nested too deep")
    return depth + 1


def _any_text(part: Any, depth: int = 0) -> str:
    """Return all text in a part and its parts. What is encrypted is in none of `TEXTS`."""
    if isinstance(part, list):
        return "".join(_any_text(inner, _deeper(depth)) for inner in part)
    if isinstance(part, dict):
        return "".join(_any_text(part[name], _deeper(depth)) for name in TEXTS if name in part)
    return part if isinstance(part, str) else ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BrokenReply("a chunk has another shape than a chat completion's")
    return value


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value or {}, dict):
        raise BrokenReply("a chunk has another shape than a chat completion's")
    return value or {}


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value or [], list):
        raise BrokenReply("a chunk has another shape than a chat completion's")
    return list(map(_object, value or []))


# --- framing ------------------------------------------------------------------------------------------------------


def chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    """The JSON objects of the answer, as they come. What the body begins with tells its framing, not its header."""
    pieces = _limited(reply.pieces())
    start = b""
    for piece in pieces:
        start = (start + piece).removeprefix(b"\xef\xbb\xbf").lstrip()
        if start:
            break
    if start.startswith(b"<"):
        raise BrokenReply("it is a page, and no chat completion")
    body = chain((start,), pieces)
    yield from _decoded(b"".join(body)) if start.startswith((b"{", b"[")) else _events(body)


def _limited(pieces: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > MAX_STREAM:
            raise BrokenReply(f"it is longer than {MAX_STREAM} bytes")
        yield piece


def _events(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The chunks of server-sent events: a line each, or one that is broken in lines until an empty one."""
    waiting: list[bytes] = []
    for line in chain(_lines(pieces), (b"",)):
        data = line.removeprefix(b"data:").strip()
        if waiting and data in (b"", b"[DONE]"):
            yield from _decoded(b"\n".join(waiting))
            waiting = []
        if data == b"[DONE]":
            return
        if line.startswith((b"data:", b"{")):
            if waiting or (found := _objects_in(data)) is None:
                waiting.append(data)
            else:
                yield from found


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            waiting.append(line)
            yield b"".join(waiting).strip()
            waiting = []
        waiting.append(rest)
    yield b"".join(waiting).strip()


def _decoded(data: bytes) -> list[dict[str, Any]]:
    found = _objects_in(data)
    if found is None:
        raise BrokenReply("a chunk is no JSON")
    return found


def _objects_in(data: bytes) -> list[dict[str, Any]] | None:
    """Return the objects that follow one another in `data`, also inside a list; None where it is no JSON, or cut."""
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), 0
    try:
        text = data.decode("utf-8", "surrogatepass").strip()
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found += map(_object, value if isinstance(value, list) else [value])
            while text[at : at + 1].isspace():
                at += 1
    except (ValueError, RecursionError):
        return None
    return found
