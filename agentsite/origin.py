"""Which pages may open a socket: those of this site, by scheme, name and port, and those trusted by the settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from agentsite.refusals import log, shown

type_of_application = Callable[[dict[str, Any], Any, Any], Awaitable[Any]]


class SameOriginOnly:
    """Refuses a socket for a foreign host, or from a page of another origin."""

    def __init__(self, application: type_of_application) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        """Pass the socket on, or refuse it with one line in the log."""
        headers = dict(scope["headers"])
        why = why_not(_text(headers, b"host"), _text(headers, b"origin"))
        if not why:
            return await self.application(scope, receive, send)
        log.warning("Refused a socket %s.", why)
        return await WebsocketDenier()(scope, receive, send)


def _text(headers: dict[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def why_not(host: str, origin: str) -> str:
    """Return why a page of `origin` may not open a socket to `host`; empty if it may."""
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return f"for the host {shown(host)}: ALLOWED_HOSTS does not name it"
    own = f"{'https' if settings.HTTPS else 'http'}://{host}"
    if origin.lower() == own.lower() or origin in settings.CSRF_TRUSTED_ORIGINS:
        return ""
    return f"from the origin {shown(origin)}: this site is {shown(own)}"
