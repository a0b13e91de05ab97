"""Carries messages to and from a server over HTTP, with caps on what it may send; tells what was never sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from runs.adapters.mcp.settings import ServerSettings
from runs.adapters.mcp.stdio import MOST_BYTES

MOST_OF_A_STREAM = 4 * MOST_BYTES
"""Bytes of one response: an event stream may hold many messages."""

REJECTED = range(400, 500)
"""Statuses with which a server says that it did nothing."""


@dataclass
class Record:
    """The outcome of the requests of one call."""

    unsent: str = ""
    """Why nothing was sent; empty where something was."""
    status: int = 0
    """The last status that was an error."""
    too_much: bool = False


RECORD: ContextVar[Record | None] = ContextVar("record of a call", default=None)


@asynccontextmanager
async def connected(settings: ServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    """Open the streams to the server."""
    limit = httpx2.Timeout(settings.connect_s, read=settings.timeout_s + settings.connect_s)
    headers = [*settings.headers, ("Accept-Encoding", "identity")]
    client = httpx2.AsyncClient(transport=_Capped(), headers=headers, timeout=limit, trust_env=False)
    async with (
        client,
        streamable_http_client(
            settings.address, http_client=client, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams


class _Capped(httpx2.AsyncBaseTransport):
    """Counts what comes, and notes on the call's record what a call did not come to."""

    def __init__(self) -> None:
        self._below = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass the request on."""
        record = RECORD.get() or Record()
        try:
            response = await self._below.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as fault:
            if request.method == "POST":
                record.unsent = str(fault) or type(fault).__name__
            raise
        if request.method == "POST" and response.status_code >= 400:
            record.status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.ReadError("The response is compressed, which was not asked for.")
        response.stream = _Counted(response.stream, record)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._below.aclose()


class _Counted(httpx2.AsyncByteStream):
    """A response that ends once it is too long."""

    def __init__(self, below: Any, record: Record) -> None:
        self._below = below
        self._record = record

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for chunk in self._below:
            count += len(chunk)
            if count > MOST_OF_A_STREAM:
                self._record.too_much = True
                raise httpx2.ReadError("The response is too long.")
            yield chunk

    async def aclose(self) -> None:
        """Close it."""
        await self._below.aclose()
