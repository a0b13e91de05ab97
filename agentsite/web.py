"""The web server: Daphne reads a request's body to its end before a refusal; this one refuses first.

`python -m agentsite.web` takes Daphne's own arguments.
"""

from __future__ import annotations

import logging
import os

import daphne.server  # noqa: F401  (the first of Twisted: it chooses the reactor)
from daphne import http_protocol
from daphne.cli import CommandLineInterface
from django.conf import settings
from django.urls import reverse

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "agentsite.settings")

LINGER_S = 5.0
"""Seconds in which a refused client may go on sending: a client cut off at once may not read the answer."""

MARGIN = 2**20
"""Bytes above the largest form, for which Django has the better page."""

log = logging.getLogger("agentsite.refusals")  # needs Django set up


class Request(http_protocol.WebRequest):
    """A request whose body may be refused as soon as its headers have come."""

    refused = False

    def gotLength(self, length: int | None) -> None:
        """Keep the body, or answer without it."""
        answer = self.answer_to_body(length)
        super().gotLength(0 if answer else length)
        if answer:
            self.refuse(*answer)

    def answer_to_body(self, length: int | None) -> tuple[str, str, str] | None:
        """Return status, header and sentence for a body that is refused; None for one that is read."""
        if length is None:
            return "411 Length Required", "", "The length of a body must be sent first (Content-Length)."
        if length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE + MARGIN:
            most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2**20
            return "413 Content Too Large", "", f"A form may have at most {most} MB."
        if length > settings.ANONYMOUS_BODY_BYTES and not self.may_be_signed_in():
            way = f"Location: {reverse(settings.LOGIN_URL)}?unsent=1\r\n"
            return "302 Found", way, "Sign in first."
        return None

    def may_be_signed_in(self) -> bool:
        """Return True if a session of this site is named; Django checks it before parsing anything."""
        from agentsite.sessions import is_genuine

        key = self.received_cookies.get(settings.SESSION_COOKIE_NAME.encode(), b"")
        return is_genuine(key.decode("latin-1"))

    def refuse(self, status: str, header: str, sentence: str) -> None:
        """Answer at once; the body is thrown away as it comes, for a moment."""
        self.refused = True
        self.requestHeaders.removeHeader(b"Expect")
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n{header}"
        )
        body = f"{sentence} Nothing was done.\n"
        self.channel.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self.channel.callLater(LINGER_S, self.channel.transport.abortConnection)
        log.warning("Refused a body before it was read: %s", sentence)

    def handleContentChunk(self, data: bytes) -> None:
        """Keep a part of the body, unless it was refused."""
        if not self.refused:
            super().handleContentChunk(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Hand the request on, unless it has been answered."""
        if self.refused:
            self.channel.transport.loseConnection()
        else:
            super().requestReceived(command, path, version)


def main() -> None:
    """Serve until a signal."""
    http_protocol.WebRequest = (
        Request  # Daphne's factory offers no other way to name the kind of its requests
    )
    CommandLineInterface.entrypoint()


if __name__ == "__main__":
    main()
