"""Turn the chat completions of any server into the form that the client library reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from runs.adapters.models.counts import Used, used_by_chat
from runs.adapters.models.endings import WORST, ended_by
from runs.adapters.models.framing import BrokenReply, as_object

MAX_DEPTH = 8
"""Levels of parts inside parts."""

REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
"""Fields in which servers put the reasoning; several filled ones have the same content."""

TEXTS = ("text", "thinking", "reasoning", "summary", "content", "value")
"""Fields with the text of a part."""


class Mender:
    """One reply, chunk by chunk or whole: its choices become one, its parts text, its calls a sequence."""

    def __init__(self) -> None:
        self._reason = ""
        self._usage: dict[str, Any] = {}
        self._calls: dict[str, tuple[str, int]] = {}
        """The last call of each of the server's numbers: its id, and its place in the sequence."""
        self._made = 0

    def mended(self, chunk: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the chunk as chat completions define it, if it holds any of a reply."""
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        for choice in _objects(chunk.get("choices")):
            message = as_object(choice.get("delta") or choice.get("message"))
            said, thought = _Pieces(), _Pieces()
            thought.add(next(filter(None, (_any_text(message.get(name)) for name in REASONING)), ""))
            self._sort(message.get("content"), said, thought)
            self._refuse(message.get("refusal"), said)
            calls = _objects(message.get("tool_calls"))
            older = [{"function": message["function_call"]}] if message.get("function_call") else []
            mended = [self._call(call, position) for position, call in enumerate(calls or older)]
            if reason := choice.get("finish_reason"):
                self._end(str(reason))
            yield _chunk({"content": said.text, "reasoning_content": thought.text, "tool_calls": mended})

    def last(self) -> Iterator[dict[str, Any]]:
        """Yield the reason for the end, if the server gave one."""
        if self._reason:
            yield _chunk({}, self._reason)

    @property
    def used(self) -> Used:
        """Return the reply's usage, by the server's last count."""
        return used_by_chat(self._usage)

    def _sort(self, part: Any, said: _Pieces, thought: _Pieces, depth: int = 0) -> None:
        """Sort a part: texts and parts of type text are the reply, parts of any other type reasoning."""
        if isinstance(part, str):
            said.add(part)
        elif isinstance(part, list):
            for inner in part:
                self._sort(inner, said, thought, _deeper(depth))
        elif part is not None:
            match as_object(part).get("type", "text"):
                case "text" | "output_text":
                    inner = part.get("text") or part.get("value") or part.get("content")
                    self._sort(inner, said, thought, _deeper(depth))
                case "refusal":
                    self._refuse(part.get("refusal"), said)
                case _:
                    thought.add(_any_text(part))

    def _refuse(self, refusal: Any, said: _Pieces) -> None:
        if refusal:
            said.add(_text(refusal))
            self._end("content_filter")

    def _call(self, call: dict[str, Any], position: int) -> dict[str, Any]:
        """Return a piece of a call. Another number begins another call, and so does a name with another id."""
        function, named = as_object(call.get("function")), str(call.get("id") or "")
        number = str(call.get("index", position))
        before, _ = self._calls.get(number, ("", 0))
        begins = number not in self._calls or bool(function.get("name") and named != before)
        if begins:
            self._calls[number] = (named, self._made)
            self._made += 1
        place = self._calls[number][1]
        arguments = function.get("arguments") or ""
        text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else _text(arguments)
        called = {"name": "reply", "arguments": text} if begins else {"arguments": text}
        return {"index": place, "id": f"call-{place}", "type": "function", "function": called}

    def _end(self, reason: str) -> None:
        worse = WORST.index(ended_by(reason)) > WORST.index(ended_by(self._reason)) if self._reason else True
        self._reason = reason if worse else self._reason


class _Pieces:
    """Pieces of text, put together once."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def text(self) -> str | None:
        """Return the text; None if there is none."""
        return "".join(self._pieces) or None


def _chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    kept = {name: value for name, value in delta.items() if value}
    choice = {"index": 0, "delta": kept, "finish_reason": reason}
    return {
        "id": "reply",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "model",
        "choices": [choice],
    }


def _deeper(depth: int) -> int:
    if depth >= MAX_DEPTH:
        raise BrokenReply("its content is nested too deep")
    return depth + 1


def _any_text(part: Any, depth: int = 0) -> str:
    """Return all text in a part and its parts. Encrypted content is in none of `TEXTS`."""
    if isinstance(part, list):
        return "".join(_any_text(inner, _deeper(depth)) for inner in part)
    if isinstance(part, dict):
        return "".join(_any_text(part[name], _deeper(depth)) for name in TEXTS if name in part)
    return part if isinstance(part, str) else ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BrokenReply("a chunk has another shape than a reply's")
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value or [], list):
        raise BrokenReply("a chunk has another shape than a reply's")
    return list(map(as_object, value or []))
