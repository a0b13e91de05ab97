"""The doors of the real server: whose cookies count, what closes a socket, and which bodies are not even read."""

from __future__ import annotations

import re
import socket as network
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from agentsite.environment import ROOT
from runs.consumers import socket
from tests.stack import LONGEST_S, Site


class Visitor:
    """A browser without scripts: cookies belong to a host, whatever its port."""

    def __init__(self) -> None:
        self.jar = CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))

    def get(self, address: str) -> str:
        """Where a visit ends."""
        with self.opener.open(address, timeout=LONGEST_S) as page:
            return str(page.url)

    def post(self, address: str, **fields: str) -> str:
        """Where a form that is sent leads to; the page is asked for its token first."""
        with self.opener.open(address, timeout=LONGEST_S) as page:
            found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.read().decode())
        assert found is not None
        return self.send(address, csrfmiddlewaretoken=found[1], **fields)

    def send(self, address: str, **fields: str) -> str:
        """Send a form as it is."""
        with self.opener.open(address, urllib.parse.urlencode(fields).encode(), timeout=LONGEST_S) as page:
            return str(page.url)

    def sign_out(self, site: Site) -> str:
        """By the form that every page has."""
        with self.opener.open(f"{site.url}/runs/", timeout=LONGEST_S) as page:
            found = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.read().decode())
        assert found is not None
        return self.send(f"{site.url}/sign-out/", csrfmiddlewaretoken=found[1])

    def socket(self, site: Site, path: str) -> ClientConnection:
        """A socket as a page of the site opens it."""
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.jar)
        return connect(
            f"{site.url.replace('http', 'ws')}{path}",
            origin=Origin(site.url),
            additional_headers={"Cookie": cookies},
            open_timeout=LONGEST_S,
        )


def signed_in(site: Site, visitor: Visitor | None = None) -> Visitor:
    visitor = visitor or Visitor()
    assert visitor.post(site.fresh_link()) == f"{site.url}/runs/"
    return visitor


AT_ONCE_S = 15.0
"""Less than the time after which a socket asks by itself whether it may stay."""


def code_of(line: ClientConnection) -> int:
    """The code that the site closes a socket with, after whatever else it sends."""
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            line.recv(timeout=AT_ONCE_S)
    assert closed.value.rcvd is not None
    return closed.value.rcvd.code


# Codes


CODES = {
    name: code for name, code in vars(socket).items() if name.isupper() and type(code) is int and code >= 1000
}


def test_every_code_is_one_that_an_application_may_send_and_that_the_page_knows() -> None:
    codes = {name: code for name, code in CODES.items() if name not in ("LONGEST_MESSAGE", "LARGEST_SENT")}
    assert set(codes) == {"NOT_ALLOWED", "GONE", "TOO_SLOW", "ANOTHER_LIFE", "TOO_MUCH", "FAILED"}
    assert all(4000 <= code <= 4999 for code in codes.values())
    written = dict(re.findall(r"const (\w+) = (4\d\d\d);", (ROOT / "static/js/line.js").read_text()))
    assert {name: int(code) for name, code in written.items()} == {
        "SIGNED_OUT": codes["NOT_ALLOWED"],
        **{name: codes[name] for name in ("GONE", "ANOTHER_LIFE", "TOO_MUCH", "FAILED")},
    }


@pytest.mark.stack
def test_a_socket_that_talks_too_much_is_told_so_by_a_code_that_arrives(site: Site) -> None:
    with signed_in(site).socket(site, "/ws/inbox/") as line:
        for _ in range(2 * socket.MESSAGES_AT_ONCE):
            line.send('{"type": "ping"}')
        assert code_of(line) == socket.TOO_MUCH


@pytest.mark.stack
def test_signing_out_closes_the_sockets_of_all_tabs_at_once(site: Site) -> None:
    visitor, elsewhere = signed_in(site), signed_in(site)
    with (
        visitor.socket(site, "/ws/inbox/") as one,
        visitor.socket(site, "/ws/inbox/") as two,
        elsewhere.socket(site, "/ws/inbox/") as other,
    ):
        for line in (one, two, other):
            line.recv(timeout=LONGEST_S)
        assert visitor.sign_out(site) == f"{site.url}/sign-in/"
        assert [code_of(line) for line in (one, two)] == [socket.NOT_ALLOWED] * 2
        other.send('{"type": "ping"}')
        assert "pong" in str(other.recv(timeout=LONGEST_S))


# Cookies


@pytest.mark.stack
def test_two_sites_on_one_host_do_not_sign_each_other_out(site: Site, own_site: Site) -> None:
    visitor = signed_in(own_site, signed_in(site))
    assert [visitor.get(f"{one.url}/runs/") for one in (site, own_site)] == [
        f"{one.url}/runs/" for one in (site, own_site)
    ]
    visitor.sign_out(own_site)
    assert visitor.get(f"{site.url}/runs/") == f"{site.url}/runs/"
    assert visitor.sign_out(site) == f"{site.url}/sign-in/"


# Bodies


def answer_to(site: Site, *headers: str, path: str = "/runs/new/", body: bytes = b"") -> str:
    """The head of the answer to a form of which the headers are sent, and nothing but `body` of what they declare."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: 127.0.0.1:{site.port}",
        f"Content-Type: {FORM}",
        *headers,
        "",
        "",
    ]
    with network.create_connection(("127.0.0.1", site.port), timeout=AT_ONCE_S) as line:
        line.sendall("\r\n".join(lines).encode() + body)
        head = b""
        while b"\r\n\r\n" not in head and (more := line.recv(4096)):
            head += more
    return head.decode("latin-1")


FORM = "application/x-www-form-urlencoded"
LARGE = "Content-Length: 70000"


@pytest.mark.stack
def test_a_body_that_nobody_signed_in_sends_is_refused_before_it_is_read(site: Site) -> None:
    name = next(cookie.name for cookie in signed_in(site).jar if "session" in cookie.name)
    for cookies in ([], [f"Cookie: {name}={'a' * 40}"], [f"Cookie: {name}=;{name}=b; x=y"]):
        head = answer_to(site, LARGE, *cookies)
        assert head.startswith("HTTP/1.1 302 ") and "\r\nLocation: /sign-in/?unsent=1\r\n" in head


@pytest.mark.stack
@pytest.mark.parametrize(
    ("header", "status"),
    [("Content-Length: 90000000000", 413), ("Transfer-Encoding: chunked", 411)],
)
def test_a_body_without_an_end_is_refused_before_it_is_read_whoever_sends_it(
    header: str, status: int, site: Site
) -> None:
    cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in signed_in(site).jar)
    for more in ([], [f"Cookie: {cookies}"]):
        assert answer_to(site, header, *more).startswith(f"HTTP/1.1 {status} ")


@pytest.mark.stack
def test_a_browser_that_sends_all_of_a_refused_body_still_hears_why(site: Site) -> None:
    assert Visitor().send(f"{site.url}/runs/new/", goal="x" * 4_000_000) == f"{site.url}/sign-in/?unsent=1"


@pytest.mark.stack
def test_a_form_of_usual_size_leads_who_is_signed_out_to_the_sign_in_and_a_long_one_is_taken_from_others(
    site: Site,
) -> None:
    body = b"goal=" + b"x" * 50_000
    head = answer_to(site, f"Content-Length: {len(body)}", body=body, path="/sign-in/")
    assert head.startswith("HTTP/1.1 403 ")  # it was read: its token is missing
    with pytest.raises(urllib.error.HTTPError) as refused:
        signed_in(site).post(f"{site.url}/runs/new/", goal="x" * 70_000)
    with refused.value as page:
        assert page.code == 422 and "A goal has at most 20000 characters" in page.read().decode()
