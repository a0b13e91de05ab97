"""What every answer of the site carries, who gets in, and which sockets are refused."""

from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.http import HttpResponse
from django.test import Client, RequestFactory

from agentsite.csp import ContentSecurityPolicy
from agentsite.logs import OneLine
from agentsite.origin import SameOriginOnly


def test_the_policy_names_the_host_that_was_asked(rf: RequestFactory) -> None:
    request = rf.get("/", headers={"host": "localhost:8000"})
    answer = ContentSecurityPolicy(lambda _: HttpResponse()).process_response(request, HttpResponse())
    policy = answer.headers["Content-Security-Policy"]
    assert "connect-src 'self' ws://localhost:8000 wss://localhost:8000" in policy
    assert "unsafe" not in policy


def test_a_stricter_policy_of_a_view_stays(rf: RequestFactory) -> None:
    answer = HttpResponse(headers={"Content-Security-Policy": "default-src 'none'"})
    same = ContentSecurityPolicy(lambda _: answer).process_response(rf.get("/"), answer)
    assert same.headers["Content-Security-Policy"] == "default-src 'none'"


@pytest.mark.django_db
def test_nobody_sees_a_page_without_signing_in(client: Client) -> None:
    assert client.get("/")["Location"].startswith("/sign-in/")


async def accept(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})


@pytest.mark.parametrize(
    ("origin", "host", "welcome"),
    [
        (b"http://127.0.0.1:8000", b"127.0.0.1:8000", True),
        (b"http://127.0.0.1:3000", b"127.0.0.1:8000", False),
        (b"http://evil.example", b"127.0.0.1:8000", False),
        (b"null", b"127.0.0.1:8000", False),
    ],
)
async def test_a_socket_is_for_pages_of_the_same_origin(origin: bytes, host: bytes, welcome: bool) -> None:  # noqa: FBT001
    socket = WebsocketCommunicator(
        SameOriginOnly(accept), "/", headers=[(b"origin", origin), (b"host", host)]
    )
    connected, _ = await socket.connect()
    assert connected is welcome


def test_a_log_record_is_one_line_even_with_a_traceback() -> None:
    import logging

    try:
        raise ValueError("two\nlines")
    except ValueError as why:
        info = (type(why), why, why.__traceback__)
    record = logging.LogRecord("runs.store", logging.ERROR, __file__, 1, "a\nb", None, info)
    line = OneLine().format(record)
    assert "\n" not in line
    assert "ERROR runs.store a\\nb traceback=" in line and "ValueError: two" in line
