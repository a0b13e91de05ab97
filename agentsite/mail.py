"""Django's mail settings from two variables of the environment: EMAIL_URL and EMAIL_FROM."""

from __future__ import annotations

from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.validators import validate_email

from agentsite.unsafe import is_this_machine

PORTS = {"smtp": 25, "smtps": 465, "smtp+tls": 587}
TIMEOUT_S = 10
"""Seconds of one silence of the mail server."""


def mail_of(url: str, sender: str) -> dict[str, Any]:
    """Return the settings for a server such as `smtp+tls://user:password@host:587`; without a URL no host is named."""
    parts, port = _read(url) if url else (SplitResult("smtp", "", "", "", ""), PORTS["smtp"])
    if url:
        _check(parts, sender)
    return {
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": port,
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
        "EMAIL_TIMEOUT": TIMEOUT_S,
        "DEFAULT_FROM_EMAIL": sender,
    }


def _read(url: str) -> tuple[SplitResult, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if parts.scheme not in PORTS or not parts.hostname:
        raise ImproperlyConfigured(
            "EMAIL_URL can't be used. Write smtp+tls://user:password@host:587, smtps://user:password@host "
            "or, on this machine, smtp://localhost."
        )
    return parts, PORTS[parts.scheme] if port is None else port


def _check(parts: SplitResult, sender: str) -> None:
    if parts.scheme == "smtp" and parts.password and not is_this_machine(parts.hostname or ""):
        raise ImproperlyConfigured(
            "EMAIL_URL can't be used: its password would cross the network in the clear. Write smtp+tls:// or smtps://."
        )
    try:
        validate_email(sender)
    except ValidationError:
        raise ImproperlyConfigured(
            "EMAIL_FROM: name the address that mail of this site comes from, such as agents@example.com."
        ) from None
