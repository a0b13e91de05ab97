"""A link that signs in one person, once, within an hour: also the first administrator of a fresh site."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.html import format_html
from django.utils.http import base36_to_int, int_to_base36
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runs.store.backups import restored_id

UNDER = "sign-in/"
"""Under this address of the site stand the links."""
BACKEND = "django.contrib.auth.backends.ModelBackend"
USED_UP = format_html(
    "This sign-in link no longer works: a link works once, within an hour. "
    "<code>{}</code> prints a fresh one when it starts.",
    "python3 manage.py up",
)


class SignInTokens(PasswordResetTokenGenerator):
    """Signed with the site's key; void as soon as the person has signed in, in any way, and after a restore."""

    key_salt = "agentsite.sign_in_link"

    def _make_hash_value(self, user: User, timestamp: int) -> str:
        # Django's own value forgets the microseconds, so two sign-ins within one second would look like none.
        last = "" if user.last_login is None else user.last_login.isoformat()
        return f"{super()._make_hash_value(user, timestamp)}{last}{restored_id()}"


TOKENS = SignInTokens()


def make_link(user: User, base_url: str) -> str:
    """Return the address that signs in this person."""
    token = f"{int_to_base36(user.pk)}.{TOKENS.make_token(user)}"
    return f"{base_url.rstrip('/')}/{UNDER}{token}/"  # all addresses would load all pages


def user_of(token: str) -> User | None:
    """Return the person that a token signs in; None if it is forged, used or too old, or they may not sign in."""
    number, _, signed = token.partition(".")
    try:
        user = User.objects.get(pk=base36_to_int(number), is_active=True)
    except (ValueError, OverflowError, User.DoesNotExist):
        return None
    return user if TOKENS.check_token(user, signed) else None


@login_not_required
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in_with_link(request: HttpRequest, token: str) -> HttpResponse:
    """Ask the link's person to go on (a preview of the link must not use it up), then sign them in."""
    person = user_of(token)
    if person is None:
        messages.error(request, USED_UP)
        return redirect(settings.LOGIN_URL)
    if request.method == "GET":
        return render(request, "sign_in_link.html", {"person": person})
    login(request, person, backend=BACKEND)
    return redirect(settings.LOGIN_REDIRECT_URL)
