"""The mail tool: one message to one address, where the site has a mail server and allows the domain."""

from __future__ import annotations

import socket
from collections.abc import Callable
from email import message_from_string, policy
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentsite.mail import mail_of
from runs.adapters.toolbox import MayHaveHappened, Toolbox
from runs.adapters.tools import TOOLS
from runs.engine.effects import Failed, ToolReturned
from runs.engine.hosts import host_of
from runs.engine.tools import check_arguments
from tests.adapters.smtp import MailServer

TO = "bob@example.com"
Site = Callable[..., None]


@pytest.fixture
def site(settings: Any) -> Site:
    """Names the mail server of the site; without a port there is none."""

    def name(port: int = 0, domains: tuple[str, ...] = ()) -> None:
        url = f"smtp://127.0.0.1:{port}" if port else ""
        for setting, value in mail_of(url, "agents@example.com").items():
            setattr(settings, setting, value)
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_DOMAINS = domains

    return name


def send(
    folder: Path, to: str = TO, subject: str = "Tides", body: str = "High at 6:12."
) -> ToolReturned | Failed:
    args = {"to": to, "subject": subject, "body": body}
    return Toolbox(["send_mail"], folder, None, []).call(
        TOOLS["send_mail"].spec().call_with(args), 1, "run-1-2-abc"
    )


def test_a_message_is_sent_from_the_sites_address(site: Site, tmp_path: Path) -> None:
    with MailServer() as server:
        site(server.port)
        assert send(tmp_path, subject="Grüße", body="Höchststand\n.\nEnde") == ToolReturned(
            value={"sent_to": TO}
        )
    (text,) = server.accepted
    mail = message_from_string(text, policy=policy.default)
    assert (mail["From"], mail["To"], mail["Subject"]) == ("agents@example.com", TO, "Grüße")
    assert mail["X-Agentsite-Call"] == "run-1-2-abc"
    assert mail["Message-ID"].endswith("@example.com>")


def test_without_a_mail_server_it_says_what_to_do(site: Site, tmp_path: Path) -> None:
    site()
    failed = send(tmp_path)
    assert isinstance(failed, Failed)
    assert (
        failed.message
        == "This site has no mail server. Ask an administrator to set EMAIL_URL and EMAIL_FROM."
    )


@pytest.mark.parametrize(
    ("to", "goes"),
    [
        (TO, True),
        ("bob@EXAMPLE.com", True),
        ("bob@a.example.org", True),
        ("o'neil@example.com", True),
        ("bob@example.org", False),
        ("a@b.test", False),
    ],
)
def test_only_domains_that_the_site_allows_get_mail(to: str, goes: bool, site: Site, tmp_path: Path) -> None:  # noqa: FBT001
    with MailServer() as server:
        site(server.port, ("example.com", "*.example.org"))
        answer = send(tmp_path, to=to)
    assert isinstance(answer, ToolReturned) is goes
    assert len(server.accepted) == goes
    if isinstance(answer, Failed):
        assert "example.com, *.example.org" in answer.message


@pytest.mark.parametrize(
    "to",
    [
        "bob",
        "bob@",
        "bob@example.com, eve@evil.test",
        "Bob <bob@example.com>",
        "bob@example.com\n",
        "api.test/bob@evil.test",
        "api.test?bob@evil.test",
        "api.test#bob@evil.test",
        "bob@evil.test@example.com",
        "a b@example.com",
        "ann%evil.org@example.com",
        "evil.org!ann@example.com",
        '"ann"@example.com',
    ],
)
def test_what_is_not_one_plain_address_is_no_argument(to: str) -> None:
    with pytest.raises(ValidationError):
        TOOLS["send_mail"].arguments.model_validate({"to": to, "subject": "x", "body": "y"})


def test_the_host_that_is_asked_about_is_the_domain() -> None:
    spec = TOOLS["send_mail"].spec()
    assert (spec.effects, spec.outward, spec.reads, spec.idempotent) == ("send", "to", "", False)
    assert host_of("bob+x@Mail.Example.com") == "mail.example.com"
    faults = check_arguments(spec, {"to": "api.test/bob@evil.test", "subject": "x", "body": "y"}).faults
    assert [(fault.param, fault.message) for fault in faults] == [
        ("to", "send_mail: to must be one plain address such as bob@example.com, without % and !.")
    ]


def test_a_subject_is_one_line() -> None:
    with pytest.raises(ValidationError):
        TOOLS["send_mail"].arguments.model_validate(
            {"to": TO, "subject": "x\nBcc: eve@evil.test", "body": "y"}
        )


@pytest.mark.parametrize("says", [{"RCPT": "550 no such user"}, {"MAIL": "553 no"}, {"END": "554 spam"}])
def test_what_the_server_refuses_was_not_sent_and_says_why(
    says: dict[str, str], site: Site, tmp_path: Path
) -> None:
    with MailServer(**says) as server:
        site(server.port)
        failed = send(tmp_path)
    assert isinstance(failed, Failed)
    assert failed.blame == "recoverable"
    assert next(iter(says.values())) in failed.message


def test_a_server_that_breaks_off_may_have_taken_it(site: Site, tmp_path: Path) -> None:
    with MailServer(END=None) as server:
        site(server.port)
        with pytest.raises(MayHaveHappened):
            send(tmp_path)


def test_a_server_that_is_not_there_is_tried_again(site: Site, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        site(free.getsockname()[1])
        failed = send(tmp_path)
    assert isinstance(failed, Failed)
    assert failed.blame == "transient"


def test_a_message_that_was_taken_is_sent_even_if_the_farewell_fails(site: Site, tmp_path: Path) -> None:
    with MailServer(QUIT=None) as server:
        site(server.port)
        assert isinstance(send(tmp_path), ToolReturned)
    assert len(server.accepted) == 1
