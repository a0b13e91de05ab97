"""How the site sends mail, as the environment says."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from agentsite.environment import read_environment
from agentsite.mail import mail_of


def test_without_a_url_no_server_is_named() -> None:
    assert mail_of("", "")["EMAIL_HOST"] == ""


@pytest.mark.parametrize(
    ("url", "port", "ssl", "tls"),
    [
        ("smtps://bob:p%40ss@mail.example", 465, True, False),
        ("smtp+tls://bob:p%40ss@mail.example", 587, False, True),
        ("smtp+tls://bob:p%40ss@mail.example:2525", 2525, False, True),
    ],
)
def test_a_url_names_server_account_and_encryption(url: str, port: int, ssl: bool, tls: bool) -> None:  # noqa: FBT001
    found = mail_of(url, "site@example.com")
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"]) == ("mail.example", port)
    assert (found["EMAIL_HOST_USER"], found["EMAIL_HOST_PASSWORD"]) == ("bob", "p@ss")
    assert (found["EMAIL_USE_SSL"], found["EMAIL_USE_TLS"]) == (ssl, tls)
    assert found["DEFAULT_FROM_EMAIL"] == "site@example.com"


def test_a_server_on_this_machine_needs_no_encryption() -> None:
    assert mail_of("smtp://localhost", "site@example.com")["EMAIL_PORT"] == 25
    assert mail_of("smtp://bob:s3cret@127.0.0.1:1025", "site@example.com")["EMAIL_HOST_PASSWORD"] == "s3cret"


@pytest.mark.parametrize(
    ("url", "sender", "why"),
    [
        ("http://mail.example", "a@b.example", "EMAIL_URL can't be used"),
        ("smtp://", "a@b.example", "EMAIL_URL can't be used"),
        ("smtp://mail.example:x", "a@b.example", "EMAIL_URL can't be used"),
        ("smtp://bob:s3cret@mail.example", "a@b.example", r"in the clear. Write smtp\+tls://"),
        ("smtps://mail.example", "", "EMAIL_FROM"),
        ("smtps://mail.example", "no address", "EMAIL_FROM"),
    ],
)
def test_what_can_not_be_used_is_said_with_what_to_write(url: str, sender: str, why: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=why) as caught:
        mail_of(url, sender)
    assert "s3cret" not in str(caught.value)


def test_the_domains_of_recipients_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMAIL_DOMAINS", "Example.com, *.example.org")
    assert read_environment().email_domains == ("example.com", "*.example.org")


def test_a_domain_that_is_none_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMAIL_DOMAINS", "bob@example.com")
    with pytest.raises(ImproperlyConfigured, match="EMAIL_DOMAINS"):
        read_environment()
