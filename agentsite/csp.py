"""Headers of every answer: the content security policy, and no caching.

The policy: everything from this site, nothing inline, sockets only to this very host.
"""

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import add_never_cache_headers
from django.utils.deprecation import MiddlewareMixin

POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; object-src 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'; connect-src 'self'"
)


def policy_for(request: HttpRequest) -> str:
    """Return the policy; sockets are allowed only to the host of the request."""
    try:
        host = request.get_host()
    except DisallowedHost:
        return POLICY
    return f"{POLICY} ws://{host} wss://{host}"


class ContentSecurityPolicy(MiddlewareMixin):
    """Puts the policy on every answer without a stricter one."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header."""
        response.headers.setdefault("Content-Security-Policy", policy_for(request))
        return response


class KeptNowhere(MiddlewareMixin):
    """Keeps caches from storing an answer, unless it allows that itself."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header: refusals, redirects and 404 pages show as much as any page."""
        if not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response
