"""Many requests at once: a few threads take them in turn, and each stays in its thread."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from django.http import HttpRequest, HttpResponse

from agentsite.pages import Pages
from tests.stack import LONGEST_S

SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "GET",
    "path": "/",
    "query_string": b"",
    "headers": [(b"host", b"localhost")],
}


class Counted(Pages):
    """Answers only once as many requests are being answered as there are threads."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self.full = threading.Barrier(threads, timeout=LONGEST_S)
        self.guard = threading.Lock()
        self.now = self.most = 0
        self.threads: set[int] = set()

    def get_response(self, request: HttpRequest) -> HttpResponse:
        """Count who is here."""
        with self.guard:
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())
        self.full.wait()
        with self.guard:
            self.now -= 1
        return HttpResponse("here")


async def status_of(pages: Pages, path: str = "/") -> int:
    """Ask for a page as the web server does."""
    sent: list[dict[str, Any]] = []
    body = [{"type": "http.request", "body": b""}]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await asyncio.Event().wait()
        raise AssertionError("nothing follows")

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await pages(SCOPE | {"path": path}, receive, send)
    return int(sent[0]["status"])


async def test_many_requests_at_once_are_answered_by_a_few_threads() -> None:
    pages = Counted(threads=3)
    async with asyncio.timeout(LONGEST_S):
        assert await asyncio.gather(*(status_of(pages) for _ in range(12))) == [200] * 12
    assert pages.most == 3
    assert len(pages.threads) == 3


async def test_whether_the_site_is_well_is_answered_while_all_threads_are_busy() -> None:
    """Two pages fill both threads, and wait for a third request: only one beside them can be it."""
    pages = Counted(threads=2)
    pages.full = threading.Barrier(3, timeout=LONGEST_S)
    async with asyncio.timeout(LONGEST_S):
        busy = [asyncio.create_task(status_of(pages)) for _ in range(2)]
        assert await asyncio.gather(status_of(pages, "/healthz"), *busy) == [200] * 3
