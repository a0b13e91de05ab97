"""The admin of this site: without Django's redirect by content type, and with lists that no address breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.core.exceptions import BadRequest, FieldError, ValidationError
from django.db import DatabaseError, DataError
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase

log = logging.getLogger(__name__)

CAN_NOT_BE_LOOKED_UP = (
    ArithmeticError,
    DatabaseError,
    FieldError,
    IndexError,
    TypeError,
    ValidationError,
    ValueError,
)
"""Django's errors for a filter in an address that its own check lets pass, such as `?id__in=` with 20 digits."""

NO_COLUMN_HOLDS = (DataError, OverflowError)
"""A database's errors for a number that is too large for it."""

WITHOUT_FILTERS = "e"
"""The parameter with which Django shows a list after an unusable filter."""

View = TypeVar("View", bound=Callable[..., HttpResponseBase])


class Administration(SimpleAdminConfig):
    """The admin's application; the site's addresses load its tables (`runs.admin`), which commands don't need."""

    default_site = "agentsite.administration.Site"


class Site(admin.AdminSite):
    """The administration pages."""

    site_header = "agentsite"
    site_title = "agentsite"
    index_title = "Administration"

    def check(self, app_configs: Any) -> list[Any]:
        """Check the tables, which may not be loaded yet."""
        admin.autodiscover()
        return super().check(app_configs)

    def get_urls(self) -> list[Any]:
        """Leave out `r/TYPE/ID/`: no model of this site has a page of its own there."""
        return [found for found in super().get_urls() if getattr(found, "name", "") != "view_on_site"]

    def admin_view(self, view: View, cacheable: bool = False) -> View:  # noqa: FBT001, FBT002 (Django's signature)
        """Refuse a form with a number that no column holds; show a list without its unusable filters.

        Django does the same with the filters that it checks itself.
        """
        checked = super().admin_view(view, cacheable)

        @wraps(checked)
        def careful(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            try:
                return checked(request, *args, **kwargs)
            except CAN_NOT_BE_LOOKED_UP as fault:
                if request.method == "POST" and isinstance(fault, NO_COLUMN_HOLDS):
                    raise BadRequest("A number is too large. Nothing was changed.") from fault
                if not request.GET or WITHOUT_FILTERS in request.GET or not _is_list(request):
                    raise
                log.warning("%s was shown without its filters: %r", request.path, fault)
                return HttpResponseRedirect(f"{request.path}?{WITHOUT_FILTERS}=1")

        return cast("View", careful)


def _is_list(request: HttpRequest) -> bool:
    found = request.resolver_match
    return request.method == "GET" and found is not None and str(found.url_name).endswith("_changelist")
