"""Foreign hosts, foreign pages and forged forms: each is refused with one line in the log and a page that says why."""

import logging
from typing import Any

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as site
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client

from agentsite.origin import SameOriginOnly

FORM = "application/x-www-form-urlencoded"


def told(caplog: pytest.LogCaptureFixture) -> str:
    """The one line that was written, as the site's handler would write it."""
    handler = logging.getLogger("agentsite.refusals")
    [record] = [
        one for one in caplog.records if one.levelno >= logging.getLogger(one.name).getEffectiveLevel()
    ]
    assert record.name == handler.name and record.levelname == "WARNING"
    assert record.exc_info is None and "\n" not in record.getMessage()
    return record.getMessage()


@pytest.fixture
def browser(db: None) -> Client:
    """A signed-in browser; the site checks its forms as it does outside of tests."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("alice"))
    return client


@pytest.mark.django_db
@pytest.mark.parametrize("address", ["/", "/sign-in/", "/nowhere/", "/admin/", "/healthz"])
def test_a_foreign_host_is_refused_and_the_page_names_the_setting(
    address: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.get(address, headers={"host": "<b>site.example:8443"})
    page = answer.content.decode()
    assert answer.status_code == 400
    assert "This site does not answer to the name “&lt;b&gt;site.example:8443”." in page
    assert "ALLOWED_HOSTS" in page
    assert (
        told(caplog)
        == "Refused a request for the host '<b>site.example:8443': ALLOWED_HOSTS does not name it."
    )


def test_a_host_of_any_length_and_kind_is_one_short_line(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    client.get("/sign-in/", headers={"host": "a\x1b[31m" + "é" * 9000})
    assert len(told(caplog)) < 400
    assert "\x1b" not in told(caplog)


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        ("http://evil.example", "CSRF_TRUSTED_ORIGINS"),
        ("https://testserver", "HTTPS"),
        ("null", "CSRF_TRUSTED_ORIGINS"),
    ],
)
def test_a_form_of_a_foreign_page_is_refused_and_the_page_names_the_setting(
    origin: str, advice: str, browser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    answer = browser.post("/halt/", {"reason": "x"}, headers={"origin": origin})
    page = answer.content.decode()
    assert answer.status_code == 403
    assert f"This form came from “{origin}”, but the site only takes forms from “http://testserver”." in page
    assert advice in page
    assert "data-token-refused" not in page
    assert (
        told(caplog)
        == f"Refused a form for halt/ from the origin '{origin}': this site is 'http://testserver'."
    )


def test_a_forged_form_is_refused_with_one_line(browser: Client, caplog: pytest.LogCaptureFixture) -> None:
    answer = browser.post("/halt/", {"reason": "x"})
    assert answer.status_code == 403
    assert "data-token-refused" in answer.content.decode()
    assert told(caplog) == "Refused a form for halt/: its security token is missing or old."


def test_the_token_of_a_sign_in_link_is_not_written_to_the_log(
    browser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    browser.post("/sign-in/1.abc-def/", {})
    assert "abc-def" not in told(caplog)


def test_a_form_with_too_many_fields_is_refused_with_the_limit(
    browser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    browser.get("/halt/")
    answer = browser.post("/halt/", "&".join(["a=1"] * 1001), content_type=FORM)
    assert answer.status_code == 400
    assert "at most 1,000 fields" in answer.content.decode()
    assert "1,000 fields" in told(caplog)


def test_a_form_that_is_too_large_is_refused_with_the_limit(
    browser: Client, caplog: pytest.LogCaptureFixture
) -> None:
    browser.get("/halt/")
    answer = browser.post("/halt/", "a=" + "x" * site.DATA_UPLOAD_MAX_MEMORY_SIZE, content_type=FORM)
    assert answer.status_code == 413
    assert "at most 16 MB" in answer.content.decode()
    assert "16 MB" in told(caplog)


class Unread:
    """A body that nothing may read."""

    def read(self, *size: int) -> bytes:
        raise AssertionError("the body was read")

    readline = read


@pytest.mark.parametrize("path", ["/runs/new/", "/sign-in/", "/admin/login/", "/nowhere/"])
def test_a_large_body_of_a_session_that_has_ended_is_not_parsed(path: str, browser: Client) -> None:
    browser.get("/halt/")  # it has the token's cookie, so that a form would be read for the other half
    Session.objects.all().delete()
    body: dict[str, Any] = {"CONTENT_LENGTH": str(2**16 + 1), "wsgi.input": Unread()}
    answer = browser.post(path, "a=1", content_type=FORM, **body)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in/?next=") and answer["Location"].endswith("&unsent=1")


# Sockets


async def accept(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})


async def let_in(origin: str, host: str) -> bool:
    headers = (
        [(b"origin", origin.encode()), (b"host", host.encode())] if origin else [(b"host", host.encode())]
    )
    connected, _ = await WebsocketCommunicator(SameOriginOnly(accept), "/", headers=headers).connect()
    return bool(connected)


HERE = "127.0.0.1:8000"


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1:3000",
        "http://127.0.0.1",
        "https://127.0.0.1:8000",
        "ws://127.0.0.1:8000",
        "//127.0.0.1:8000",
        "http://evil.example",
        "http://127.0.0.1:8000.evil.example",
        "http://evil@127.0.0.1:8000",
        "http://127.0.0.1:8000/page",
        "null",
        "",
    ],
)
async def test_a_socket_of_a_foreign_page_is_refused_with_one_line(
    origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await let_in(origin, HERE) is False
    assert told(caplog) == f"Refused a socket from the origin {origin!r}: this site is 'http://{HERE}'."


async def test_a_socket_of_the_site_s_own_page_is_let_in(caplog: pytest.LogCaptureFixture) -> None:
    assert await let_in(f"http://{HERE}", HERE) is True
    assert await let_in("http://LOCALHOST:8000", "localhost:8000") is True
    assert caplog.records == []


async def test_an_https_site_takes_no_socket_of_a_page_that_came_in_the_clear(settings: Any) -> None:
    settings.HTTPS = True
    assert await let_in("https://127.0.0.1", "127.0.0.1") is True
    assert await let_in("http://127.0.0.1", "127.0.0.1") is False


async def test_a_trusted_origin_is_let_in_with_its_very_scheme_and_port(settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://desk.example:8443"]
    assert await let_in("https://desk.example:8443", HERE) is True
    assert await let_in("https://desk.example", HERE) is False
    assert await let_in("http://desk.example:8443", HERE) is False


async def test_a_socket_for_a_foreign_host_is_refused_with_one_line(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert await let_in("http://evil.example", "evil.example") is False
    assert told(caplog) == "Refused a socket for the host 'evil.example': ALLOWED_HOSTS does not name it."
    settings.CSRF_TRUSTED_ORIGINS = ["https://desk.example"]
    assert await let_in("https://desk.example", "evil.example") is False
