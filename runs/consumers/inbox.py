"""The inbox's socket, on every page: the number of decisions for this person, and the halt banner."""

from __future__ import annotations

import json
from dataclasses import asdict

from django.contrib.auth.models import AnonymousUser

from runs.consumers.admission import person_of
from runs.consumers.messages import Ack, Hello, Ping, Said
from runs.consumers.socket import RECHECK_SECONDS, Socket
from runs.feeds import Person, Told, read, shared_inbox


class InboxConsumer(Socket):
    """The number of decisions waiting for this person, for the badge and the title; and the banner of a halted site."""

    def __init__(self) -> None:
        super().__init__()
        self.person: Person = AnonymousUser()
        self.inbox = shared_inbox()
        self.told: Told | None = None

    async def admit(self) -> bool:
        """Return True for signed-in people."""
        self.person = await read(person_of, self.session_key)
        if not self.person.is_authenticated:
            return False
        self.inbox.join(self, self.person)
        self.wake()
        return True

    def leave(self) -> None:
        """Leave the inbox, if it was joined."""
        self.inbox.leave(self)

    async def said(self, message: Said) -> None:
        """Answer a ping with nothing, and a hello with all notices again."""
        match message:
            case Ping():
                await self.send_text(json.dumps({"type": "pong"}))
            case Hello():
                self.told = None
                self.wake()
            case Ack():
                pass

    def patience(self) -> float:
        """Return the recheck interval: changes wake the socket."""
        return RECHECK_SECONDS

    async def deliver(self) -> None:
        """Send the notices, if they have changed."""
        told = await self.inbox.told(self.person)
        if told != self.told:
            self.told = told
            await self.send_text(json.dumps({"type": "inbox", **asdict(told)}))
