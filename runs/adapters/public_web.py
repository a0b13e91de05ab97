"""Requests to the public web: which addresses may be asked, and a body read as text within bounds.

An address is resolved here, judged and connected to; the name serves TLS and Host.
"""

from __future__ import annotations

import re
import ssl
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

from pydantic import Field

from runs.adapters.addresses import is_public
from runs.adapters.tool import ToolError, must
from runs.engine.hosts import ascii_name

if TYPE_CHECKING:  # the web server lists tools but never contacts a host: it needs no HTTP library
    from runs.adapters.wire import Net, Reply

SILENCE_S = 10.0
MAX_URL = 2_000
MAX_BYTES = 2_000_000
"""Of the body, as sent and as decoded each."""
PORTS = (80, 443)
_URL = r"^[hH][tT][tT][pP][sS]?://([^\s\\/?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])(:(0*(80|443))?)?([/?#][^\s\\]*)?$"
"""An address as far as a pattern can tell, so that no person is asked about another one; `target_of` tells the rest."""
URL_SENTENCE = "must be an http(s) address on port 80 or 443, without a user, blanks or backslashes"

PublicUrl = Annotated[
    str, Field(min_length=1, max_length=MAX_URL, pattern=_URL, json_schema_extra=must(URL_SENTENCE))
]
"""An argument that holds such an address; the tool's own field describes it."""


class UrlRefused(ToolError):
    """An address of no public page."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"{url[:200]!r} is not contacted: {why}.")


class PageUnreadable(ToolError):
    """A body that is no text, or has an encoding that can't be bounded."""

    def __init__(self, url: str, why: str) -> None:
        self.url, self.why = url, why
        super().__init__(f"{url[:200]!r} can't be read as text: {why}.")


@dataclass(frozen=True)
class Target:
    """A permitted address: its parts, in ASCII."""

    url: str
    scheme: str
    host: str
    port: int
    path: str


def target_of(url: str) -> Target:
    """Return the parts of `url`; raises `UrlRefused` unless it is http(s) on port 80 or 443, without a user."""
    if not url.isprintable() or " " in url or "\\" in url or len(url) > MAX_URL:
        raise UrlRefused(url, "it is too long, or holds a blank, a control character or a backslash")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = ascii_name(parts.hostname or "")
    except ValueError:
        raise UrlRefused(url, "it is not written as an address") from None
    if parts.scheme not in ("http", "https"):
        raise UrlRefused(url, "only http and https are")
    if "@" in parts.netloc:
        raise UrlRefused(url, "it names a user")
    if not _HOST.fullmatch(host):
        raise UrlRefused(url, "its host is not a name")
    port = port if port is not None else 443 if parts.scheme == "https" else 80
    if port not in PORTS:
        raise UrlRefused(url, f"only the ports {PORTS[0]} and {PORTS[1]} are open")
    path = quote(parts.path or "/", safe=_SAFE) + (
        f"?{quote(parts.query, safe=_SAFE + '?')}" if parts.query else ""
    )
    return Target(url, parts.scheme, host, port, path)


_HOST = re.compile(r"[a-z0-9]([a-z0-9._-]{0,251}[a-z0-9.])?|[0-9a-f:.]{2,45}")
_SAFE = "/%:@!$&'()*+,;=~-._[]"


def admit(host: str, addresses: Sequence[str]) -> None:
    """Refuse a name with any address that is not public; only judged addresses are connected to."""
    if not all(map(is_public, addresses)):
        raise UrlRefused(host, "it belongs to a private or special network")


@dataclass(frozen=True)
class Body:
    """The text of a reply, its media type without parameters, and whether there was more."""

    media_type: str
    text: str
    cut: bool


def body_of(url: str, reply: Reply) -> Body:
    """Return the body as text; raises `PageUnreadable` where it is none."""
    media_type, _, rest = reply.headers.get("content-type", "text/plain").partition(";")
    media_type = media_type.strip().lower()
    if not _TEXT.fullmatch(media_type):
        raise PageUnreadable(url, f"it is {media_type[:60]}")
    body, cut = _bytes_of(url, reply)
    return Body(media_type, _decoded(body, rest), cut)


_TEXT = re.compile(r"text/[\w.+-]+|application/(json|xml|xhtml\+xml|javascript|yaml|[\w.-]+\+(json|xml))")


def _bytes_of(url: str, reply: Reply) -> tuple[bytes, bool]:
    """Return at most MAX_BYTES of the decoded body, and whether there was more."""
    coding = reply.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "", "gzip", "x-gzip"):
        raise PageUnreadable(url, f"its content encoding is {coding[:40]}, which was not asked for")
    unpack = _Unpacker(url).feed if "gzip" in coding else bytes
    body, sent = bytearray(), 0
    for piece in reply.pieces():
        sent += len(piece)
        body += unpack(piece)
        if len(body) > MAX_BYTES or sent > MAX_BYTES:
            return bytes(body[:MAX_BYTES]), True
    return bytes(body), False


class _Unpacker:
    """Unpacks gzip piece by piece, never more than one byte beyond MAX_BYTES at a time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def feed(self, piece: bytes) -> bytes:
        try:
            return b"" if self._stream.eof else self._stream.decompress(piece, MAX_BYTES + 1)
        except zlib.error:
            raise PageUnreadable(self._url, "its gzip encoding is damaged") from None


def _decoded(body: bytes, parameters: str) -> str:
    """Decode as UTF-8 if it is that; else by the server's charset, if it is a known plain one."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        named = re.search(r"charset\s*=\s*[\"']?([\w-]{1,20})", parameters, re.IGNORECASE)
        charset = named[1].lower() if named and _CHARSET.fullmatch(named[1].lower()) else "utf-8"
        try:
            return body.decode(charset, "replace")
        except LookupError:
            return body.decode("utf-8", "replace")


_CHARSET = re.compile(
    r"iso-8859-\d+|windows-125\d|koi8-[ru]|latin-?1|shift_jis|euc-(jp|kr)|gb(k|2312|18030)|big5|utf-16([lb]e)?"
)


def own_net() -> Net:
    """Return the machine's own network."""
    from runs.adapters.wire import Net

    return Net()


def system_certificates() -> ssl.SSLContext:
    """Return the certificates that the machine trusts."""
    from runs.adapters.wire import trusted

    return trusted()
