"""A small mail server on loopback: it keeps what it accepts, refuses what it is told to, or breaks off."""

from __future__ import annotations

import socketserver

from tests.threaded import OnThread


class MailServer(OnThread):
    """`accepted` lists the messages; `says` replaces the answer to a command, and None there breaks off."""

    def __init__(self, **says: str | None) -> None:
        self.accepted: list[str] = []
        self.says = says
        server = self

        class Session(_Session):
            mail = server

        super().__init__(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session))


class _Session(socketserver.StreamRequestHandler):
    mail: MailServer

    def handle(self) -> None:
        self._say("220 mail.test")
        while line := self.rfile.readline():
            command = line.split()[0].decode().upper() if line.split() else ""
            answer = self.mail.says.get(command, "354 go on" if command == "DATA" else "250 ok")
            if answer is None:
                return
            self._say(answer)
            if answer.startswith("354") and not self._take():
                return
            if command == "QUIT":
                return

    def _take(self) -> bool:
        """Keep the message; return whether the session goes on."""
        lines = iter(self.rfile.readline, b".\r\n")
        message = b"".join(lines).decode()
        answer = self.mail.says.get("END", "250 taken")
        if answer is None:
            return False
        if answer.startswith("250"):
            self.mail.accepted.append(message)
        self._say(answer)
        return True

    def _say(self, answer: str) -> None:
        self.wfile.write(f"{answer}\r\n".encode())
