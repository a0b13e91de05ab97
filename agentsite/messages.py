"""Messages that outlive a redirect, in a cookie of this very site: another port of the host may be another site."""

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


class SiteCookie(CookieStorage):
    """The cookie."""

    cookie_name = settings.MESSAGES_COOKIE_NAME


class Messages(FallbackStorage):
    """The cookie, and the session for messages that are too long for it."""

    storage_classes = (SiteCookie, SessionStorage)
