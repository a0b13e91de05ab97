"""Browsers in which a person has signed in before: wrong passwords elsewhere don't lock them out.

Behind a proxy all people share one address, so name and address alone would let a stranger lock out a colleague. Each
known browser has a count of its own; all others share the name's.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.crypto import get_random_string
from django.utils.deprecation import MiddlewareMixin

from runs.views.requests import refused

COOKIE = settings.KNOWN_BROWSER_COOKIE_NAME
YEAR_S = 365 * 86400


class RememberBrowser(MiddlewareMixin):
    """Marks the browser of every person who has signed in."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Set the cookie, unless the browser has it. Every way to sign in sends a form."""
        user = getattr(request, "user", None) if request.method == "POST" else None
        if user is not None and user.is_authenticated and not _mark(request, user.get_username()):
            response.set_signed_cookie(
                COOKIE,
                get_random_string(16),
                salt=_salt(user.get_username()),
                max_age=YEAR_S,
                secure=settings.HTTPS,
                httponly=True,
                samesite="Lax",
            )
        return response


def counted_name(request: HttpRequest, credentials: dict[str, Any] | None = None) -> str:
    """Return the key for counting wrong passwords: the name, with the browser if it is known for it."""
    name = str((credentials or request.POST).get("username") or "")
    mark = _mark(request, name)
    return f"{name} in browser {mark}" if mark else name


def _mark(request: HttpRequest, name: str) -> str:
    return request.get_signed_cookie(COOKIE, default="", salt=_salt(name), max_age=YEAR_S) or ""


def _salt(name: str) -> str:
    return f"agentsite.known_browser of {name}"


def locked_out(request: HttpRequest, response: Any, credentials: dict[str, Any] | None) -> HttpResponse:
    """Answer a try while the name is locked."""
    name = str((credentials or request.POST).get("username") or "")
    minutes = round(settings.AXES_COOLOFF_TIME * 60)
    sentence = (
        f"Too many wrong passwords for “{name[:80]}”. Try again in {minutes} minutes, or in a browser in which you "
        "have signed in before. An administrator of the site can make you a link: manage.py sign_in_link NAME."
    )
    return refused(request, sentence, status=429)
