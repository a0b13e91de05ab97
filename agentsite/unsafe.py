"""Find unsafe values of the environment, with their remedies: the start is refused with all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import urlsplit

SHORTEST_KEY, FEWEST_LETTERS = 32, 5
"""Least characters of a secret key (128 bits as hexadecimal digits), and least different ones among them."""

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]", re.IGNORECASE)


class Settings(Protocol):
    """The settings of the environment that are checked."""

    @property
    def secret_key(self) -> str: ...
    @property
    def allowed_hosts(self) -> tuple[str, ...]: ...
    @property
    def csrf_trusted_origins(self) -> tuple[str, ...]: ...
    @property
    def redis_url(self) -> str | None: ...
    @property
    def https(self) -> bool: ...
    @property
    def debug(self) -> bool: ...


def faults_of(environment: Settings) -> Iterator[tuple[str, str]]:
    """Yield each unsafe setting with its fault and remedy, without the full stop."""
    if environment.secret_key and (why := weak_key(environment.secret_key)):
        yield "SECRET_KEY", f"{why}. Generate one, or leave it unset: then the site makes its own"
    yield from _hosts(environment)
    for origin in environment.csrf_trusted_origins:
        if why := _unsafe_origin(origin):
            yield "CSRF_TRUSTED_ORIGINS", f"{origin[:80]!r} {why}"
            break
    if environment.redis_url and (why := _unsafe_broker(environment.redis_url)):
        yield "REDIS_URL", why


def weak_key(key: str) -> str:
    """Return why a secret key can be guessed or was mangled; empty if it is a good one."""
    if key != key.strip():
        return "it begins or ends with a blank or a line break"
    if len(key) < SHORTEST_KEY:
        return f"it has {len(key)} characters, and needs at least {SHORTEST_KEY}"
    if len(set(key)) < FEWEST_LETTERS or key.startswith("django-insecure-"):
        return "it is easy to guess"
    if (key + key).find(key, 1) < len(key):
        return "it is one short text repeated"
    return ""


def is_this_machine(host: str) -> bool:
    """Return True if only this machine can reach a host of that name."""
    name = host.strip("[]").lower()
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def _hosts(environment: Settings) -> Iterator[tuple[str, str]]:
    hosts = environment.allowed_hosts
    if not hosts or any("*" in host or host.startswith(".") for host in hosts):
        yield (
            "ALLOWED_HOSTS",
            "name the hosts that this site answers to, each in full; "
            "an empty list, '*' and '.domain' let any web page in",
        )
        return
    if wrong := next((host for host in hosts if not _HOST.fullmatch(host)), None):
        yield "ALLOWED_HOSTS", f"{wrong[:80]!r} is not a host name: write it without scheme, port and path"
        return
    public = next((host for host in hosts if not is_this_machine(host)), None)
    if public is None:
        return
    if environment.debug:
        yield (
            "DEBUG",
            f"error pages would show the code and its settings to every visitor of {public}. Unset DEBUG",
        )
    if not environment.https:
        yield (
            "HTTPS",
            f"ALLOWED_HOSTS names {public}, and passwords would cross the network in the clear. "
            "Put a proxy that speaks HTTPS before the site, and set HTTPS=1",
        )


def _unsafe_origin(origin: str) -> str:
    if "*" in origin:
        return "is a wildcard: name each origin in full"
    try:
        parts = urlsplit(origin)
        whole = f"{parts.scheme}://{parts.netloc}" == origin and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or parts.scheme not in ("http", "https"):
        return "is not an origin: write https://host or https://host:port, without a path"
    if parts.scheme == "http" and not is_this_machine(parts.hostname or ""):
        return "can be forged on the way: write https://"
    return ""


def _unsafe_broker(url: str) -> str:
    from redis.connection import parse_url  # takes a tenth of a command's start

    try:
        parts = parse_url(url)
    except ValueError:
        return "write redis://[:password@]host:port/number, rediss://… or unix:///path"
    host = parts.get("host", "localhost")
    if "path" in parts or is_this_machine(host) or parts.get("password"):
        return ""
    return (
        f"the broker at {host} has no password, so anyone on its network can read and write. "
        "Set one there, and write redis://:password@host:port/number"
    )
