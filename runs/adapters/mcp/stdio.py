"""Carries messages to and from a server process: lines of JSON, with caps on what it may send."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types
from anyio.abc import Process
from mcp.shared.message import SessionMessage

from runs.adapters.mcp.faults import LAST_WORDS
from runs.adapters.mcp.settings import ServerSettings

LAUNCHER = Path(__file__).with_name("launcher.py")

MOST_BYTES = 8 * 1024 * 1024
"""Of one message."""

MOST_NOTICES = 10_000
"""Messages in a row that answer nothing."""

POLITE_S = 2.0
"""Seconds in which a server may end by itself once nobody speaks to it any more."""

FIRM_S = 5.0


class Pipes:
    """The pipes of one server process, as a transport of the SDK."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.too_much = ""
        """What it sent too much of; empty where it keeps to the caps."""
        self.last_words = ""
        self.ended = anyio.Event()
        """Set once the server has closed its output: no call reaches it any more."""
        self._unanswered = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start the server; end it, and all that it has started, at the end."""
        self._settings.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *self._settings.command],
            env=self._settings.environment(os.environ),
            cwd=self._settings.folder,
            start_new_session=True,
        )
        received, inbox = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outbox, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, process, received)
            tasks.start_soon(self._write, process, to_send)
            tasks.start_soon(self._listen, process)
            try:
                yield inbox, outbox
            finally:
                with anyio.CancelScope(shield=True):
                    await _end(process)
                    for stream in (inbox, outbox, received, to_send):
                        await stream.aclose()
                tasks.cancel_scope.cancel()

    async def _read(self, process: Process, received: Any) -> None:
        assert process.stdout is not None
        rest = bytearray()
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            async with received:
                async for chunk in process.stdout:
                    rest += chunk
                    *lines, tail = rest.split(b"\n") if b"\n" in chunk else (rest,)
                    rest = bytearray(tail)
                    if len(rest) > MOST_BYTES or any(len(line) > MOST_BYTES for line in lines):
                        self.too_much = f"a message of more than {MOST_BYTES // 1024 // 1024} MB"
                    for line in lines:
                        if not self.too_much and (message := self._message(line)) is not None:
                            await received.send(message)
                    if self.too_much:
                        break
                self.ended.set()
        self.ended.set()

    def _message(self, line: bytearray) -> SessionMessage | None:
        """Return the message in a line; None where it holds none, as servers print other things too."""
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(bytes(line), by_name=False)
        except ValueError:
            self._count()
            return None
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            self._unanswered = 0
        else:
            self._count()
        return SessionMessage(message)

    def _count(self) -> None:
        self._unanswered += 1
        if self._unanswered > MOST_NOTICES:
            self.too_much = f"more than {MOST_NOTICES:,} notices without an answer"

    async def _write(self, process: Process, to_send: Any) -> None:
        assert process.stdin is not None
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async with to_send:
                async for sent in to_send:
                    text = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.stdin.send(text.encode() + b"\n")

    async def _listen(self, process: Process) -> None:
        """Keep the end of what the server says on stderr."""
        assert process.stderr is not None
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            async for chunk in process.stderr:
                self.last_words = (self.last_words + chunk.decode("utf-8", "replace"))[-LAST_WORDS:]


async def _end(process: Process) -> None:
    """Close the server's input, then have the launcher end it with all its children, then the launcher."""
    assert process.stdin is not None
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    for deed, seconds in ((lambda: None, POLITE_S), (process.terminate, FIRM_S), (process.kill, FIRM_S)):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                deed()
            with anyio.move_on_after(seconds):
                await _gone(process)
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stream.aclose()
    pipes = getattr(getattr(process, "_process", None), "_transport", None)
    if pipes is not None:  # asyncio's own, which keeps a pipe open that was not read to its end
        pipes.close()


async def _gone(process: Process) -> None:
    """Wait until the launcher has ended; its pipes may be held open by others."""
    while process.returncode is None:
        await anyio.sleep(0.02)
