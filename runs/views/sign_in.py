"""Sign-in, and the health check."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from runs.store import health


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_not_required, name="dispatch")
class SignIn(LoginView):
    """The sign-in page."""

    template_name = "sign_in.html"
    redirect_authenticated_user = True


class SignInFirst(LoginRequiredMiddleware):
    """Leads people without a sign-in to the sign-in page, and then back to their page.

    After a form that is the page with the form: its own address may be for sending only.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        """Refuse a large body before anything parses it, even the check of the form's token."""
        length = request.META.get("CONTENT_LENGTH") or ""
        large = length.isdigit() and int(length) > settings.ANONYMOUS_BODY_BYTES
        if large and not request.user.is_authenticated:
            return self.handle_no_permission(request, None)
        return None

    def handle_no_permission(self, request: HttpRequest, view_func: Any) -> HttpResponseRedirect:
        """Redirect to the sign-in page, which says that a form was sent in vain."""
        if request.method in ("GET", "HEAD"):
            return super().handle_no_permission(request, view_func)
        way = {"next": _page_of_form(request), "unsent": "1"}
        return redirect(f"{reverse(settings.LOGIN_URL)}?{urlencode(way)}")


def _page_of_form(request: HttpRequest) -> str:
    """Return the page that a form was sent from, by the browser's account; else the form's own address."""
    page = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(page, {request.get_host()}, request.is_secure()):
        return request.get_full_path()
    return urlsplit(page)._replace(scheme="", netloc="", fragment="").geturl()


@never_cache
@require_GET
def signed_in(request: HttpRequest) -> HttpResponse:
    """Return nothing to signed-in people; others are led to the sign-in page."""
    return HttpResponse(status=204)


@login_not_required
@never_cache
@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """Report whether the site can work: 503 with the fault if its disk or database can't be written."""
    fault = health.fault_of_site()
    return HttpResponse(f"{fault or 'ok'}\n", content_type="text/plain", status=503 if fault else 200)
