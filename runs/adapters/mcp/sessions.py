"""The sessions of this process with MCP servers: one thread with one event loop, one session for each server.

A session opens at the first call. It ends when it has been unused for a minute, when its server's settings change,
after a call that was cut off, and with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import mcp_types
from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from runs.adapters.mcp import http
from runs.adapters.mcp.definitions import (
    MOST_TOOLS,
    PROMPTS,
    RESOURCES,
    Definition,
    DefinitionChanged,
)
from runs.adapters.mcp.faults import CutOff, NotReached, ServerRefused, TooMuch, TooSlow, sentence_of
from runs.adapters.mcp.settings import ServerSettings
from runs.adapters.mcp.stdio import Pipes
from runs.adapters.tool import ToolError

IDLE_S = 60.0
"""Seconds after its last call in which a session stays open."""

MODE = "auto"
"""How the SDK settles the version of the protocol: by the newest way, else by the older handshake."""

CLOSE_S = 10.0
"""Seconds that the process waits at its end for its servers to end."""

UNSURE = (CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR)
"""Error codes with which a call may have happened: the SDK gives them for a broken connection too."""

T = TypeVar("T")
Ask = Callable[[Client], Awaitable[T]]


def look(settings: ServerSettings) -> tuple[Definition, ...]:
    """Return the tools of a server, listed now. Raises `NotReached`, `TooSlow` or `CutOff`."""
    return _run(lambda: _sessions.look(settings), settings.connect_s + settings.timeout_s)


def ask(settings: ServerSettings, tool: str, sha256: str, question: Ask[T]) -> T:
    """Return what a server answers to `question`, if it still defines `tool` so; raises `DefinitionChanged` if not."""
    seconds = settings.connect_s + settings.timeout_s
    return _run(lambda: _sessions.ask(settings, tool, sha256, question), seconds)


def open_to() -> list[ServerSettings]:
    """Return the servers that this process has a usable session with."""
    return _sessions.open_to()


def close_all() -> None:
    """End all sessions of this process."""
    if _loop.is_running:
        _run(_sessions.close_all, CLOSE_S)


class Session:
    """A connection to one server, held by a task of its own: the SDK opens and closes it in the same task."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.pipes = Pipes(settings) if settings.kind == "stdio" else None
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.calls = 0
        self.retired = False
        self._woken = asyncio.Event()
        self.task = asyncio.create_task(self._hold())

    @property
    def usable(self) -> bool:
        """Return True if a call may begin in it."""
        ended = self.pipes is not None and self.pipes.ended.is_set()
        return not (self.retired or self.task.done() or ended)

    @property
    def last_words(self) -> str:
        """Return the last output of its process on stderr."""
        return self.pipes.last_words if self.pipes is not None else ""

    def retire(self) -> None:
        """Begin no call in it any more; it ends with the last one under way."""
        self.retired = True
        self._woken.set()

    @asynccontextmanager
    async def used(self) -> AsyncIterator[Client]:
        """Keep it open for as long as the `with` lasts."""
        self.calls += 1
        try:
            yield await asyncio.shield(self.client)
        finally:
            self.calls -= 1
            self._woken.set()

    async def _hold(self) -> None:
        settings = self.settings
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(settings.connect_s):
                    transport = self.pipes.open() if self.pipes is not None else http.connected(settings)
                    client = Client(transport, cache=None, mode=MODE)
                    await stack.enter_async_context(client)
                self.client.set_result(client)
                await self._until_unused()
        except TimeoutError:
            self._failed(f"it did not start within {settings.connect_s:g} s.")
        except Exception as fault:
            self._failed(self._why() or sentence_of(fault))
        finally:
            self._failed("it was stopped.")

    def _failed(self, why: str) -> None:
        if not self.client.done():
            self.client.set_exception(NotReached(self.settings.name, why, self.last_words))
            self.client.exception()  # perhaps no call waits for it any more

    def _why(self) -> str:
        """Return why a process ended the connection; empty where it did not."""
        if self.pipes is None or not self.pipes.ended.is_set():
            return ""
        return f"it sent {self.pipes.too_much}." if self.pipes.too_much else "its process ended."

    async def _until_unused(self) -> None:
        """Return once no call needs the session any more."""
        while not (self.retired and not self.calls):
            self._woken.clear()
            try:
                async with asyncio.timeout(IDLE_S):
                    await self._woken.wait()
            except TimeoutError:
                self.retired = self.retired or not self.calls


class Sessions:
    """All sessions of this process. Used in the loop's thread only."""

    def __init__(self) -> None:
        self._by_name: dict[str, Session] = {}
        self._all: set[Session] = set()

    async def look(self, settings: ServerSettings) -> tuple[Definition, ...]:
        """List the tools of a server."""
        return await self._asked(self._session_of(settings), _listed)

    async def ask(self, settings: ServerSettings, tool: str, sha256: str, question: Ask[T]) -> T:
        """Ask a server that still defines the tool as it was approved."""

        async def asked(client: Client) -> T:
            defined = (
                *RESOURCES,
                *PROMPTS,
                *await _tools(client),
            )  # each time: not every server tells of a change
            if sha256 not in {one.sha256 for one in defined if one.name == tool}:
                raise DefinitionChanged(f"{settings.name}.{tool}", await _listed(client))
            return await question(client)

        return await self._asked(self._session_of(settings), asked)

    def open_to(self) -> list[ServerSettings]:
        """Return the servers of the usable sessions."""
        return [session.settings for session in list(self._all) if session.usable]

    async def close_all(self) -> None:
        """End every session, calls in flight included."""
        for session in self._all:
            session.task.cancel()
        await asyncio.gather(*(session.task for session in self._all), return_exceptions=True)

    def _session_of(self, settings: ServerSettings) -> Session:
        session = self._by_name.get(settings.name)
        if session is not None and session.usable and session.settings == settings:
            return session
        if session is not None:
            session.retire()
        session = self._by_name[settings.name] = Session(settings)
        self._all.add(session)
        session.task.add_done_callback(lambda _: self._all.discard(session))
        return session

    async def _asked(self, session: Session, question: Ask[T]) -> T:
        """Return the answer; each failure becomes one of our own faults."""
        settings = session.settings
        record = http.Record()
        http.RECORD.set(record)
        async with session.used() as client:
            try:
                async with asyncio.timeout(settings.timeout_s):
                    return await question(client)
            except TimeoutError:
                session.retire()
                raise TooSlow(settings.name, settings.timeout_s) from None
            except MCPError as fault:
                raise self._meant(fault, session, record) from None
            except ValidationError:
                raise ServerRefused(
                    f"The server {settings.name} gave an answer that breaks the protocol."
                ) from None
            except ToolError:
                raise
            except Exception as fault:
                session.retire()
                raise CutOff(settings.name, sentence_of(fault), session.last_words) from fault

    def _meant(self, fault: MCPError, session: Session, record: http.Record) -> Exception:
        """Return what an error of the SDK says of the call."""
        name, pipes = session.settings.name, session.pipes
        if record.unsent:
            session.retire()
            return NotReached(name, record.unsent)
        if record.too_much or (pipes is not None and pipes.too_much):
            session.retire()
            return TooMuch(
                name, f"it sent {pipes.too_much if pipes else 'too long a response'}", session.last_words
            )
        if record.status == 404:
            session.retire()
            return NotReached(name, "it no longer knows the session (HTTP 404).")
        if record.status in http.REJECTED:
            return ServerRefused(f"The server {name} refused the call (HTTP {record.status}).")
        if record.status or fault.code in UNSURE:
            session.retire()
            status = f"HTTP {record.status}" if record.status else ""
            return CutOff(name, status, session.last_words)
        return ServerRefused(f"{name}: {sentence_of(fault)}")


async def _listed(client: Client) -> tuple[Definition, ...]:
    """Return all that a server offers, sorted by name. Its own tools hide ours of the same name."""
    found = {one.name: one for one in (*await _extras(client), *await _tools(client))}
    return tuple(found[name] for name in sorted(found))


async def _extras(client: Client) -> list[Definition]:
    """Return our tools that read resources and prompts, where the server has any."""
    offered = client.server_capabilities
    extras: list[Definition] = []
    if offered.resources is not None and (await _has_resources(client) or await _has_templates(client)):
        extras += RESOURCES
    if offered.prompts is not None and (await client.list_prompts()).prompts:
        extras += PROMPTS
    return extras


async def _has_resources(client: Client) -> bool:
    return bool((await client.list_resources()).resources)


async def _has_templates(client: Client) -> bool:
    try:
        return bool((await client.list_resource_templates()).resource_templates)
    except MCPError:  # not every server with resources knows of templates
        return False


async def _tools(client: Client) -> tuple[Definition, ...]:
    """Return the server's own tools, at most `MOST_TOOLS`."""
    found: list[Definition] = []
    cursor: str | None = None
    while client.server_capabilities.tools is not None and len(found) < MOST_TOOLS:
        page = await client.list_tools(cursor=cursor)
        found += map(_definition_of, page.tools)
        cursor = page.next_cursor
        if not cursor:
            break
    return tuple(found[:MOST_TOOLS])


def _definition_of(tool: mcp_types.Tool) -> Definition:
    hints = (
        tool.annotations.model_dump(mode="json", by_alias=True, exclude_none=True) if tool.annotations else {}
    )
    return Definition(
        name=tool.name,
        title=tool.title or "",
        description=tool.description or "",
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        hints=hints,
    )


class _Loop:
    """A thread with an event loop, begun with the first call in this process."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    @property
    def is_running(self) -> bool:
        """Return True if it has begun in this process."""
        return self._loop is not None and self._pid == os.getpid()

    def there(self) -> asyncio.AbstractEventLoop:
        """Return the loop; begin it if this process has none."""
        with self._guard:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True).start()
                atexit.register(close_all)
            return self._loop


_loop = _Loop()
_sessions = Sessions()


def _run(work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    """Return what the coroutine returns in the loop's thread; it keeps its own time."""
    return asyncio.run_coroutine_threadsafe(work(), _loop.there()).result(timeout=seconds + CLOSE_S)
