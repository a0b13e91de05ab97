"""The pages behind the web server: each request runs from beginning to end in one of a few threads.

Django's own entrance gives each request a thread and a database connection of its own, and changes threads at each
middleware. Many requests at once then wait for one another at every such change, and for connections.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase

THREADS = 8
"""Requests processed at the same time; others wait in the order in which they came."""

HEALTH = "/healthz"


class Pages(ASGIHandler):
    """Django's entrance for requests, with a bounded number of threads."""

    def __init__(self, threads: int = THREADS) -> None:
        super().__init__()
        self.load_middleware(is_async=False)
        self._free = asyncio.Queue[ThreadPoolExecutor]()
        for number in range(threads):
            self._free.put_nowait(ThreadPoolExecutor(1, thread_name_prefix=f"page-{number}"))
        self._health = asyncio.Queue[ThreadPoolExecutor]()
        self._health.put_nowait(ThreadPoolExecutor(1, thread_name_prefix="health"))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer the request in the next free thread.

        The health check is answered beside the others, which may all be waiting for the database.
        """
        threads = self._health if scope["path"].endswith(HEALTH) else self._free
        thread = await threads.get()
        try:
            async with ThreadSensitiveContext(executor=thread):
                await super().__call__(scope, receive, send)
        finally:
            threads.put_nowait(thread)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        """Go through all middleware and the view without leaving the thread."""
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)


def set_up() -> Pages:
    """Set up Django, and return its pages."""
    django.setup(set_prefix=False)
    return Pages()
