"""Answer requests of a wrong method with the page of the form, or a sentence, instead of an empty page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.deprecation import MiddlewareMixin

from runs.views.requests import refused

PAGES = {
    **dict.fromkeys(("abort", "pause", "resume", "replay", "try-now"), "run"),
    **dict.fromkeys(("compact", "pin", "unpin", "summary-edit", "summary-undo"), "context"),
    **dict.fromkeys(("server-look", "server-delete", "server-tool"), "server"),
    **dict.fromkeys(("model-test", "model-choose"), "model"),
    "decision": "interrupt",
    "sign-out": "runs",
    "admin:runs_interrupt_decide": "admin:runs_interrupt_change",
    "admin:logout": "admin:index",
}
"""Addresses that only take a form, and the page of the form; its argument is their first."""


class LeadToForm(MiddlewareMixin):
    """Turns an empty 405 into a redirect or a page.

    It reads nothing but the address, so the answer does not tell whether a row exists.
    """

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Lead a reader to the form; tell others what the address takes. Programs keep the bare answer."""
        if response.status_code != 405 or response.content or not request.accepts("text/html"):
            return response
        found = request.resolver_match
        if found and found.view_name in PAGES and request.method in ("GET", "HEAD"):
            return redirect(PAGES[found.view_name], *[*found.kwargs.values()][:1])
        takes = response.headers["Allow"]
        page = refused(
            request,
            f"This address takes {takes.replace(', ', ' or ')} requests only. Nothing was changed.",
            405,
        )
        page.headers["Allow"] = takes
        return page
