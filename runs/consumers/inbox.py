"""The inbox's socket: how many decisions wait for this person, for the badge and the title of every page."""

from __future__ import annotations

import json

from django.contrib.auth.models import AnonymousUser

from runs.consumers.admission import person_of
from runs.consumers.messages import Ack, Hello, Ping, Said
from runs.consumers.socket import RECHECK_SECONDS, Socket
from runs.feeds import Person, read, shared_inbox


class InboxConsumer(Socket):
    """How many decisions wait for this person: for the badge and the title of every page."""

    def __init__(self) -> None:
        super().__init__()
        self.person: Person = AnonymousUser()
        self.inbox = shared_inbox()
        self.count: int | None = None

    async def admit(self) -> bool:
        """Whoever is signed in."""
        self.person = await read(person_of, self.session_key)
        if not self.person.is_authenticated:
            return False
        self.inbox.join(self)
        self.wake()
        return True

    def leave(self) -> None:
        """Leave the inbox, if it was joined."""
        self.inbox.leave(self)

    async def said(self, message: Said) -> None:
        """A ping is all that is expected; a hello is answered with the count again."""
        match message:
            case Ping():
                await self.send_text(json.dumps({"type": "pong"}))
            case Hello():
                self.count = None
                self.wake()
            case Ack():
                pass

    def patience(self) -> float:
        """Whoever looks wakes."""
        return RECHECK_SECONDS

    async def deliver(self) -> None:
        """The count, if it is another one."""
        count = await self.inbox.count(self.person)
        if count != self.count:
            self.count = count
            await self.send_text(json.dumps({"type": "inbox", "count": count}))
