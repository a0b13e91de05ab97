"""Requests refused before a view: one log line for each, and a page that names the setting or the limit."""

from __future__ import annotations

import logging

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import DisallowedHost, RequestDataTooBig, TooManyFieldsSent
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from runs.views.requests import refused

log = logging.getLogger(__name__)

LONGEST_SHOWN = 100


def shown(text: str) -> str:
    """Return a client's text for a log: in quotes, on one line, its beginning."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unacceptable request; the rights of the person do not matter."""
    if not hasattr(request, "user"):  # refused before anything asked who sends it
        request.user = AnonymousUser()
    match exception:
        case DisallowedHost():
            return _foreign_host(request)
        case RequestDataTooBig():
            most = f"{settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 2**20} MB"
            return _too_much(request, f"at most {most}", 413)
        case TooManyFieldsSent():
            return _too_much(request, f"at most {settings.DATA_UPLOAD_MAX_NUMBER_FIELDS:,} fields", 400)
    log.warning("Refused a request that can't be read (%s).", type(exception).__name__)
    return refused(request, "This request can’t be read. Nothing was changed.", status=400)


def _foreign_host(request: HttpRequest) -> HttpResponse:
    host = request.META.get("HTTP_HOST", "")
    log.warning("Refused a request for the host %s: ALLOWED_HOSTS does not name it.", shown(host))
    sentence = (
        f"This site does not answer to the name “{host[:LONGEST_SHOWN]}”. If this is its name, add it to "
        "ALLOWED_HOSTS and restart the site."
    )
    return refused(request, sentence, status=400)


def _too_much(request: HttpRequest, limit: str, status: int) -> HttpResponse:
    log.warning(
        "Refused a form for %s: it has more than the %s.", _place(request), limit.removeprefix("at most ")
    )
    sentence = f"A form may have {limit}; this one has more. Nothing was changed. Go back and send less."
    return refused(request, sentence, status=status)


def forged_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form that apparently no page of this site has sent."""
    origin, own = request.META.get("HTTP_ORIGIN"), f"{request.scheme}://{request.get_host()}"
    if origin is None or origin == own or origin in settings.CSRF_TRUSTED_ORIGINS:
        log.warning("Refused a form for %s: its security token is missing or old.", _place(request))
        return render(request, "403_csrf.html", status=403)
    log.warning(
        "Refused a form for %s from the origin %s: this site is %s.",
        _place(request),
        shown(origin),
        shown(own),
    )
    sentence = f"This form came from “{origin[:LONGEST_SHOWN]}”, but the site only takes forms from “{own}”. "
    sentence += "Nothing was changed. "
    if origin == f"https://{request.get_host()}":
        sentence += "Behind a proxy that speaks HTTPS, set HTTPS=1 and let it send X-Forwarded-Proto."
    else:
        sentence += "If that is another address of this site, add it to CSRF_TRUSTED_ORIGINS."
    return refused(request, sentence)


def _place(request: HttpRequest) -> str:
    """Return the target of a form, without secrets in the address."""
    found = request.resolver_match
    return found.route if found else "an unknown address"
