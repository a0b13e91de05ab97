"""One attempt at a call, in an event loop of its own that ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

import httpx2
from pydantic_ai.direct import model_request_stream

from runs.adapters.models.asking import form_of, messages_of, mode_of, options_in, options_of
from runs.adapters.models.counts import Used
from runs.adapters.models.heard import Heard
from runs.adapters.models.providers import model_of
from runs.adapters.models.settings import ModelSettings
from runs.adapters.models.transport import Transport
from runs.adapters.wire import Deadline, Net
from runs.engine.ports import ModelRequest, Watch


class Unsent(Exception):
    """The library could not turn the call into a request."""


class Unread(Exception):
    """The library could not read the server's reply."""


class Cut(Exception):
    """The call is no longer wanted."""


class Told(NamedTuple):
    """A server's report beside its reply."""

    reason: str | None
    """Why the reply ended; None if the server gave no reason."""
    used: Used
    sent: int
    """Bytes of the request."""


def call(
    settings: ModelSettings,
    request: ModelRequest,
    left_out: set[str],
    deadline: Deadline,
    net: Net | None,
    heard: Heard,
    watch: Watch,
) -> Told:
    """Fill `heard`; raises the transport's errors, `Unsent`, `Unread`, or `Cut`."""
    transport = Transport(settings, left_out, deadline, net or Net())
    try:
        return _run(_call(settings, request, left_out, transport, heard, watch))
    except Unread as fault:
        unmet = fault if transport.sent else Unsent(str(fault.__cause__))
        raise (transport.fault or unmet) from fault.__cause__
    finally:
        heard.used, heard.sent = transport.used or heard.used, transport.sent


def _run(coroutine: Coroutine[Any, Any, Told]) -> Told:
    """Run the coroutine to its end. Not by `asyncio.run`, which catches Ctrl-C."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _call(
    settings: ModelSettings,
    request: ModelRequest,
    left_out: set[str],
    transport: Transport,
    heard: Heard,
    watch: Watch,
) -> Told:
    timeout = httpx2.Timeout(settings.timeout_s)
    async with httpx2.AsyncClient(transport=transport, trust_env=False, timeout=timeout) as client:
        try:
            model = model_of(settings, client, left_out)
        except Exception as fault:
            raise Unread(type(fault).__name__) from fault
        mode = mode_of(settings, left_out, model.profile)
        messages = messages_of(request, mode, left_out, settings.kind)
        transport.had = options_in(request, messages, settings, left_out, mode)
        opening = model_request_stream(
            model,
            messages,
            model_settings=options_of(request, settings, left_out, model.profile),
            model_request_parameters=form_of(request, settings, mode),
        )
        try:
            stream = await opening.__aenter__()
        except Exception as fault:
            raise Unread(type(fault).__name__) from fault
        try:
            await _listen(stream, heard, watch)
        finally:
            await opening.__aexit__(None, None, None)
        reason = (stream.provider_details or {}).get("finish_reason")
        return Told(reason, transport.used or _used(stream), transport.sent)


async def _listen(stream: Any, heard: Heard, watch: Watch) -> None:
    events = aiter(stream)
    while True:
        try:
            event = await anext(events)
        except StopAsyncIteration:
            return
        except Exception as fault:
            raise Unread(type(fault).__name__) from fault
        if heard.take(event) and not watch(lambda: heard.text):
            raise Cut


def _used(stream: Any) -> Used:
    """Return the library's count of a reply from any other kind of API."""
    usage = stream.usage() if callable(stream.usage) else stream.usage
    read, wrote = int(usage.input_tokens or 0), int(usage.output_tokens or 0)
    if not read and not wrote:
        return Used()
    cached = min(int(usage.cache_read_tokens or 0), read)
    stored = min(int(usage.cache_write_tokens or 0), read - cached)
    return Used(read, wrote, cached, None, stored, min(int(usage.output_reasoning_tokens or 0), wrote))
