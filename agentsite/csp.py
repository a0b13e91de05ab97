"""What every answer tells the browser: the content security policy, and that no cache keeps it.

Of the policy: everything from this site, nothing inline, sockets to this very host only.
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
    """The policy, with the host that the page was asked at as the only place for sockets."""
    try:
        host = request.get_host()
    except DisallowedHost:
        return POLICY
    return f"{POLICY} ws://{host} wss://{host}"


class ContentSecurityPolicy(MiddlewareMixin):
    """Puts the policy on every answer where the view has not set a stricter one."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header."""
        response.headers.setdefault("Content-Security-Policy", policy_for(request))
        return response


class KeptNowhere(MiddlewareMixin):
    """Tells caches to keep no answer that does not say of itself that it may be kept."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """Set the header: refusals, redirects and pages that are not there show as much as any page."""
        if not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response
