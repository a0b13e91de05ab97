"""A small web on loopback: pages by host and path, reached under any name through a table of addresses."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpcore2

from runs.adapters.wire import NameUnknown, Net
from tests.threaded import OnThread

PUBLIC_ADDRESS = "93.184.216.34"


@dataclass(frozen=True)
class Answer:
    """What a page answers."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)


@dataclass(frozen=True)
class Dripping:
    """A head that never ends, a byte at a time."""


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    method: str
    headers: Mapping[str, str]
    body: bytes


class Web(OnThread):
    """The server of all pages; `asked` lists "host path" in order."""

    def __init__(self, pages: Mapping[str, Answer | Dripping], tls: ssl.SSLContext | None = None) -> None:
        self.pages = pages
        self.asked: list[str] = []
        self.received: list[Received] = []
        self.cookies: list[str] = []
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handling(self))
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        super().__init__(server)


def _handling(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handling(_Handling):
        web_of = web

    return Handling


class _Handling(BaseHTTPRequestHandler):
    web_of: Web

    def log_message(self, format: str, *args: object) -> None:
        """Tests look at `asked`."""

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        sent = Received(self.command, dict(self.headers), self.rfile.read(length))
        self.web_of.received.append(sent)
        where = f"{self.headers['Host']} {self.path}"
        self.web_of.asked.append(where)
        self.web_of.cookies += self.headers.get_all("Cookie", [])
        answer = self.web_of.pages.get(where, Answer(b"not here", 404))
        try:
            self._answer(answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self, answer: Answer | Dripping) -> None:
        if isinstance(answer, Dripping):
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.web_of.closing.wait(0.02):
                self.wfile.write(b"x")
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


class TableNet(Net):
    """Names by a table; every connection ends at the web on loopback, and is remembered as it was meant."""

    def __init__(self, web: Web, names: Mapping[str, Sequence[str]]) -> None:
        self._web = web
        self._names = names
        self.resolved: list[str] = []
        self.connected: list[tuple[str, int]] = []

    def addresses(self, host: str, port: int, wait_s: float) -> Sequence[str]:
        """The addresses that the table has."""
        self.resolved.append(host)
        if host not in self._names:
            raise NameUnknown(host)
        return self._names[host]

    def connect(self, address: str, port: int, wait_s: float) -> httpcore2.NetworkStream:
        """A stream to the web, whatever the address."""
        self.connected.append((address, port))
        return super().connect("127.0.0.1", self._web.port, wait_s)
