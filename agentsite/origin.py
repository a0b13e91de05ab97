"""Sockets are for pages of this very site: another port of the same host is somebody else."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings

type_of_application = Callable[[dict[str, Any], Any, Any], Awaitable[Any]]


class SameOriginOnly:
    """Refuse a socket whose Origin is neither the host it asks for nor one that the settings trust."""

    def __init__(self, application: type_of_application) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        """Pass the socket on, or deny it."""
        headers = dict(scope["headers"])
        origin = headers.get(b"origin", b"").decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        if urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS:
            return await self.application(scope, receive, send)
        return await WebsocketDenier()(scope, receive, send)
