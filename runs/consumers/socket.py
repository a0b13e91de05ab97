"""What all sockets do: admit, ask again who it is, listen within limits, send, close."""

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
"""In place of what is larger: the page fetches what it lacks by itself."""
MESSAGES_AT_ONCE: Final = 400
MESSAGES_PER_SECOND: Final = 100.0
MISTAKES_ALLOWED: Final = 20
RECHECK_SECONDS: Final = 25.0
"""Who may no longer see the run is gone at once where a ring tells so, and else after at most 30 s."""
RETRY_SECONDS: Final = 2.0

# Why a socket is closed. An application may send no code but 1000 and 3000 to 4999; those from 4000 are its own.
# static/js/line.js has the same codes, and what a page does about each.
NOT_ALLOWED: Final = 4403
"""Signed out, or may no longer see this. The page says so, and asks again: a sign-in in another tab lets it in."""
GONE: Final = 4404
"""The run is not there any more. The page is over."""
TOO_SLOW: Final = 4408
"""The page has acknowledged nothing for a while. It connects again, and gets what it lacks."""
ANOTHER_LIFE: Final = 4409
"""The site was restored after the page was painted: its rows may never have been, and those that are may be others.
The page is over."""
TOO_MUCH: Final = 4429
"""The page talks too much, or makes no sense. It connects again, after the longest pause."""
FAILED: Final = 4500
"""Something here failed; the log says what. The page connects again, after the longest pause."""

log = logging.getLogger(__name__)


class Socket(AsyncConsumer):
    """What all sockets do: admit, ask again who it is, listen within limits, send, close."""

    def __init__(self) -> None:
        self.session_key: str | None = None
        self.topic = 0
        """Of the person whose socket it is; 0 where nobody is signed in."""
        self.closed = False
        self.bell = asyncio.Event()
        self.sending: asyncio.Task[None] | None = None
        self.recheck_at = 0.0
        self.mistakes = 0
        self.allowance = float(MESSAGES_AT_ONCE)
        self.heard_at = now()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """The socket's life. Whatever ends it, nothing of it stays."""
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
        """Nothing here uses the loop's own database connection, so there is none to look after."""
        match message["type"]:
            case "websocket.connect":
                await self.connected()
            case "websocket.receive":
                await self.received(message.get("text"))
            case "websocket.disconnect":
                raise StopConsumer

    # What the kinds of socket add

    async def admit(self) -> bool:
        """Whether the session may have this socket (still)."""
        raise NotImplementedError

    def leave(self) -> None:
        """Stop listening."""
        raise NotImplementedError

    async def said(self, message: Said) -> None:
        """The page has said something."""
        raise NotImplementedError

    async def deliver(self) -> None:
        """Send what is due."""
        raise NotImplementedError

    def patience(self) -> float:
        """Seconds after which `deliver` is wanted even if nobody wakes the socket."""
        raise NotImplementedError

    # What they share

    def wake(self) -> None:
        """Something may be due."""
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

    # What the hub says of the person

    def rung(self, seq: int) -> None:
        """Their session, account or rights have changed."""
        self.recheck_at = 0.0
        self.wake()

    def heard(self, node: str, text: str) -> None:
        """Nothing is written about a person."""

    def missed(self) -> None:
        """A change may have been missed."""
        self.rung(0)

    async def received(self, text: str | None) -> None:
        """A message from the page; what can't be understood is answered with a sentence."""
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
        """Say what was wrong with a message."""
        self.mistakes += 1
        await self.send_text(json.dumps({"type": "error", "message": sentence}))

    async def send_text(self, text: str) -> None:
        """To the page, unless the socket is closed. `text` is JSON, one byte a character."""
        if self.closed:
            return
        try:
            await self.send({"type": "websocket.send", "text": text if len(text) <= LARGEST_SENT else FETCH})
        except Exception as why:  # each server has its own way to say that the page has gone
            log.info("A page has gone: %r", why)
            self.closed = True
            # Where it has not, it shall learn that nothing comes any more.
            with contextlib.suppress(Exception):
                await self.send({"type": "websocket.close", "code": FAILED})

    async def close(self, code: int) -> None:
        """Once."""
        if not self.closed:
            self.closed = True
            await self.send({"type": "websocket.close", "code": code})

    async def deliver_again_and_again(self) -> None:
        """Until the socket is closed: wait, ask who it is if that is due, send what is due."""
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
                    self.rung(0)  # a look that was due may have failed
        except Gone:
            await self.close(GONE)
        except Exception:
            log.exception("A socket failed; the page will connect again.")
            await self.close(FAILED)

    async def recheck(self) -> None:
        """Close on whoever has signed out or may no longer see this."""
        self.put_off_recheck()
        if not await self.admit():
            await self.close(NOT_ALLOWED)

    def put_off_recheck(self) -> None:
        """Until its time, or a ring. Called before the look: what changes during it is looked at again."""
        self.recheck_at = now() + RECHECK_SECONDS * random.uniform(0.8, 1.2)


async def nowhere(scope: Any, receive: Any, send: Any) -> None:
    """A socket's address that there is not."""
    await receive()
    await send({"type": "websocket.close", "code": GONE})


def now() -> float:
    """The event loop's clock, which never steps back."""
    return asyncio.get_running_loop().time()


async def wait_for(bell: asyncio.Event, seconds: float) -> None:
    """Until it rings, at most so long; the bell is silent again afterwards."""
    try:
        async with asyncio.timeout(max(0.0, seconds)):
            await bell.wait()
    except TimeoutError:
        pass
    bell.clear()
