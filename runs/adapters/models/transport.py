"""Carry the requests of a provider's library to its server, by our own rules.

Sockets keep one deadline (`runs/adapters/wire.py`), and nothing of the environment is sent. The key goes only to the
profile's own address, and replies are mended before the library reads them. The library's event loop belongs to this
one call, so a wait in it holds up nothing else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx2

from runs.adapters.models.counts import Used
from runs.adapters.models.framing import chunks
from runs.adapters.models.mending import Mender
from runs.adapters.models.refusals import Refused, error_in, status_in
from runs.adapters.models.settings import ModelSettings
from runs.adapters.wire import Call, Deadline, Net, Reply, anywhere, exchange, trusted

MAX_ERROR = 20_000
"""Most bytes read of an error."""

SENT = ("content-type", "accept", "anthropic-version", "anthropic-beta")
"""A library's headers that are sent. All others may hold values from the environment."""

KEY_HEADER = {"anthropic": ("x-api-key", ""), "google": ("x-goog-api-key", "")}
"""The header with the key for a kind of server, and its prefix; `Authorization: Bearer` by default."""


PORTS = {"http": 80, "https": 443}


class Elsewhere(ConnectionError):
    """A library asked for another server than the profile's."""

    def __init__(self, host: str) -> None:
        super().__init__(f"The request was not sent: {host} is not the address in the model's profile.")


class Transport(httpx2.AsyncBaseTransport):
    """Carries the requests of one call."""

    def __init__(self, settings: ModelSettings, left_out: set[str], deadline: Deadline, net: Net) -> None:
        self._settings = settings
        self._left_out = left_out
        self._deadline = deadline
        self._net = net
        self.fault: Exception | None = None
        """The transport's own error: libraries replace it by theirs."""
        self.used: Used | None = None
        """Usage of a chat completion; the library counts other replies."""
        self.had = frozenset[str]()
        """The options that the call could do without."""
        self.sent = 0
        """Bytes of the request."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; raises for anything but a reply."""
        stack = ExitStack()
        try:
            call = self._call(request, await request.aread())
            reply = stack.enter_context(
                exchange(call, self._deadline, trusted(), self._net, anywhere, self._settings.silence_s)
            )
            if reply.status != 200:
                raise self._refused(reply)
        except Exception as fault:
            self.fault = fault
            stack.close()
            raise
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, stream=_Stream(self._events(reply), stack)
        )

    def _call(self, request: httpx2.Request, content: bytes) -> Call:
        settings, url = self._settings, request.url
        own = urlsplit(settings.base_url)
        if (url.scheme, url.host, url.port) != (own.scheme, own.hostname, _explicit(own.scheme, own.port)):
            raise Elsewhere(url.host)
        body = json.loads(content)
        kept = {name: value for name, value in body.items() if name not in self._left_out}
        body = json.dumps(kept, ensure_ascii=False).encode()
        self.sent = len(body)
        headers = [(name, request.headers[name]) for name in SENT if name in request.headers]
        headers.append(("User-Agent", "agentsite"))
        headers += key_header(settings)
        port = own.port or PORTS[own.scheme]
        target = url.raw_path.decode("ascii")
        return Call("POST", own.scheme, own.hostname or "", port, target, tuple(headers), body)

    def _events(self, reply: Reply) -> Iterator[bytes]:
        """Yield the reply as server-sent events, in the form of its kind."""
        try:
            yield from self._mended(reply)
        except Exception as fault:
            self.fault = fault
            raise

    def _mended(self, reply: Reply) -> Iterator[bytes]:
        mender = Mender()
        for chunk in chunks(reply.pieces()):
            if error := error_in(chunk):
                raise Refused(status_in(error), error, reply.headers, self.had, in_reply=True)
            if not self._settings.chats:
                yield _event(chunk, str(chunk.get("type") or ""))
                continue
            for mended in mender.mended(chunk):
                self.used = mender.used
                yield _event(mended)
        if self._settings.chats:
            for mended in mender.last():
                yield _event(mended)
            self.used = mender.used
            yield b"data: [DONE]\n\n"

    def _refused(self, reply: Reply) -> Refused:
        text = reply.start(MAX_ERROR).decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = text
        if isinstance(body, list) and body:
            body = body[0]
        error = body.get("error", body) if isinstance(body, dict) else body
        return Refused(reply.status, error or body, reply.headers, self.had)


class _Stream(httpx2.AsyncByteStream):
    """The body; the connection ends with it."""

    def __init__(self, events: Iterator[bytes], stack: ExitStack) -> None:
        self._events = events
        self._stack = stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for event in self._events:
            yield event

    async def aclose(self) -> None:
        self._stack.close()


def key_header(settings: ModelSettings) -> list[tuple[str, str]]:
    """Return the header with the key; none without a key."""
    key = settings.api_key.get_secret_value()
    header, before = KEY_HEADER.get(settings.kind, ("Authorization", "Bearer "))
    return [(header, before + key)] if key else []


def _explicit(scheme: str, port: int | None) -> int | None:
    """Return the port as a library writes it: none if it is the scheme's own."""
    return None if port == PORTS[scheme] else port


def _event(chunk: dict[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(chunk)}\n\n".encode()
