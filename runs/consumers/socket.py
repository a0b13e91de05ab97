"""The common part of all sockets: admit, recheck the person, listen within limits, send, close."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from typing import Any, Final

from channels.consumer import AsyncConsumer
from channels.exceptions import StopConsumer
from pydantic import ValidationError

from runs.consumers.messages import SAID, Said
from runs.feeds import DATABASE_AWAY, Gone
from runs.live import topic_of
from runs.live.listening import hub
from runs.live.messages import LARGEST_SENT

LONGEST_MESSAGE: Final = 4096
FETCH: Final = json.dumps({"type": "fetch"})
"""In place of a larger message: the page fetches the rest by itself."""
MESSAGES_AT_ONCE: Final = 400
MESSAGES_PER_SECOND: Final = 100.0
MISTAKES_ALLOWED: Final = 20
RECHECK_SECONDS: Final = 25.0
"""Seconds; a person without the right is cut off at once after a ring, and else after at most 30 s."""
RETRY_SECONDS: Final = 2.0

# Codes for closing a socket. An application may send no code but 1000 and 3000 to 4999; those from 4000 are its own.
# static/js/line.js has the same codes, and the page's reaction to each.
NOT_ALLOWED: Final = 4403
"""Signed out, or without the right to see this. The page says so, and tries again: a sign-in in another tab
lets it in."""
GONE: Final = 4404
"""The run no longer exists. The page is over."""
TOO_SLOW: Final = 4408
"""The page has acknowledged nothing for a while. It connects again, and gets what it lacks."""
ANOTHER_LIFE: Final = 4409
"""The site was restored after the page was painted: its steps may never have existed, or may differ. The page
is over."""
TOO_MUCH: Final = 4429
"""The page sends too much, or nonsense. It connects again, after the longest pause."""
FAILED: Final = 4500
"""An error here; the log has it. The page connects again, after the longest pause."""

log = logging.getLogger(__name__)


class Socket(AsyncConsumer):
    """The common part of all sockets: admit, recheck the person, listen within limits, send, close."""

    def __init__(self) -> None:
        self.session_key: str | None = None
        self.topic = 0
        """Of the person behind the socket; 0 without a sign-in."""
        self.closed = False
        self.bell = asyncio.Event()
        self.sending: asyncio.Task[None] | None = None
        self.recheck_at = 0.0
        self.mistakes = 0
        self.allowance = float(MESSAGES_AT_ONCE)
        self.heard_at = now()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the socket to its end; nothing of it stays after any end."""
        self.scope, self.base_send = scope, send
        try:
            while True:  # there is no channel layer to listen to: the hub wakes `deliver_again_and_again`
                await self.dispatch(await receive())
        except StopConsumer:
            pass
        finally:
            self.closed = True
            if self.sending is not None:
                self.sending.cancel()
            if self.topic:
                self.hub.leave(self.topic, self)
            self.leave()

    async def dispatch(self, message: dict[str, Any]) -> None:
        """Dispatch without the loop's own database connection, which is not used here."""
        match message["type"]:
            case "websocket.connect":
                await self.connected()
            case "websocket.receive":
                await self.received(message.get("text"))
            case "websocket.disconnect":
                raise StopConsumer

    # Parts of each kind of socket

    async def admit(self) -> bool:
        """Return True if the session may (still) have this socket."""
        raise NotImplementedError

    def leave(self) -> None:
        """Stop listening."""
        raise NotImplementedError

    async def said(self, message: Said) -> None:
        """Handle a message from the page."""
        raise NotImplementedError

    async def deliver(self) -> None:
        """Send the pending messages."""
        raise NotImplementedError

    def patience(self) -> float:
        """Return the seconds after which `deliver` is wanted even without a wake-up."""
        raise NotImplementedError

    # Shared parts

    def wake(self) -> None:
        """Check for pending messages soon."""
        self.bell.set()

    async def connected(self) -> None:
        """Let the person in, or not; the origin has been checked already."""
        self.session_key = getattr(self.scope.get("session"), "session_key", None)
        if person := getattr(self.scope.get("user"), "pk", None):
            self.topic = topic_of(person)
            self.hub = hub()
            # Before the right is looked up, so that no change of it is missed.
            self.hub.join(self.topic, self)
        self.put_off_recheck()
        try:
            admitted = await self.admit()
        except DATABASE_AWAY as why:
            log.warning("A socket was refused because the database can't be read (%s).", why)
            admitted = False
        if not admitted:
            await self.close(NOT_ALLOWED)
            return
        await self.send({"type": "websocket.accept"})
        self.sending = asyncio.create_task(self.deliver_again_and_again())

    # Calls by the hub about the person

    def rung(self, seq: int) -> None:
        """Recheck: the person's session, account or rights have changed."""
        self.recheck_at = 0.0
        self.wake()

    def heard(self, node: str, text: str) -> None:
        """Do nothing: no model writes about a person."""

    def missed(self) -> None:
        """Recheck: a change may have been missed."""
        self.rung(0)

    async def received(self, text: str | None) -> None:
        """Read a message from the page; answer an unreadable one with a sentence."""
        if self.closed:
            return
        self.allowance = min(MESSAGES_AT_ONCE, self.allowance + (now() - self.heard_at) * MESSAGES_PER_SECOND)
        self.heard_at = now()
        self.allowance -= 1
        if self.allowance < 0 or self.mistakes > MISTAKES_ALLOWED:
            await self.close(TOO_MUCH)
            return
        if text is None or len(text) > LONGEST_MESSAGE:
            await self.refuse(f"Send JSON text of at most {LONGEST_MESSAGE} characters.")
            return
        try:
            message = SAID.validate_json(text)
        except ValidationError as why:
            await self.refuse(f"This message was not understood: {why.errors()[0]['msg']}.")
            return
        await self.said(message)

    async def refuse(self, sentence: str) -> None:
        """Send the fault of a message."""
        self.mistakes += 1
        await self.send_text(json.dumps({"type": "error", "message": sentence}))

    async def send_text(self, text: str) -> None:
        """Send to the page, unless the socket is closed. `text` is JSON, one byte a character."""
        if self.closed:
            return
        try:
            await self.send({"type": "websocket.send", "text": text if len(text) <= LARGEST_SENT else FETCH})
        except Exception as why:  # each server reports a gone page in its own way
            log.info("A page has gone: %r", why)
            self.closed = True
            # If it has not gone, it must learn that nothing comes any more.
            with contextlib.suppress(Exception):
                await self.send({"type": "websocket.close", "code": FAILED})

    async def close(self, code: int) -> None:
        """Close, once."""
        if not self.closed:
            self.closed = True
            await self.send({"type": "websocket.close", "code": code})

    async def deliver_again_and_again(self) -> None:
        """Until the socket is closed: wait, recheck if due, send pending messages."""
        try:
            while not self.closed:
                await wait_for(self.bell, min(self.patience(), self.recheck_at - now()))
                try:
                    if now() >= self.recheck_at:
                        await self.recheck()
                    if not self.closed:
                        await self.deliver()
                except DATABASE_AWAY as why:
                    log.warning("Viewers wait: the database can't be read (%s).", why)
                    await asyncio.sleep(RETRY_SECONDS)
                    self.rung(0)  # a due look may have failed
        except Gone:
            await self.close(GONE)
        except Exception:
            log.exception("A socket failed; the page will connect again.")
            await self.close(FAILED)

    async def recheck(self) -> None:
        """Close for people who have signed out or may no longer see this."""
        self.put_off_recheck()
        if not await self.admit():
            await self.close(NOT_ALLOWED)

    def put_off_recheck(self) -> None:
        """Put off the next recheck until its time, or a ring. Called before the look, so changes during it count."""
        self.recheck_at = now() + RECHECK_SECONDS * random.uniform(0.8, 1.2)


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """Refuse an unknown socket address."""
    await receive()
    await send({"type": "websocket.close", "code": GONE})


def now() -> float:
    """Return the event loop's clock, which never steps back."""
    return asyncio.get_running_loop().time()


async def wait_for(bell: asyncio.Event, seconds: float) -> None:
    """Wait until the bell rings, at most so many seconds; it is silent again afterwards."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await bell.wait()
    except TimeoutError:
        pass
    bell.clear()
