"""Send one message by the site's mail server."""

from __future__ import annotations

import smtplib
from collections.abc import Iterable
from contextlib import suppress
from email.utils import make_msgid
from typing import Any

from pydantic import Field

from runs.adapters.tool import Arguments, Place, Result, Tool, ToolError, must
from runs.engine.hosts import host_of, is_named

MAX_BODY = 100_000
ADDRESS = r"^[A-Za-z0-9._+'-]{1,64}@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*$"
"""One plain address: the gate on hosts reads its domain, so nothing else may stand in it. Servers may pass on what has
% or ! before the @ to a domain that is named there."""


class MailArguments(Arguments):
    """The message."""

    to: str = Field(
        max_length=254,
        pattern=ADDRESS,
        json_schema_extra=must("must be one plain address such as bob@example.com, without % and !"),
        description="One address, such as bob@example.com.",
    )
    subject: str = Field(
        min_length=1,
        max_length=200,
        pattern=r"^[^\r\n]*$",
        json_schema_extra=must("must be on one line"),
        description="On one line.",
    )
    body: str = Field(min_length=1, max_length=MAX_BODY, description="Plain text.")


class NoMailServer(ToolError):
    """The site can't send mail."""

    def __init__(self) -> None:
        super().__init__(
            "This site has no mail server. Ask an administrator to set EMAIL_URL and EMAIL_FROM."
        )


class DomainNotAllowed(ToolError):
    """An address outside the domains that the site may write to."""

    def __init__(self, to: str, domains: Iterable[str]) -> None:
        self.to, self.domains = to, tuple(domains)
        super().__init__(
            f"{to!r} was not written to: this site sends mail only to {', '.join(self.domains)}."
        )


class MailRefused(ToolError):
    """The mail server took no message."""

    def __init__(self, code: int, why: str) -> None:
        self.code, self.why = code, why
        super().__init__(f"The mail server refused the message, and nothing was sent: {code} {why[:300]}")


class BrokenOff(ConnectionError):
    """The mail server went away, and may have taken the message."""

    def __init__(self) -> None:
        super().__init__("The mail server broke off.")


def _run(arguments: MailArguments, place: Place) -> Result:
    from django.conf import settings

    if not settings.EMAIL_HOST:
        raise NoMailServer
    if settings.EMAIL_DOMAINS and not is_named(host_of(arguments.to), settings.EMAIL_DOMAINS):
        raise DomainNotAllowed(arguments.to, settings.EMAIL_DOMAINS)
    _send(arguments, place.key)
    return Result({"sent_to": arguments.to})


def _send(arguments: MailArguments, key: str) -> None:
    from django.conf import settings
    from django.core.mail import EmailMessage, get_connection

    connection = get_connection()
    # The domain is named: the machine's own name is nobody's business.
    number = make_msgid(domain=settings.DEFAULT_FROM_EMAIL.rpartition("@")[2])
    headers = {"X-Agentsite-Call": key, "Message-ID": number}
    message = EmailMessage(arguments.subject, arguments.body, to=[arguments.to], headers=headers)
    try:
        _open(connection)
        connection.send_messages([message])
    except smtplib.SMTPRecipientsRefused as refused:
        raise MailRefused(*_told(*refused.recipients[arguments.to])) from None
    except smtplib.SMTPResponseException as refused:
        raise MailRefused(*_told(refused.smtp_code, refused.smtp_error)) from None
    except smtplib.SMTPServerDisconnected:
        raise BrokenOff from None
    finally:
        with suppress(OSError):  # a farewell that fails takes nothing back
            connection.close()


def _open(connection: Any) -> None:
    """Open the connection; what fails here has sent nothing."""
    try:
        connection.open()
    except smtplib.SMTPResponseException:
        raise
    except OSError as why:
        raise ConnectionRefusedError(f"The mail server can't be reached: {why}") from None


def _told(code: int, why: bytes | str) -> tuple[int, str]:
    return code, why if isinstance(why, str) else why.decode("utf-8", "replace")


TOOL = Tool(
    name="send_mail",
    description="Sends one plain text message to one address by the site's mail server.",
    arguments=MailArguments,
    effects="send",
    idempotent=False,
    deadline_s=60,
    run=_run,
    outward="to",
    reads="",
)
