"""HTTP over sockets that keep one deadline: every wait ends by it, however slowly the far side sends.

Nothing is followed or kept: no redirects, no cookies, no proxies of the environment, no connection for later.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpcore2

CONNECT_S = 10.0


class Deadline:
    """A time by which all waiting ends."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """Return the seconds left; raises `DeadlinePassed` if there are none."""
        left = self._end - self._clock()
        if left <= 0:
            raise DeadlinePassed(self.seconds)
        return left

    def within(self, seconds: float | None) -> float:
        """Return the shorter of `seconds` and the time left."""
        left = self.left()
        return left if seconds is None else min(left, seconds)


class DeadlinePassed(TimeoutError):
    """The whole exchange exceeded its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"It took longer than {seconds:g} seconds.")


class FarSideSilent(TimeoutError):
    """The far side was silent for too long."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"{host} does not answer in time.")


class NameUnknown(ConnectionError):
    """The name of the host has no address."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"The name {host} can't be resolved.")


class Unreachable(ConnectionError):
    """No connection could be made."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"{host} can't be reached.")


class BrokenOff(ConnectionError):
    """The connection ended, or spoke no HTTP, before the answer was whole."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(f"{host} broke off its answer.")


class CertificateRefused(ConnectionError):
    """The far side could not prove its name."""

    def __init__(self, host: str, why: str) -> None:
        self.host, self.why = host, why
        super().__init__(f"The certificate of {host} is not trusted: {why}.")


class Net:
    """The machine's own network: names and connections."""

    def addresses(self, host: str, port: int, wait_s: float) -> Sequence[str]:
        """Return the addresses of `host`; the system's resolver knows no timeout, so it is left behind when late."""
        found: queue.Queue[list[str] | OSError] = queue.Queue()
        threading.Thread(target=_resolve, args=(host, port, found), daemon=True).start()
        try:
            answer = found.get(timeout=wait_s)
        except queue.Empty:
            raise FarSideSilent(host) from None
        if isinstance(answer, OSError) or not answer:
            raise NameUnknown(host) from None
        return answer

    def connect(self, address: str, port: int, wait_s: float) -> httpcore2.NetworkStream:
        """Open a stream to one address."""
        return httpcore2.SyncBackend().connect_tcp(address, port, timeout=wait_s)


def _resolve(host: str, port: int, found: queue.Queue[list[str] | OSError]) -> None:
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found.put(list(dict.fromkeys(str(row[4][0]) for row in rows)))
    except (OSError, UnicodeError) as error:
        found.put(error if isinstance(error, OSError) else OSError(str(error)))


@dataclass(frozen=True)
class Call:
    """One HTTP request. `host` is ASCII, `target` the path with its query."""

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"


class Reply:
    """The answer's head, and its body in pieces as they come."""

    def __init__(self, host: str, response: httpcore2.Response) -> None:
        self._host = host
        self._response = response
        self.status: int = response.status
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
        }

    def pieces(self) -> Iterator[bytes]:
        """Yield the raw body; every error on the way is a TimeoutError or a ConnectionError."""
        with _translated_errors(self._host):
            yield from self._response.iter_stream()

    def start(self, most: int) -> bytes:
        """Return the first `most` bytes of the body."""
        body = bytearray()
        for piece in self.pieces():
            body += piece
            if len(body) >= most:
                break
        return bytes(body[:most])


Admit = Callable[[str, Sequence[str]], None]
"""Given a host and its addresses, raises unless a connection to them is allowed."""


def anywhere(host: str, addresses: Sequence[str]) -> None:
    """Admit every address: for servers named by an administrator."""


@contextmanager
def exchange(
    call: Call, deadline: Deadline, tls: ssl.SSLContext, net: Net, admit: Admit, read_s: float
) -> Iterator[Reply]:
    """Send `call` and yield the reply; the connection ends with the block. `read_s` bounds one silence."""
    timeouts = {"connect": CONNECT_S, "read": read_s, "write": read_s, "pool": CONNECT_S}
    url = httpcore2.URL(
        scheme=call.scheme.encode(),
        host=call.host.encode("ascii"),
        port=call.port,
        target=call.target.encode("ascii"),
    )
    backend = _DeadlineBackend(deadline, net, admit)
    headers = [("Host", call.authority), *call.headers]
    with (
        httpcore2.ConnectionPool(ssl_context=tls, network_backend=backend) as pool,
        _translated_errors(call.host),
    ):
        stream = pool.stream(
            call.method,
            url,
            headers=[(name.encode("ascii"), value.encode("ascii")) for name, value in headers],
            content=call.body or None,
            extensions={"timeout": timeouts},
        )
        with stream as response:
            yield Reply(call.host, response)


@contextmanager
def _translated_errors(host: str) -> Iterator[None]:
    try:
        yield
    except httpcore2.ConnectError as error:
        why = error.__cause__ or error.__context__
        if isinstance(why, ssl.SSLCertVerificationError):
            raise CertificateRefused(host, why.verify_message) from None
        raise Unreachable(host) from None
    except httpcore2.TimeoutException:
        raise FarSideSilent(host) from None
    except (httpcore2.NetworkError, httpcore2.ProtocolError):
        raise BrokenOff(host) from None


class _DeadlineBackend(httpcore2.NetworkBackend):
    """A backend that resolves a name, has its addresses admitted, and connects only to one of these."""

    def __init__(self, deadline: Deadline, net: Net, admit: Admit) -> None:
        self._deadline = deadline
        self._net = net
        self._admit = admit

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first of the host's addresses that accepts."""
        last: Exception = Unreachable(host)
        addresses = self._net.addresses(host, port, self._deadline.within(timeout))
        self._admit(host, addresses)
        for address in addresses:
            try:
                stream = self._net.connect(address, port, self._deadline.within(timeout))
                return _DeadlineStream(stream, self._deadline)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise last


class _DeadlineStream(httpcore2.NetworkStream):
    """A stream whose waits all end by the deadline."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return self._stream.read(max_bytes, self._deadline.within(timeout))
        except httpcore2.ReadTimeout:
            self._deadline.left()
            raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.within(timeout))

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.within(timeout))
        return _DeadlineStream(stream, self._deadline)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


@cache
def trusted() -> ssl.SSLContext:
    """Return the system's certificates (SSL_CERT_FILE is honoured), or certifi's if the system has none."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or paths.capath:
        return ssl.create_default_context()
    import certifi

    return ssl.create_default_context(cafile=certifi.where())
