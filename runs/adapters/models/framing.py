"""Read JSON objects off a body as it comes: server-sent events, lines, or whole bodies without streaming.

The body is untrusted: it may have any shape, any length, and any end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

MAX_STREAM = 16_000_000
"""Bytes of one answer, wrapping included."""


class BrokenReply(ConnectionError):
    """A stream that is no stream of JSON chunks."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"Its stream is broken: {why}.")


def chunks(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the answer, as they come. The body's beginning tells its framing, not its header."""
    pieces = _limited(pieces)
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
    """Yield the chunks of server-sent events: a line each, or several lines up to an empty one."""
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
    """Return the consecutive objects in `data`, also inside a list; None if it is no JSON, or cut."""
    found: list[dict[str, Any]] = []
    decoder, at = json.JSONDecoder(), 0
    try:
        text = data.decode("utf-8", "surrogatepass").strip()
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found += map(as_object, value if isinstance(value, list) else [value])
            while text[at : at + 1].isspace():
                at += 1
    except (ValueError, RecursionError):
        return None
    return found


def as_object(value: Any) -> dict[str, Any]:
    """Return the value as an object, an empty one for nothing; raise `BrokenReply` for anything else."""
    if not isinstance(value or {}, dict):
        raise BrokenReply("a chunk has another shape than a reply's")
    return value or {}
