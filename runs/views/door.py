"""The way in, and whether anybody is at home."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET


@method_decorator(never_cache, name="dispatch")
@method_decorator(login_not_required, name="dispatch")
class SignIn(LoginView):
    """The way in."""

    template_name = "sign_in.html"
    redirect_authenticated_user = True


@login_not_required
@never_cache
@require_GET
def healthz(request: HttpRequest) -> HttpResponse:
    """Whether this process answers and has its database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return HttpResponse("ok\n", content_type="text/plain")
