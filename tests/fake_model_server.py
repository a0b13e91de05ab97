"""A model server on loopback that does as it is told: it speaks OpenAI's chat completions, well or badly."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.threaded import OnThread


@dataclass(frozen=True)
class Says:
    """A whole reply, streamed in pieces, an object as its JSON. `usage` None: the server does not count."""

    what: str | dict[str, Any]
    pieces: int = 4
    usage: tuple[int, int] | None = (40, 7)
    by_tool: str = ""
    """Name of the tool whose arguments the reply is."""

    @property
    def text(self) -> str:
        """The reply as text."""
        return self.what if isinstance(self.what, str) else json.dumps(self.what)


@dataclass(frozen=True)
class SaysAtOnce:
    """A whole reply in one JSON body, from a server that does not stream."""

    text: str
    usage: tuple[int, int] | None = (40, 7)


@dataclass(frozen=True)
class Stalls:
    """Some text, and then nothing until the server is closed."""

    after: str = ""


@dataclass(frozen=True)
class Drips:
    """Comments that keep the connection busy and say nothing, until the client has gone."""


@dataclass(frozen=True)
class BreaksOff:
    """Some text, and then the end of the connection."""

    after: str


@dataclass(frozen=True)
class Garbles:
    """A chunk that is cut in the middle of its JSON, or any other bytes, as an event stream."""

    raw: bytes = b'data: {"choices": [{"delta": {"content": "hal\n\n'


@dataclass(frozen=True)
class Refuses:
    """An error: its status, its body, its headers."""

    status: int
    error: dict[str, Any] | str = field(default_factory=lambda: {"message": "no"})
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Sends:
    """A body of any kind under any status and headers, in pieces of `size` bytes where that is given."""

    body: bytes
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    size: int = 0


Behaviour = Says | SaysAtOnce | Stalls | Drips | BreaksOff | Garbles | Refuses | Sends


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


CONTEXT_LENGTH = Refuses(
    400,
    {
        "message": "This model's maximum context length is 4096 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    },
)
TOO_MANY_REQUESTS = Refuses(429, {"message": "Slow down."}, (("Retry-After", "7"),))


def listed(*names: str, **fields: Any) -> Sends:
    """A list of models, each with the fields."""
    data = [{"id": name, "object": "model"} | fields for name in names]
    return Sends(json.dumps({"object": "list", "data": data}).encode())


class FakeModelServer(OnThread):
    """Plays `behaviours` in order, one per request; a function chooses by the request instead."""

    def __init__(self, behaviours: Sequence[Behaviour] | Callable[[Asked], Behaviour]) -> None:
        self._behaviours = behaviours
        self.asked: list[Asked] = []
        self.listed: list[Asked] = []
        """The requests for its models."""
        self.models: Behaviour = listed("fake")
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), _handling(self)))

    def models_are(self, *names: str, **fields: Any) -> None:
        """List these models from now on."""
        self.models = listed(*names, **fields)

    @property
    def base_url(self) -> str:
        """What a model profile has as its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def next_behaviour(self, asked: Asked) -> Behaviour:
        """What to do about a request."""
        self.asked.append(asked)
        if callable(self._behaviours):
            return self._behaviours(asked)
        nth = len(self.asked)
        if nth > len(self._behaviours):
            return Refuses(500, {"message": f"the fake server has nothing for request {nth}"})
        return self._behaviours[nth - 1]


def _handling(fake: FakeModelServer) -> type[BaseHTTPRequestHandler]:
    class Handling(_Handling):
        server_of = fake

    return Handling


class _Handling(BaseHTTPRequestHandler):
    """One connection; each request has a connection of its own."""

    protocol_version = "HTTP/1.1"
    server_of: FakeModelServer

    def log_message(self, format: str, *args: object) -> None:
        """Tests read what was asked, not a log."""

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server_of.listed.append(Asked(self.path, headers, {}))
        self._behave(self.server_of.models)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        try:
            self._behave(self.server_of.next_behaviour(asked))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _behave(self, behaviour: Behaviour) -> None:
        match behaviour:
            case Says():
                self._stream(_chunks(behaviour))
                self._end()
            case SaysAtOnce(text=text, usage=usage):
                choice = {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
                whole = {"object": "chat.completion", "choices": [choice]} | _usage(usage)
                self._send(200, json.dumps(whole).encode(), (("Content-Type", "application/json"),))
            case Stalls(after=text):
                self._stream([_delta({"content": text})] if text else [])
                self.server_of.closing.wait(30)
                self.close_connection = True
            case Drips():
                self._stream([])
                while not self.server_of.closing.wait(0.02):
                    self._piece(b": still here\n\n")
            case BreaksOff(after=text):
                self._stream([_delta({"content": text})])
                self.close_connection = True
            case Garbles(raw=raw):
                self._stream([])
                self._piece(raw)
                self._end()
            case Sends(body=body, status=status, headers=headers, size=0):
                self._send(status, body, headers)
            case Sends(body=body, size=size):
                self._stream([])
                for at in range(0, len(body), size):
                    self._piece(body[at : at + size])
                self.wfile.write(b"0\r\n\r\n")
            case Refuses(status=status, error=error, headers=headers):
                text = error if isinstance(error, str) else json.dumps({"error": error})
                self._send(status, text.encode(), headers)

    def _send(self, status: int, body: bytes, headers: Sequence[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body))), ("Connection", "close")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, chunks: Sequence[dict[str, Any]]) -> None:
        self.send_response(200)
        for name, value in (("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")):
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in chunks:
            self._piece(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def _piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _end(self) -> None:
        self._piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


def _chunks(says: Says) -> list[dict[str, Any]]:
    size = max(1, -(-len(says.text) // max(1, says.pieces)))
    parts = [says.text[at : at + size] for at in range(0, len(says.text), size)]
    chunks = [_delta({"role": "assistant", "content": None})]
    for at, part in enumerate(parts):
        call = {
            "index": 0,
            "id": "call",
            "function": {"name": says.by_tool if at == 0 else None, "arguments": part},
        }
        chunks.append(_delta({"tool_calls": [call]} if says.by_tool else {"content": part}))
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*chunks, {"choices": []} | _usage(says.usage)] if says.usage else chunks


def _delta(delta: dict[str, Any]) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
    }


def _usage(usage: tuple[int, int] | None) -> dict[str, Any]:
    if usage is None:
        return {}
    return {"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}}
