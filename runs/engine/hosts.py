"""Host names in one spelling, and patterns of them.

A host is spelled as it is connected to: ASCII, lower case, no final dot, an address in its usual form. The port stays
unless it is the scheme's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

ANY = "*"
"""The pattern of every host."""

MOST_HOSTS = 200
"""The largest number of hosts that a run or the site may name."""

MOST_NAME = 260
"""Characters of a host with its port."""

_OWN_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_FORM = "a host like example.com, *.example.com or example.com:8443, or * for any host"


def host_of(address: object) -> str:
    """Return the host of a URL or a bare host; empty if unknown."""
    if not isinstance(address, str) or not address.isprintable() or " " in address or "\\" in address:
        return ""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        name, port = ascii_name(parts.hostname or ""), parts.port
    except ValueError:
        return ""
    name = _in_one_spelling(name.removesuffix("."))
    if not name:
        return ""
    host = f"[{name}]" if ":" in name else name
    return host if port is None or port == _OWN_PORTS.get(parts.scheme) else f"{host}:{port}"


def ascii_name(name: str) -> str:
    """Return the name as a DNS query spells it; raises ValueError if it has no such form."""
    return (name if name.isascii() else name.encode("idna").decode("ascii")).lower()


def is_named(host: str, patterns: Iterable[str]) -> bool:
    """Return True if a pattern matches the host. Only `*` matches an unknown host."""
    return any(pattern == ANY or (host and _matches(host, pattern)) for pattern in patterns)


def pattern_of(text: str) -> str:
    """Return the pattern in its one spelling; raises ValueError with a sentence if it is none."""
    text = text.strip()
    if text == ANY:
        return ANY
    wild = "*." if text.startswith("*.") else ""
    bare = text.removeprefix(wild)
    host = "" if re.search(r"[/?#@*]", bare) or len(text) > MOST_NAME else host_of(bare)
    if not host or (wild and (host.startswith("[") or _ipv4(host.partition(":")[0]))):
        raise ValueError(f"{text[:80]!r} is not a host. Write {_FORM}")
    return wild + host


def _matches(host: str, pattern: str) -> bool:
    if not pattern.startswith("*."):
        return host == pattern
    return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1


def _in_one_spelling(name: str) -> str:
    """Return the name, or the address in its usual form; empty if it is neither."""
    try:
        if ":" in name:
            return str(IPv6Address(name)) if "%" not in name else ""
        return _ipv4(name) or (name if _NAME.fullmatch(name) else "")
    except ValueError:
        return ""


def _ipv4(name: str) -> str:
    """Return the dotted form of an IPv4 address in any spelling that resolvers take: 127.1, 0x7f000001."""
    parts = name.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        return ""
    *heads, last = [_number(part) for part in parts]
    if any(head > 255 for head in heads) or last >= 256 ** (4 - len(heads)):
        raise ValueError(name)
    value = last + sum(head << 8 * (3 - place) for place, head in enumerate(heads))
    return str(IPv4Address(value))


def _number(part: str) -> int:
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)
