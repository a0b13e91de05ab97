"""The fetch tool reads public pages, and nothing else however it is asked."""

from __future__ import annotations

import datetime
import gzip
import ssl
import time
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpcore2
import pytest

from runs.adapters.public_web import MAX_BYTES, URL_SENTENCE, PageUnreadable, UrlRefused, target_of
from runs.adapters.tool import Place, ToolError
from runs.adapters.tools import TOOLS
from runs.adapters.tools.fetch_url import (
    FetchArguments,
    Page,
    PageBusy,
    PageRefused,
    TooManyRedirects,
    fetch,
    fetch_tool,
)
from runs.adapters.wire import BrokenOff, CertificateRefused, Deadline, NameUnknown, Net, trusted
from runs.engine.tools import check_arguments
from tests.adapters.pages import PUBLIC_ADDRESS, Answer, Dripping, TableNet, Web

PAGE = "http://page.test/"
HTML = (("Content-Type", "text/html; charset=utf-8"),)


def moved(location: str) -> Answer:
    return Answer(b"", 302, (("Location", location), ("Set-Cookie", "a=b")))


def read(
    url: str, pages: Mapping[str, Answer | Dripping], names: Mapping[str, list[str]] | None = None
) -> Page:
    with Web(pages) as web:
        net = TableNet(web, names or {"page.test": [PUBLIC_ADDRESS]})
        return fetch(url, Deadline(5), net, trusted())


# Each is asked of the real resolver: none may lead to a connection.
LOCAL = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://0177.0.0.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://0x7f000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[ff02::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/",
    "http://100.100.100.200/",
    "http://192.168.0.1/",
    "http://192.88.99.1/",
    "http://224.0.0.1/",
    "https://127.0.0.1/",
]
MALFORMED = [
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://page.test/",
    "data:text/html,x",
    "javascript:alert(1)",
    "//page.test/",
    "page.test",
    "http://",
    "http:///etc/passwd",
    "http://user@page.test/",
    "http://user:word@page.test/",
    "http://page.test@127.0.0.1/",
    "http://@page.test/",
    "http://page.test:22/",
    "http://page.test:8080/",
    "http://page.test:0/",
    "http://page.test:99999/",
    "http://page.test:x/",
    "http://page.test\\@127.0.0.1/",
    "http://page.test/ HTTP/1.1",
    "http://page.test/\r\nHost: x",
    "http://page.test\n/",
    "http://pa ge.test/",
    "http://[::1",
    "http://[fe80::1%25eth0]/",
    "http://℀.test/",
    "http://" + "a" * 2_000 + ".test/",
]


class NoNet(Net):
    """A net whose names are real, and which nobody may use."""

    def connect(self, address: str, port: int, wait_s: float) -> httpcore2.NetworkStream:
        raise AssertionError(f"connected to {address}")


@pytest.mark.parametrize("url", LOCAL)
def test_no_spelling_of_a_private_address_is_connected_to(url: str) -> None:
    with pytest.raises((UrlRefused, NameUnknown)):
        fetch(url, Deadline(5), NoNet(), trusted())


@pytest.mark.parametrize("url", MALFORMED)
def test_an_address_of_another_kind_is_refused_before_it_is_resolved(url: str) -> None:
    with pytest.raises(UrlRefused):
        target_of(url)


NO_PATTERN_TELLS = {"http://[fe80::1%25eth0]/", "http://℀.test/"}


@pytest.mark.parametrize("url", [url for url in MALFORMED if url not in NO_PATTERN_TELLS])
@pytest.mark.parametrize("name", ["fetch_url", "http_request"])
def test_a_call_with_such_an_address_is_refused_before_anyone_is_asked(name: str, url: str) -> None:
    args = {"url": url} if name == "fetch_url" else {"url": url, "method": "POST"}
    (fault,) = check_arguments(TOOLS[name].spec(), args).faults
    assert fault.param == "url"
    assert "must have at most" in fault.message or fault.message == f"{name}: url {URL_SENTENCE}."


@pytest.mark.parametrize(
    "url",
    [
        *LOCAL,
        "HTTP://Page.Test",
        "https://page.test:443?q=a@b:c",
        "http://page.test:/#top",
        "http://page.test:080/",
        "http://grüße.test/ä?b=ß",
        "http://page.test/a[1]{2}|3",
    ],
)
def test_every_address_that_may_be_contacted_passes_the_pattern(url: str) -> None:
    with suppress(UrlRefused):
        target_of(url)
        assert not check_arguments(TOOLS["fetch_url"].spec(), {"url": url}).faults
        assert FetchArguments(url=url).url == url


def test_a_page_is_read_under_its_name_at_the_address_that_was_checked() -> None:
    with Web({"page.test /a?b=c": Answer("Grüße".encode())}) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS]})
        page = fetch("http://PAGE.test/a?b=c#part", Deadline(5), net, trusted())
    assert page.text == "Grüße"
    assert net.connected == [(PUBLIC_ADDRESS, 80)]
    assert net.resolved == ["page.test"]
    assert web.asked == ["page.test /a?b=c"]


def test_one_private_address_among_public_ones_refuses_the_name() -> None:
    with pytest.raises(UrlRefused, match="private or special network"):
        read(PAGE, {}, {"page.test": [PUBLIC_ADDRESS, "10.0.0.1"]})


def test_a_redirect_is_followed_without_cookies_to_an_address_that_is_checked() -> None:
    pages = {"page.test /": moved("http://other.test/there"), "other.test /there": Answer(b"arrived")}
    with Web(pages) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS], "other.test": ["1.1.1.1"]})
        page = fetch(PAGE, Deadline(5), net, trusted())
    assert (page.url, page.text) == ("http://other.test/there", "arrived")
    assert net.connected == [(PUBLIC_ADDRESS, 80), ("1.1.1.1", 80)]
    assert web.cookies == []


@pytest.mark.parametrize(
    "location",
    [
        "http://metadata.test/",
        "http://169.254.169.254/",
        "//169.254.169.254/",
        "file:///etc/passwd",
        "http://page.test:8080/",
        "http://user@page.test/",
        "gopher://page.test/",
        "http://[::1/",
    ],
)
def test_a_redirect_to_a_forbidden_place_is_refused(location: str) -> None:
    names = {
        "page.test": [PUBLIC_ADDRESS],
        "metadata.test": ["169.254.169.254"],
        "169.254.169.254": ["169.254.169.254"],
    }
    with Web({"page.test /": moved(location)}) as web:
        net = TableNet(web, names)
        with pytest.raises(UrlRefused):
            fetch(PAGE, Deadline(5), net, trusted())
    assert net.connected == [(PUBLIC_ADDRESS, 80)]


def test_a_name_that_changes_its_address_between_hops_is_judged_anew() -> None:
    class Rebinding(TableNet):
        def addresses(self, host: str, port: int, wait_s: float) -> list[str]:
            self.resolved.append(host)
            return [PUBLIC_ADDRESS] if len(self.resolved) == 1 else ["127.0.0.1"]

    pages = {"page.test /": moved("/again"), "page.test /again": Answer(b"inside")}
    with Web(pages) as web, pytest.raises(UrlRefused):
        fetch(PAGE, Deadline(5), Rebinding(web, {}), trusted())
    assert web.asked == ["page.test /"]


def test_redirects_end() -> None:
    with pytest.raises(TooManyRedirects):
        read(PAGE, {"page.test /": moved("/")})


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451])
def test_an_error_that_stays_is_recoverable(status: int) -> None:
    with pytest.raises(PageRefused) as caught:
        read(PAGE, {"page.test /": Answer(b"", status)})
    assert caught.value.blame == "recoverable"


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_error_that_may_pass_is_transient(status: int) -> None:
    with pytest.raises(PageBusy) as caught:
        read(PAGE, {"page.test /": Answer(b"", status)})
    assert caught.value.blame == "transient"


def test_what_is_no_text_is_not_read() -> None:
    with pytest.raises(PageUnreadable, match="image/png"):
        read(PAGE, {"page.test /": Answer(b"\x89PNG", headers=(("Content-Type", "image/png"),))})


def test_a_long_page_is_cut() -> None:
    page = read(PAGE, {"page.test /": Answer(b"x" * (MAX_BYTES + 10))})
    assert page.cut
    assert len(page.text) == MAX_BYTES


def test_a_small_body_that_unpacks_to_a_huge_one_is_cut() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    headers = (("Content-Type", "text/plain"), ("Content-Encoding", "gzip"))
    tracemalloc.start()
    try:
        page = read(PAGE, {"page.test /": Answer(bomb, headers=headers)})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert page.cut
    assert len(page.text) == MAX_BYTES
    assert peak < 10 * MAX_BYTES


def test_a_packed_page_is_unpacked() -> None:
    headers = (("Content-Type", "text/plain"), ("Content-Encoding", "gzip"))
    page = read(PAGE, {"page.test /": Answer(gzip.compress(b"hello" * 1_000), headers=headers)})
    assert (page.text, page.cut) == ("hello" * 1_000, False)


@pytest.mark.parametrize(("coding", "body"), [("br", b"x"), ("gzip", b"no gzip"), ("gzip, gzip", b"x")])
def test_a_body_that_cannot_be_unpacked_within_bounds_is_refused(coding: str, body: bytes) -> None:
    with pytest.raises(PageUnreadable):
        read(
            PAGE,
            {
                "page.test /": Answer(
                    body, headers=(("Content-Type", "text/plain"), ("Content-Encoding", coding))
                )
            },
        )


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("iso-8859-1", "Grüße".encode("latin-1"), "Grüße"),
        ("shift_jis", "日本".encode("shift_jis"), "日本"),
        ("punycode", b"\xff", "�"),
        ("no-such", b"\xffa", "�a"),
    ],
)
def test_only_plain_charsets_are_followed(charset: str, body: bytes, text: str) -> None:
    headers = (("Content-Type", f"text/plain; charset={charset}"),)
    assert read(PAGE, {"page.test /": Answer(body, headers=headers)}).text == text


def test_a_head_that_drips_ends_at_the_deadline() -> None:
    with Web({"page.test /": Dripping()}) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS]})
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"longer than 0\.3 seconds"):
            fetch(PAGE, Deadline(0.3), net, trusted())
    assert time.monotonic() - begun < 30  # the head itself never ends


class Mute(TableNet):
    """Connects to something that answers nonsense."""

    def connect(self, address: str, port: int, wait_s: float) -> httpcore2.NetworkStream:
        return httpcore2.MockStream([b"220 mail.test ESMTP\r\n"])


def test_what_speaks_no_http_is_a_connection_error() -> None:
    with Web({}) as web:
        net = Mute(web, {"page.test": [PUBLIC_ADDRESS]})
        with pytest.raises(BrokenOff):
            fetch(PAGE, Deadline(5), net, trusted())


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert read(PAGE, {"page.test /": Answer(b"direct")}).text == "direct"


def certificates(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for `name`, and a client's that trusts it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    client = ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
    return server, client


def test_tls_proves_the_name_while_the_address_is_connected_to(tmp_path: Path) -> None:
    server, client = certificates(tmp_path, "page.test")
    with Web({"page.test /": Answer(b"secret")}, server) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS]})
        assert fetch("https://page.test/", Deadline(5), net, client).text == "secret"
    assert net.connected == [(PUBLIC_ADDRESS, 443)]


def test_a_certificate_of_another_name_is_refused(tmp_path: Path) -> None:
    server, client = certificates(tmp_path, "other.test")
    with Web({"page.test /": Answer(b"secret")}, server) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS]})
        with pytest.raises(CertificateRefused, match=r"page\.test"):
            fetch("https://page.test/", Deadline(5), net, client)


def test_the_tool_gives_title_and_text_of_a_page(tmp_path: Path) -> None:
    body = (
        b"<html><title>Tides &amp; moon</title><script>x()</script><h1>Tides</h1><p>Twice a day.</p></html>"
    )
    with Web({"page.test /": Answer(body, headers=HTML)}) as web:
        net = TableNet(web, {"page.test": [PUBLIC_ADDRESS]})
        tool = fetch_tool(lambda: net, trusted)
        result = tool.run(FetchArguments(url=PAGE), Place(tmp_path, "key", tool.deadline_s))
    assert result.value == {
        "url": PAGE,
        "media_type": "text/html",
        "title": "Tides & moon",
        "text": "# Tides\n\nTwice a day.",
        "cut": False,
    }


def test_every_refusal_is_a_sentence_for_the_model() -> None:
    with pytest.raises(ToolError, match="is not contacted: only http and https are"):
        target_of("file:///etc/passwd")
